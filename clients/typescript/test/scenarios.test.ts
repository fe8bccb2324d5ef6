import { readFileSync } from "node:fs";
import { afterAll, beforeAll, test } from "vitest";
import { fromBase64, toBase64 } from "../src/bytes.js";
import { Client, HoldfastError, Worker, dead, snooze } from "../src/index.js";
import type { CallOptions, Follower, Namespace, Options } from "../src/index.js";
import { Harness } from "./harness.js";

/* What the steps mean is in clients/README.md. */
type Step = Record<string, any>;

const scenarios = JSON.parse(readFileSync(new URL("../../scenarios.json", import.meta.url), "utf8")) as {
  name: string;
  steps: Step[];
}[];

let harness: Harness;
beforeAll(async () => {
  harness = await Harness.start();
});
afterAll(() => harness.stop());

let number = 0;
for (const { name, steps } of scenarios) {
  test(name, async () => {
    const scenario = new Scenario(`scenario-${++number}`);
    await scenario.begin();
    for (const [i, step] of steps.entries()) {
      try {
        await scenario.step(step);
      } catch (e) {
        throw new Error(`step ${i}, ${short(step)}: ${e instanceof Error ? e.stack : e}`, { cause: e });
      }
    }
    await scenario.end();
  });
}

function short(value: unknown): string {
  return (JSON.stringify(value) ?? "undefined").slice(0, 400);
}

interface Collected {
  got: any[];
  error: unknown;
  taken: number;
  follower: Follower<any>;
}

class Scenario {
  private readonly saved = new Map<string, unknown>();
  private readonly followers = new Map<string, Collected>();
  private readonly workers = new Map<
    string,
    { stop: AbortController; done: Promise<void>; saw: string[]; waits: () => number }
  >();
  private readonly ending = new AbortController();
  private marked = 0;

  constructor(private readonly ns: string) {}

  async begin(): Promise<void> {
    await this.client({}).createNamespace({ id: this.ns });
  }

  async end(): Promise<void> {
    this.ending.abort();
    for (const w of this.workers.values()) {
      w.stop.abort();
      await w.done;
    }
    await harness.do({ do: "clear" });
  }

  client(o: Step): Client {
    const { direct, token, retry_ms: retryMs, level } = o as { direct?: boolean; token?: string } & Step;
    const options: Options = { token: token ?? harness.at.token, ...(retryMs !== undefined && { retryMs }), level };
    return new Client(direct ? harness.at.direct : harness.at.url, options);
  }

  async step(raw: Step): Promise<void> {
    const step = this.made(raw) as Step;
    for (const end = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
      let got: unknown;
      let error: Error | undefined;
      try {
        got = normal(await this.do(step));
      } catch (e) {
        error = e as Error;
      }
      const wrong = error === undefined || step.error ? this.compare(step, got, error) : undefined;
      if (error !== undefined && !step.error && !step.until) throw error;
      if (error === undefined && step.save) this.saved.set(step.save as string, got);
      if (wrong === undefined && !(error !== undefined && !step.error)) return;
      if (!step.until || Date.now() > end) throw new Error(wrong ?? error?.message);
    }
  }

  private compare(step: Step, got: unknown, error: Error | undefined): string | undefined {
    if (!step.error) return "want" in step ? differs(step.want, got, "") : undefined;
    if (error === undefined) return `it was done: ${short(got)}`;
    if (!(error instanceof HoldfastError)) return `not a HoldfastError: ${error.stack}`;
    const { code, status, unknown, operation } = error;
    const { expected, actual } = error as { expected?: number; actual?: number };
    const wrong = differs(step.error, { code, status, unknown, operation, expected, actual }, "error");
    return wrong && `${wrong} (${error.message})`;
  }

  /** Puts in values that are made or saved. */
  private made(value: any): any {
    if (Array.isArray(value)) return value.map((v) => this.made(v));
    if (typeof value === "string" && value.startsWith("$")) {
      const [name, ...at] = value.slice(1).split(".");
      return at.reduce((v: any, key) => v[key], this.saved.get(name!));
    }
    if (typeof value !== "object" || value === null) return value;
    if (value.$repeat) return (value.$repeat[0] as string).repeat(value.$repeat[1] as number);
    if (value.$bytes) return toBase64(Uint8Array.from({ length: value.$bytes as number }, (_, i) => i % 251));
    if (value.$deep) {
      let deep: object = {};
      for (let i = 1; i < value.$deep; i++) deep = { a: deep };
      return deep;
    }
    return Object.fromEntries(Object.entries(value as object).map(([k, v]) => [k, this.made(v)]));
  }

