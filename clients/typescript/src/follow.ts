import { AbortedError, ConnectionError, HoldfastError, StoppingError, answered } from "./errors.js";
import { Pauses, passing, sleep } from "./transport.js";
import type { CallOptions, Query, Request, Transport } from "./transport.js";

/** After how long a connection is given up on which nothing came, in milliseconds: three times the server's keepalive. */
export const silence = { ms: 45_000 };

/** One of Server-Sent Events. */
interface ServerSent {
  kind: string;
  id: string;
  data: string | undefined;
}

/**
 * Yields what there is, and then each new one, once and in order, whatever happens to connections and servers. It ends
 * with its signal's {@link AbortedError}, with an error that does not pass, and with the loop.
 */
export class Follower<T> implements AsyncIterable<T> {
  /**
   * The position to go on from: behind what was yielded last. Who keeps it once that is handled, with {@link history},
   * and begins with both again, misses nothing.
   */
  position: number;
  /** What positions mean, as soon as the server has said it. */
  history: string | undefined;

  readonly #transport: Transport;
  readonly #request: Request;
  readonly #read: (data: string) => [T, number];
  #retryMs = 0;

  /** Made by `follow` of a namespace and a log. */
  constructor(
    transport: Transport,
    from: { op: string; path: string; query: Query; position: number; history?: string; options?: CallOptions },
    read: (data: string) => [T, number],
  ) {
    this.#transport = transport;
    this.position = from.position;
    this.history = from.history;
    this.#request = { op: from.op, method: "GET", path: from.path, query: from.query, options: from.options };
    this.#read = read;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    const signal = this.#request.options?.signal;
    const pauses = new Pauses();
    for (;;) {
      if (signal?.aborted) throw this.#transport.aborted(this.#request);
      let lost: HoldfastError;
      try {
        for await (const e of this.#connect()) {
          pauses.reset();
          if (e.data !== undefined && (e.kind === "message" || e.kind === "event")) {
            let got: [T, number];
            try {
              got = this.#read(e.data);
            } catch (cause) {
              // Not the cause of the error: this does not pass.
              const detail = `an event of the server cannot be read: ${String(cause)}`;
              throw new HoldfastError({ op: this.#request.op, status: 200, detail });
            }
            const [value, at] = got;
            if (at < this.position) continue; // it was yielded before the connection was lost
            this.position = at + 1;
            yield value;
          }
          // The id of an event is the position to go on from, which can be behind what was told.
          if (/^\d+$/.test(e.id)) this.position = Math.max(this.position, Number(e.id));
        }
        lost = new ConnectionError({ op: this.#request.op, cause: new Error("the server has ended the answer") });
      } catch (thrown) {
        if (!(thrown instanceof HoldfastError)) throw thrown;
        lost = thrown;
      }

      if (signal?.aborted || lost instanceof AbortedError) throw this.#transport.aborted(this.#request);
      if (!passing(lost)) throw lost;
      if (!(await sleep(pauses.next(Math.max(lost.retryAfterMs, this.#retryMs)), signal)))
        throw this.#transport.aborted(this.#request);
    }
  }

  /** Connects, and yields what comes until the connection ends. */
  async *#connect(): AsyncGenerator<ServerSent, void, undefined> {
    const { op, options } = this.#request;
    const controller = new AbortController();
    const abort = () => controller.abort(options?.signal?.reason);
    options?.signal?.addEventListener("abort", abort, { once: true });
    let watch: ReturnType<typeof setTimeout> | undefined;
    // The time that the loop's body takes does not count.
    const heardWithin = async <V>(what: Promise<V>): Promise<V> => {
      const ms = silence.ms;
      watch = setTimeout(() => controller.abort(new Error(`the server has said nothing for ${ms} ms`)), ms);
      try {
        return await what;
      } finally {
        clearTimeout(watch);
      }
    };

    try {
      const query = { ...this.#request.query, from: this.position, history: this.history };
      const asked = { ...this.#request, query };
      const resp = await heardWithin(
        this.#transport.send(asked, undefined, controller.signal, "text/event-stream"),
      );
      // Positions are those of one history. The next connection names it, so that what was made anew is not followed as
      // the old one.
      this.history = resp.headers.get("Holdfast-History") ?? this.history;
      if (!resp.body) return;

      const reader = resp.body.getReader();
      const next = async () => {
        try {
          return await heardWithin(reader.read());
        } catch (cause) {
          throw new ConnectionError({ op, cause: controller.signal.aborted ? controller.signal.reason : cause });
        }
      };
      for await (const e of events(next, (ms) => (this.#retryMs = ms))) {
        if (e.kind === "bye") throw new StoppingError({ op, code: "stopping", status: 503, detail: "the server is stopping" });
        if (e.kind === "problem") {
          const status = Number((JSON.parse(e.data ?? "{}") as { status?: number }).status ?? 0);
          throw answered(op, status, resp.headers, e.data ?? "");
        }
        yield e;
      }
    } finally {
      clearTimeout(watch);
      options?.signal?.removeEventListener("abort", abort);
      controller.abort(new Error("the loop has ended"));
    }
  }
}

/** Reads Server-Sent Events. What the end of the answer cuts off comes again with the next connection. */
async function* events(
  next: () => Promise<ReadableStreamReadResult<Uint8Array>>,
  retry: (ms: number) => void,
): AsyncGenerator<ServerSent, void, undefined> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let parts: string[] = []; // of a line that is not whole yet
  let now: ServerSent = { kind: "", id: "", data: undefined };
  for (;;) {
    const { done, value } = await next();
    if (done) return;
    const lines = decoder.decode(value, { stream: true }).split("\n");
    for (const [i, part] of lines.entries()) {
      parts.push(part);
      if (i === lines.length - 1) break;
      const line = parts.join("").replace(/\r$/, "");
      parts = [];
      if (line === "") {
        yield now; // also a comment, or an id alone
        now = { kind: "", id: "", data: undefined };
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const text = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
      if (name === "event") now.kind = text;
      else if (name === "data") now.data = now.data === undefined ? text : `${now.data}\n${text}`;
      else if (name === "id") now.id = text;
      else if (name === "retry" && /^\d+$/.test(text)) retry(Number(text));
    }
  }
}
