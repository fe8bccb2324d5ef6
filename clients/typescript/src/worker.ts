import { fromJSON, json } from "./bytes.js";
import type { LeaseRef, Tasks } from "./client.js";
import {
  BadRequestError,
  CancelledError,
  CorruptError,
  HoldfastError,
  LeaseLostError,
  PoisonedError,
  TooLargeError,
  errorOf,
} from "./errors.js";
import { sleep, timely } from "./transport.js";
import type { CallOptions } from "./transport.js";
import type { Enqueued, Lease, NewTask, Task } from "./types.js";

/** The reason of a task's signal when its worker stops. If the function then throws, the task is given back. */
export class WorkerStoppingError extends Error {
  override name = "WorkerStoppingError";
  constructor() {
    super("the worker is stopping");
  }
}

/** Functions have not returned though their signals have ended. Their tasks are claimed again when the leases run out. */
export class StillRunningError extends Error {
  override name = "StillRunningError";
}

class Verdict extends Error {
  constructor(
    readonly what: "dead" | "retry" | "snooze",
    message: string,
    readonly inMs: number,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The beginning of a text, of which the server keeps less. One that was cut has half of a character, perhaps. */
const sendable = (text: string) => text.slice(0, 65536).toWellFormed();

const text = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** Makes an error that lets a task die, whatever attempts it has left. */
export const dead = (error: unknown): Error => new Verdict("dead", text(error), 0, { cause: error });
/** Makes an error after which a task is tried again in so many milliseconds, if it has attempts left. */
export const retryIn = (ms: number, error: unknown): Error =>
  new Verdict("retry", text(error), Math.max(1, Math.round(ms)), { cause: error });
/** Makes an error that is no failure: the task runs again in so many milliseconds, and the attempt is not counted. */
export const snooze = (ms: number): Error => new Verdict("snooze", `snoozed for ${ms} ms`, Math.max(0, ms));

/** What a worker tells: a line, and what belongs to it. */
export type Log = (level: "debug" | "info" | "warn" | "error", line: string, about: Record<string, unknown>) => void;

export interface WorkerOptions {
  /** Those that tasks are claimed from, the first ones first; "default" if there are none. */
  queues?: string[];
  /** How many tasks run at once; 16 if it is absent. */
  concurrency?: number;
  /** How long a task is held without a heartbeat, in milliseconds; 30,000 if it is absent. There is one every third. */
  leaseMs?: number;
  /**
   * How long functions may go on when the worker stops, before their signals end, and then again before `run` returns
   * without them, in milliseconds; 30,000 if it is absent.
   */
  graceMs?: number;
  /** The worker's name in tasks. */
  name?: string;
  /** Takes what becomes of tasks; warnings and errors go to the console if it is absent. */
  log?: Log;
}

/** One attempt at a task. */
export class TaskRun {
  /** What the task was when it was claimed. */
  readonly task: Task;
  /**
   * Ends when the task is cancelled (its reason is a {@link CancelledError}), when its lease is lost
   * ({@link LeaseLostError}), and when the worker has stopped waiting for it ({@link WorkerStoppingError}).
   */
  readonly signal: AbortSignal;

  readonly #tasks: Tasks;
  /** @internal */ readonly lease: LeaseRef;
  /** @internal */ readonly controller = new AbortController();
  /** @internal */ expires: number;
  /** @internal */ settling = false;
  /** @internal */ completed = false;
  /** @internal */ readonly lost = new AbortController();

  /** @internal */
  constructor(tasks: Tasks, lease: Lease, leaseMs: number) {
    this.#tasks = tasks;
    this.task = lease.task;
    this.lease = lease;
    this.signal = this.controller.signal;
    this.expires = performance.now() + leaseMs;
  }

  /** The payload, read as JSON; undefined if there is none. */
  args<T = unknown>(): T {
    return fromJSON<T>(this.task.payload) as T;
  }

  /** Stores progress or a result with the task: bytes as they are, anything else as JSON. Later attempts find it. */
  setOutput(output: unknown): Promise<void> {
    return this.#tasks.setOutput(this.lease, output instanceof Uint8Array ? output : json(output));
  }

  /** Completes the task in one commit with tasks that are to run then. After it, the function returns. */
  async completeThen(...then: NewTask[]): Promise<Enqueued[]> {
    this.settling = true;
    try {
      const results = await this.#tasks.completeThen(this.lease, then);
      this.completed = true;
      return results;
    } finally {
      this.settling = this.completed;
    }
  }

  /** @internal */
  lose(error: HoldfastError): void {
    this.lost.abort(error);
    this.controller.abort(error);
  }
}

/** Does what a task says. It is called for several tasks at once. */
export type Handler = (run: TaskRun) => unknown;

const firstPause = 100;
const mostPause = 10_000;

/**
 * Claims tasks and runs them: the function of their kind. A task is completed when that returns. What it throws is a
 * failure, after which the task is tried again until its attempts are used up, or what {@link dead}, {@link retryIn} and
 * {@link snooze} say. A task is run at least once: again if the program is killed, or does not reach the server for as
 * long as a lease lasts.
 */
export class Worker {
  readonly #tasks: Tasks;
  readonly #handlers: Readonly<Record<string, Handler>>;
  readonly #o: Required<WorkerOptions>;
  readonly #running = new Map<TaskRun, Promise<void>>();
  #stopping = false;
  #freed: (() => void) | undefined; // called when a task has ended, if that is waited for

  constructor(tasks: Tasks, handlers: Record<string, Handler>, options: WorkerOptions = {}) {
    const bad = (detail: string) => new BadRequestError({ op: "new worker", code: "bad_request", detail });
    this.#tasks = tasks;
    this.#handlers = { ...handlers };
    this.#o = {
      queues: options.queues ?? [],
      concurrency: options.concurrency ?? 16,
      leaseMs: Math.round(options.leaseMs ?? 30_000),
      graceMs: options.graceMs ?? 30_000,
      name: options.name ?? `worker-${crypto.randomUUID().slice(0, 8)}`,
      log: options.log ?? ((level, line, about) => (level === "warn" || level === "error") && console[level](line, about)),
    };
    if (Object.keys(handlers).length === 0) throw bad("there is no handler");
    if (!(this.#o.concurrency >= 1) || !(this.#o.leaseMs >= 3 && this.#o.leaseMs < Infinity) || !(this.#o.graceMs >= 0))
      throw bad("concurrency is 1 at least, leaseMs 3 and not infinite, and graceMs 0");
  }

  /**
   * Claims and runs tasks until the signal ends: then it claims no more, waits for `graceMs`, ends the signals of what
   * is left, and waits for `graceMs` again. It returns once all is settled. Errors that may pass are logged, and claiming
   * is tried again; others stop it, too, and are thrown. It is called once.
   */
  async run(signal: AbortSignal): Promise<void> {
    const beating = new AbortController();
    const beats = this.#beat(beating.signal);
    let failed: unknown;
    try {
      await this.#claim(signal);
    } catch (e) {
      failed = e;
    }
    let all = await this.#wait(this.#o.graceMs);
    this.#stopping = true;
    for (const x of this.#running.keys()) x.controller.abort(new WorkerStoppingError());
    all ||= await this.#wait(this.#o.graceMs || 30_000);
    beating.abort();
    await beats;
    if (failed !== undefined) throw failed as Error;
    if (!all) {
      const ids = [...this.#running.keys()].map((x) => x.task.id);
      for (const x of this.#running.keys()) x.lose(lost("the worker has ended"));
      throw new StillRunningError(`functions of these tasks still run: ${ids.join(", ")}`);
    }
  }

  /** Waits until nothing runs; false if that takes longer. */
  async #wait(ms: number): Promise<boolean> {
    const limit = new AbortController();
    const all = Promise.all(this.#running.values()).then(() => limit.abort());
    if (this.#running.size > 0) await Promise.race([all, sleep(ms, limit.signal)]);
    return this.#running.size === 0;
  }

  /**
   * Waits until a task has ended, or the signal has. It leaves nothing behind: a race of promises would keep something
   * with the signal, and with each task that goes on, for every task that ends.
   */
  #room(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        signal.removeEventListener("abort", done);
        this.#freed = undefined;
        resolve();
      };
      this.#freed = done;
      signal.addEventListener("abort", done, { once: true });
    });
  }

  async #claim(signal: AbortSignal): Promise<void> {
    const { queues, concurrency, leaseMs, name, log } = this.#o;
    let pause = firstPause;
    while (!signal.aborted) {
      if (this.#running.size >= concurrency) {
        await this.#room(signal);
        continue;
      }
      let leases: Lease[];
      try {
        const n = concurrency - this.#running.size;
        leases = await this.#tasks.claim({ queues, n, lease_ms: leaseMs, worker: name, wait: true }, { signal });
        pause = firstPause;
      } catch (e) {
        if (signal.aborted) return;
        if (permanent(e)) throw e;
        log("warn", "tasks cannot be claimed; trying again", { error: e, inMs: pause });
        await sleep(pause, signal);
        pause = Math.min(2 * pause, mostPause);
        continue;
      }
      for (const lease of leases) {
        const x = new TaskRun(this.#tasks, lease, leaseMs);
        const done = () => {
          this.#running.delete(x);
          this.#freed?.();
        };
        this.#running.set(x, this.#execute(x, signal.aborted).finally(done));
      }
    }
  }

  /** Runs a task, and tells the server what became of it. */
  async #execute(x: TaskRun, giveBack: boolean): Promise<void> {
    const about = { task: x.task.id, kind: x.task.kind, queue: x.task.queue, attempt: x.task.attempt };
    const settle = (what: string, ask: (o: CallOptions) => Promise<unknown>, level: "debug" | "info" | "warn" | "error" = "debug") =>
      this.#report(x, what, ask, level, about);
    if (this.#stopping) x.controller.abort(new WorkerStoppingError());
    if (giveBack) return settle("given back", (o) => this.#tasks.snooze(x.lease, 0, o), "info");

    let error: unknown;
    let failed = false;
    try {
      const handler = Object.hasOwn(this.#handlers, x.task.kind) ? this.#handlers[x.task.kind] : undefined;
      if (!handler) throw new Error(`no handler for the kind "${x.task.kind}"`);
      await handler(x);
    } catch (e) {
      [error, failed] = [e, true];
    }
    const completed = x.completed;
    x.settling = true;
    if (completed) {
      if (failed) this.#o.log("warn", "task completed, and then its function failed", { ...about, error });
      return;
    }
    if (!failed) {
      return settle("completed", async (o) => {
        const [r] = await this.#tasks.complete([x.lease], o);
        if (r?.code) throw errorOf({ op: "task complete", status: 200, code: r.code, detail: r.detail ?? "" });
      });
    }
    if (error instanceof Verdict && error.what === "snooze")
      return settle("snoozed", (o) => this.#tasks.snooze(x.lease, (error as Verdict).inMs, o));
    if (!(error instanceof Verdict) && x.signal.reason instanceof WorkerStoppingError)
      return settle("given back", (o) => this.#tasks.snooze(x.lease, 0, o), "info");
    const stack = error instanceof Error && error.stack;
    const failure = { message: sendable(text(error)), ...(stack && { stack: sendable(stack) }) };
    const verdict = error instanceof Verdict ? { dead: error.what === "dead", retryInMs: error.inMs } : {};
    const level = verdict.dead || x.task.attempt >= (x.task.max_attempts || 25) ? "error" : "warn";
    return settle("failed", (o) => this.#tasks.fail(x.lease, failure, verdict, o), level);
  }

  /** Asks the server for something until it is done, or can be done no more. */
  async #report(
    x: TaskRun,
    what: string,
    ask: (o: CallOptions) => Promise<unknown>,
    level: "debug" | "info" | "warn" | "error",
    about: Record<string, unknown>,
  ): Promise<void> {
    const { log } = this.#o;
    for (let pause = firstPause; ; pause = Math.min(2 * pause, mostPause)) {
      try {
        await ask({ signal: AbortSignal.timeout(timely(this.#o.leaseMs)) });
        return log(level, `task ${what}`, about);
      } catch (error) {
        const refused = { ...about, error };
        if (error instanceof CancelledError) return log("info", "task was cancelled while it ran", about);
        if (error instanceof LeaseLostError)
          return log("warn", `task was taken away while it ran: it has not ${what}`, refused);
        if (permanent(error)) return log("error", `the server does not learn that the task has ${what}`, refused);
        log("warn", `the server does not learn that the task has ${what}; trying again`, refused);
        if (!(await sleep(pause, x.lost.signal)))
          return log("error", `the lease was lost before the server learned that the task has ${what}`, refused);
      }
    }
  }

  /** Extends the leases every third of their time. One whose end would come before the next beat is given up. */
  async #beat(signal: AbortSignal): Promise<void> {
    const { leaseMs, log } = this.#o;
    const every = leaseMs / 3;
    while (await sleep(every, signal)) {
      const held = [...this.#running.keys()].filter((x) => !x.lost.signal.aborted);
      if (held.length === 0) continue;
      const asked = performance.now();
      const limit = AbortSignal.timeout(timely(every));
      try {
        const results = await this.#tasks.heartbeat(held.map((x) => x.lease), { signal: limit });
        for (const [i, x] of held.entries()) {
          const code = results[i]?.code ?? "";
          if (code === "") x.expires = asked + leaseMs;
          else if (x.settling) continue; // just given up
          else if (code === "cancelled") x.lose(new CancelledError({ op: "heartbeat", code, detail: "the task was cancelled" }));
          else x.lose(lost(results[i]?.detail ?? code));
        }
      } catch (error) {
        log("warn", "leases cannot be extended", { leases: held.length, error });
        for (const x of held) if (performance.now() + every >= x.expires) x.lose(lost("it could not be extended"));
      }
    }
  }
}

function lost(detail: string): LeaseLostError {
  return new LeaseLostError({ op: "heartbeat", code: "lease_lost", detail });
}

/** Whether asking again is no use. */
function permanent(e: unknown): boolean {
  const no = [PoisonedError, CorruptError, BadRequestError, TooLargeError, LeaseLostError, CancelledError];
  return no.some((c) => e instanceof c);
}