  private async do(s: Step): Promise<unknown> {
    const c = this.client((s.with as Step | undefined) ?? {});
    const n = c.namespace((s.ns as string | undefined) ?? this.ns);
    const o: CallOptions = { level: s.level };
    const k = n.tasks;
    switch (s.do) {
      case "write":
        return n.write(s.stream, s.messages, { ...o, expected: s.expected });
      case "write_numbered":
        for (let i = s.from as number; i <= s.to; i++) await n.write(s.stream, [{ type: "T", data: { n: i } }]);
        return;
      case "read":
        return all(n.read(s));
      case "last":
        return n.last(s.stream, s.type);
      case "version":
        return (await n.version(s.stream)) ?? null;
      case "streams":
        return n.streams(s);
      case "categories":
        return n.categories();
      case "truncate":
        return n.truncate(s.stream, s.before);
      case "delete":
        return n.delete(s.stream);
      case "tombstone":
        return n.tombstone(s.stream);
      case "save_position":
        return n.savePosition(s.name, s.position);
      case "load_position":
        return n.loadPosition(s.name);
      case "delete_position":
        return n.deletePosition(s.name);
      case "history":
        return n.history();
      case "append":
        return n.log(s.log).append(s.events.map(withBytes), { ...o, after: s.after });
      case "events":
        return all(n.log(s.log).read(s));
      case "log_info":
        return n.log(s.log).info();
      case "truncate_log":
        return n.log(s.log).truncate(s.before);
      case "save_offset":
        return n.log(s.log).saveOffset(s.name, s.position);
      case "load_offset":
        return n.log(s.log).loadOffset(s.name);
      case "follow":
        return this.follow(s, s.log ? n.log(s.log).follow(s, this.until()) : n.follow(s, this.until()));
      case "take":
        return this.take(s.of, s.n);
      case "ended": {
        const f = this.followers.get(s.of)!;
        await until(() => f.error !== undefined);
        throw f.error;
      }
      case "position":
        return this.followers.get(s.of)!.follower.position;
      case "follower_history":
        return this.followers.get(s.of)!.follower.history;
      case "enqueue":
        return k.enqueue(s.tasks.map(withBytes), o);
      case "claim":
        return k.claim({ queues: s.queues, n: s.n, lease_ms: s.lease_ms, worker: s.worker });
      case "heartbeat":
        return (await k.heartbeat(s.leases)).map((r) => r.code ?? "");
      case "complete":
        return (await k.complete(s.leases)).map((r) => r.code ?? "");
      case "complete_then":
        return k.completeThen(s.lease, s.then.map(withBytes));
      case "fail":
        return k.fail(s.lease, { message: s.message }, { dead: s.dead });
      case "snooze":
        return k.snooze(s.lease, s.for_ms);
      case "output":
        return k.setOutput(s.lease, fromBase64(s.output));
      case "task":
        return k.get(s.id);
      case "tasks":
        return (await k.list({ queue: s.queue, state: s.state })).tasks;
      case "cancel":
        return k.cancel(s.id);
      case "retry":
        return k.retry(s.id);
      case "delete_task":
        return k.delete(s.id);
      case "queue":
        return k.queue(s.name);
      case "pause_queue":
        return k.pause(s.name);
      case "resume_queue":
        return k.resume(s.name);
      case "subscribe":
        return void (await n.subscribe(s.name, { category: s.category, lease_ms: s.lease_ms, max_attempts: s.max_attempts }));
      case "subscription":
        return n.subscription(s.name).info();
      case "claim_messages":
        return n.subscription(s.name).claim(s.max);
      case "ack":
        return n.subscription(s.name).ack(s.deliveries);
      case "extend":
        return n.subscription(s.name).extend(s.deliveries);
      case "fail_messages":
        return n.subscription(s.name).fail(s.deliveries, s.reason);
      case "return_messages":
        return n.subscription(s.name).return(s.deliveries);
      case "park":
        return n.subscription(s.name).park(s.deliveries, s.reason);
      case "parked":
        return n.subscription(s.name).parked();
      case "replay":
        return n.subscription(s.name).replay(s.globals);
      case "discard":
        return n.subscription(s.name).discard(s.globals);
      case "update":
        return c.update(s.operations.map((op: Step) => this.operation(op)), o);
      case "create_namespace":
        return c.createNamespace({ id: s.as });
      case "delete_namespace":
        return c.deleteNamespace(s.as);
      case "create_token":
        return c.createToken({ namespace: this.ns, role: s.role });
      case "revoke_token":
        return c.revokeToken(s.id);
      case "names":
        return this.names(n, c, s.good, s.bad);
      case "work":
        return this.work(n, s);
      case "worker_saw":
        return this.workers.get(s.of)!.saw;
      case "worker_waits":
        return this.workers.get(s.of)!.waits();
      case "stop_worker": {
        const w = this.workers.get(s.of)!;
        w.stop.abort();
        return w.done;
      }
      case "lose":
        await harness.do({ do: "clear" });
        return harness.do({ do: "fault", path: "*", what: s.half ? "half" : "unheard" });
      case "tries":
        return ((await harness.do({ do: "tries" })) as string[]).filter((t) => t.endsWith(s.path)).length;
      case "mark":
        this.marked = performance.now();
        return;
      case "elapsed": // timers may come a millisecond early
        if (performance.now() - this.marked < s.least_ms - 2) throw new Error(`after ${performance.now() - this.marked} ms`);
        return;
      case "storm":
        return this.storm(process.env.HOLDFAST_NIGHT ? { ...s, ...s.night } : s);
      default:
        return harness.do(s); // kill, stop, start, fault, clear, cut
    }
  }

  private until(): CallOptions {
    return { signal: this.ending.signal };
  }

  private operation(op: Step): any {
    const made: Step = { namespace: this.ns, ...op };
    if (op.append) made.append = { ...op.append, events: op.append.events.map(withBytes) };
    if (op.enqueue) made.enqueue = { tasks: op.enqueue.tasks.map(withBytes) };
    return made;
  }

  private follow(s: Step, follower: Follower<any>): void {
    const f: Collected = { got: [], error: undefined, taken: 0, follower };
    this.followers.set(s.as, f);
    void (async () => {
      try {
        for await (const x of follower) f.got.push(x);
      } catch (e) {
        f.error = e;
      }
    })();
  }

  private async take(of: string, n: number): Promise<any[]> {
    const f = this.followers.get(of)!;
    await until(() => f.got.length >= f.taken + n || f.error !== undefined);
    if (f.got.length < f.taken + n) throw f.error;
    f.taken += n;
    return f.got.slice(f.taken - n, f.taken);
  }

  private async names(n: Namespace, c: Client, good: string[], bad: string[]): Promise<void> {
    for (const [i, name] of good.entries()) {
      await n.write(name, [{ type: "T", data: { n: i } }], { expected: -1 });
      if ((await n.version(name)) !== 0) throw new Error(`the stream "${name}" is not there`);
      await n.savePosition(name, 1);
      if ((await n.loadPosition(name)) !== 1) throw new Error(`the consumer "${name}" is not there`);
      await n.tasks.enqueue([{ id: name, kind: "k" }]);
      if ((await n.tasks.get(name)).id !== name) throw new Error(`the task "${name}" is not there`);
    }
    const names = (await n.streams()).map((s) => s.stream).sort();
    if (JSON.stringify(names) !== JSON.stringify([...good].sort())) throw new Error(`the streams are ${names.join()}`);
    await harness.do({ do: "clear" });
    for (const name of bad) {
      const calls = [
        () => n.version(name), () => n.delete(name), () => n.loadPosition(name), () => n.subscription(name).info(),
        () => n.tasks.get(name), () => c.deleteNamespace(name), () => n.log(name).delete(), () => n.tasks.pause(name),
        () => c.revokeToken(name), () => n.log("l").deleteOffset(name), () => all(n.log(name).follow()),
      ];
      for (const [i, call] of calls.entries()) {
        const e: unknown = await call().then(() => undefined, (e: unknown) => e);
        if (!(e instanceof HoldfastError) || e.code !== "bad_request") throw new Error(`"${name}", ${i}: ${String(e)}`);
      }
    }
    const tries = (await harness.do({ do: "tries" })) as string[] | null;
    if (tries?.length) throw new Error(`sent: ${tries.join()}`);
  }

  private work(n: Namespace, s: Step): void {
    const stop = new AbortController();
    const saw: string[] = []; // why those that wait ended, the same in a row once
    let waits = 0;
    const handlers = Object.fromEntries(
      Object.entries(s.script as Record<string, string[]>).map(([kind, script]) => {
        let call = 0;
        return [
          kind,
          async (x: Parameters<ConstructorParameters<typeof Worker>[1][string]>[0]) => {
            const [what, text = ""] = script[Math.min(call++, script.length - 1)]!.split(":");
            if (what === "fail") throw new Error(text);
            if (what === "dead") throw dead(new Error(text));
            if (what === "snooze") throw snooze(Number(text));
            if (what === "sleep") await new Promise((resolve) => setTimeout(resolve, Number(text)));
            if (what === "output") await x.setOutput(new TextEncoder().encode(text));
            if (what === "then") await x.completeThen({ kind: text, queue: "then" });
            if (what !== "wait") return;
            waits++;
            if (!x.signal.aborted) await new Promise((resolve) => x.signal.addEventListener("abort", resolve));
            waits--;
            const reason = x.signal.reason as Error;
            const why = reason instanceof HoldfastError ? reason.code : "stopping";
            if (saw.at(-1) !== why) saw.push(why);
            throw reason;
          },
        ];
      }),
    );
    const worker = new Worker(n.tasks, handlers, {
      queues: s.queues, leaseMs: s.lease_ms, concurrency: s.concurrency, graceMs: s.grace_ms, log: () => {},
    });
    this.workers.set(s.as, { stop, saw, waits: () => waits, done: worker.run(stop.signal) });
  }

  /** Writes from eight writers, follows, and works, while the server is killed. */
  private async storm(s: Step): Promise<unknown> {
    const n = this.client({ direct: true, retry_ms: 300_000 }).namespace(this.ns);
    const total = s.messages as number;
    const tasks = s.tasks as number;
    const runs = new Map<string, number>();
    const stop = new AbortController();
    const worker = new Worker(
      n.tasks,
      { k: (x) => void runs.set(x.task.id!, (runs.get(x.task.id!) ?? 0) + 1) },
      { leaseMs: 3000, log: () => {} },
    );
    const working = worker.run(stop.signal);
    const follower = n.follow({ category: "s" }, { signal: stop.signal });
    const followed: number[] = [];
    const following = (async () => {
      for await (const m of follower) {
        followed.push(m.data.n as number);
        if (followed.length === total) break;
      }
    })();

    let done = 0;
    const write = async (writer: number) => {
      for (let i = writer; i < total; i += 8) {
        await n.write(`s-${writer}`, [{ type: "T", data: { n: i, text: "ü🦊" } }]);
        if (i < tasks) await n.tasks.enqueue([{ id: `t-${i}`, kind: "k", keep_ms: 3_600_000 }]);
        done++;
      }
    };
    const kill = async () => {
      for (let i = 1; i <= s.kills; i++) {
        await until(() => done >= (total * i) / (s.kills + 1), 600_000);
        await harness.do({ do: i % 2 ? "kill" : "stop" });
        await harness.do({ do: "start" });
      }
    };
    await Promise.all([kill(), ...Array.from({ length: 8 }, (_, w) => write(w))]);
    await following;

    const there = (await all(n.read({ category: "s" }))).map((m: any) => m.data.n as number);
    let open = tasks;
    for (const end = Date.now() + 300_000; open > 0 && Date.now() < end; ) {
      const counts = (await n.tasks.queue("default")).counts as Record<string, number>;
      open = tasks - (counts.completed ?? 0);
    }
    stop.abort();
    await working;
    const twice = (list: number[]) => list.length - new Set(list).size;
    return {
      lost: total - new Set(there).size, twice: twice(there), followed_lost: total - new Set(followed).size,
      followed_twice: twice(followed), tasks_open: open + (tasks - runs.size),
    };
  }
}

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const got: T[] = [];
  for await (const x of list) got.push(x);
  return got;
}

async function until(done: () => boolean, ms = 60_000): Promise<void> {
  for (const end = Date.now() + ms; !done(); await new Promise((resolve) => setTimeout(resolve, 5)))
    if (Date.now() > end) throw new Error(`it has not come in ${ms} ms`);
}

/** Makes bytes of the texts that scenarios have for them. */
function withBytes(x: Step): any {
  const made: Step = { ...x };
  const fields = "kind" in x ? ["payload"] : ["data", "metadata"];
  for (const f of fields) if (f in made) made[f] = fromBase64(made[f] as string);
  return made;
}

/** Makes the texts of bytes, as scenarios have them. */
function normal(value: unknown): unknown {
  if (value instanceof Uint8Array) return toBase64(value);
  if (Array.isArray(value)) return value.map(normal);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, normal(v)]));
}

/** Says where something is not as it is wanted. Objects may have more than is wanted. */
function differs(want: any, got: any, at: string): string | undefined {
  const wrong = `${at || "the result"} is ${short(got)}, want ${short(want)}`;
  if (want?.$least !== undefined) return got >= want.$least ? undefined : wrong;
  if (want?.$length !== undefined) return got?.length === want.$length ? undefined : wrong;
  if (want?.$numbered) {
    const [first, last] = want.$numbered as [number, number];
    const numbers = (got as any[]).map((m) => m.data.n as number);
    const right = numbers.length === last - first + 1 && numbers.every((n, i) => n === first + i);
    return right ? undefined : `${at}: ${numbers.join()}, want ${first} to ${last}`;
  }
  if (Array.isArray(want)) {
    if (!Array.isArray(got) || got.length !== want.length) return wrong;
    return want.map((w, i) => differs(w, got[i], `${at}[${i}]`)).find(Boolean);
  }
  if (typeof want === "object" && want !== null) {
    if (typeof got !== "object" || got === null) return wrong;
    return Object.keys(want as object).map((k) => differs(want[k], got[k], `${at}.${k}`)).find(Boolean);
  }
  if (want === got || (want === false && got === undefined) || (want === "" && got === undefined)) return undefined;
  return wrong;
}
