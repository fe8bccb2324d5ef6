import { encode } from "./bytes.js";
import { AbortedError, BadRequestError, ConnectionError, HoldfastError, answered } from "./errors.js";
import type { Level } from "./types.js";

/** How a client works. */
export interface Options {
  /** Sent with each request. */
  token?: string;
  /** What writes must survive before they are answered; if it is absent, the server's level decides. */
  level?: Level;
  /** For how long a call is tried again, in milliseconds; a minute if it is absent, not at all if it is below 0. */
  retryMs?: number;
  /** How long one try may take, beside what it asks the server to wait, in milliseconds; 30,000 if it is absent. */
  timeoutMs?: number;
  /** Makes the requests; the global fetch if it is absent. */
  fetch?: typeof fetch;
}

/** What any call may be told besides. */
export interface CallOptions {
  /** Ends the call, with an {@link AbortedError}. */
  signal?: AbortSignal;
  /** What a write must survive before it is answered, if that is more than the client and the server say. */
  level?: Level;
}

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

export interface Request {
  op: string; // for errors
  method: "GET" | "POST" | "PUT" | "DELETE";
  path: string; // escaped
  query?: Query;
  body?: unknown;
  waitMs?: number; // how long the server is asked to wait
  long?: boolean; // the server may take any time
  safe?: boolean; // does no harm if it is done twice
  always?: boolean; // is tried again until its signal ends it
  options?: CallOptions | undefined;
  lost?: boolean; // an answer was; set by call
}

/** Makes a path of texts, each of which becomes one segment if it has to be escaped. */
export function path(parts: TemplateStringsArray, ...names: string[]): string {
  return parts.reduce((made, part, i) => made + segment(names[i - 1]!) + part);
}

/**
 * Escapes a text so that it is one segment of a path. What is between a client and the server rewrites paths in which a
 * segment is empty, "." or "..", however it is escaped: another operation would be reached.
 */
function segment(text: string): string {
  const parts = text.split("/");
  if (parts.every((p) => p === "") || parts.some((p) => p === "." || p === "..")) return unaddressable;
  try {
    return encodeURIComponent(text);
  } catch {
    return unaddressable; // half of a surrogate pair
  }
}

const unaddressable = "\0";

/** The pauses between tries: they double, and are made longer by chance, so that clients do not come back together. */
export class Pauses {
  static first = 100;
  static most = 5000;
  #now = Pauses.first;

  /** Returns how long to wait in milliseconds: at least what the server has asked for. */
  next(asked: number): number {
    const own = this.#now / 2 + Math.random() * (this.#now / 2);
    this.#now = Math.min(2 * this.#now, Pauses.most);
    return asked > own ? asked + Math.random() * (asked / 4) : own;
  }

  reset(): void {
    this.#now = Pauses.first;
  }
}

/** A time as timers take it: whole, and not so long that they would fire at once. */
export function timely(ms: number): number {
  return Math.min(Math.round(ms), 2 ** 31 - 1);
}

/** Waits; false if the signal ends that before. */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  if (signal?.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const ended = () => {
      clearTimeout(timer);
      resolve(false);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve(true);
    }, timely(ms));
    signal?.addEventListener("abort", ended, { once: true });
  });
}

/** Whether the server surely has not begun what it was asked for. */
function notDone(e: HoldfastError): boolean {
  return e.status === 429 || e.code === "stopping" || e.code === "too_many";
}

/** Whether another try may do better. */
export function passing(e: HoldfastError): boolean {
  if (untrusted(e)) return false;
  return [0, 429, 502, 503, 504].includes(e.status) || e.cause !== undefined;
}

interface SystemError {
  code?: string;
  syscall?: string;
  errors?: SystemError[];
}

/** What the system says of a failed fetch, in Node; browsers do not tell. */
function system(e: HoldfastError): SystemError | undefined {
  return (e.cause as { cause?: SystemError } | undefined)?.cause;
}

/** Whether an error of a connection means that nothing was sent. */
function neverSent(e: HoldfastError): boolean {
  const s = system(e);
  const each = s?.errors?.length ? s.errors : s ? [s] : [];
  return (
    each.length > 0 &&
    each.every((x) => x.code === "UND_ERR_CONNECT_TIMEOUT" || x.syscall === "connect" || x.syscall === "getaddrinfo")
  );
}

/** Whether the server's certificate is not trusted, which does not pass. */
function untrusted(e: HoldfastError): boolean {
  return /CERT|SELF_SIGNED|UNABLE_TO_VERIFY/.test(system(e)?.code ?? "");
}

/** Makes requests, and makes them again. */
export class Transport {
  readonly base: string;
  readonly #o: Options;
  readonly #fetch: typeof fetch;

  constructor(address: string, o: Options) {
    const bad = (detail: string) => new BadRequestError({ op: "new client", code: "bad_request", detail });
    let u: URL;
    try {
      u = new URL(address);
    } catch {
      throw bad(`the address "${address}" cannot be read; write it as http://HOST:PORT`);
    }
    if (!/^https?:$/.test(u.protocol) || u.search || u.hash || u.username || u.password)
      throw bad("the address is one of a server, as http://HOST:PORT, without a token or query");
    if (/\s/.test(o.token ?? "")) throw bad("the token has white space in it");
    if (!((o.timeoutMs ?? 1) > 0)) throw bad("timeoutMs is above 0");
    this.base = u.href.replace(/\/+$/, "");
    this.#o = o;
    this.#fetch = o.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /** Makes a request until it is answered. */
  async call<T>(r: Request): Promise<T> {
    const signal = r.options?.signal;
    const body = r.body === undefined ? undefined : encode(r.body);
    const retry = this.#o.retryMs ?? 60_000;
    const pauses = new Pauses();
    const began = performance.now();
    if (signal?.aborted) throw this.aborted(r);
    for (;;) {
      let e: HoldfastError;
      try {
        return await this.#try<T>(r, body);
      } catch (thrown) {
        if (!(thrown instanceof HoldfastError)) throw thrown;
        e = thrown;
      }

      // Whether the server may have done it is remembered over all tries: a later refusal does not undo an earlier
      // success.
      if (e.unknown || (e.status === 0 ? !neverSent(e) : passing(e) && !notDone(e))) r.lost = true;
      if (signal?.aborted) throw this.aborted(r);
      e.unknown = !!r.lost && r.method !== "GET";
      const wait = pauses.next(e.retryAfterMs);
      const again = passing(e) && (r.safe || !r.lost) && retry >= 0;
      if (!again || (!r.always && performance.now() - began + wait > retry)) throw e;
      if (!(await sleep(wait, signal))) throw this.aborted(r);
    }
  }

  /** The error of a call that its signal has ended. */
  aborted(r: Request): AbortedError {
    const e = new AbortedError({ op: r.op, cause: r.options?.signal?.reason ?? "aborted" });
    e.unknown = !!r.lost && r.method !== "GET";
    return e;
  }

  /** Makes a request once. */
  async #try<T>(r: Request, body: string | undefined): Promise<T> {
    const controller = new AbortController();
    const abort = () => controller.abort(r.options?.signal?.reason);
    r.options?.signal?.addEventListener("abort", abort, { once: true });
    const limit = (this.#o.timeoutMs ?? 30_000) + (r.waitMs ?? 0);
    const timer = r.long
      ? undefined
      : setTimeout(() => controller.abort(new Error(`there was no answer in ${limit} ms`)), timely(limit));
    try {
      const resp = await this.send(r, body, controller.signal);
      let text: string;
      try {
        text = await resp.text();
      } catch (cause) {
        throw new ConnectionError({ op: r.op, cause, detail: "the answer broke off" });
      }
      if (resp.status === 204) return undefined as T;
      try {
        return JSON.parse(text) as T;
      } catch {
        const detail = "the answer cannot be read; is this the address of a Holdfast server?";
        const e = new HoldfastError({ op: r.op, status: resp.status, detail });
        e.unknown = r.method !== "GET"; // a lost answer: the server may have done what it was asked for
        throw e;
      }
    } finally {
      clearTimeout(timer);
      r.options?.signal?.removeEventListener("abort", abort);
    }
  }

  /** Makes a request, and returns the answer if it is one of success. Its body is the caller's. */
  async send(r: Request, body: string | undefined, signal: AbortSignal, accept?: string): Promise<Response> {
    const bad = (detail: string) => new BadRequestError({ op: r.op, code: "bad_request", status: 400, detail });
    if (r.path.includes(unaddressable))
      throw bad(`a name or an id cannot stand in a path: it is empty, of slashes alone, or has "." or ".." as a part`);
    // The platform would make other texts of them.
    if (!Object.values(r.query ?? {}).flat().every((v) => typeof v !== "string" || v.isWellFormed()))
      throw bad("a text of the query has half of a surrogate pair");
    const headers: Record<string, string> = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (accept) headers["Accept"] = accept;
    if (this.#o.token) headers["Authorization"] = `Bearer ${this.#o.token}`;
    for (const l of [r.options?.level, this.#o.level])
      if (l && !levels.includes(l)) throw bad(`the level "${String(l)}" is not one of ${levels.join(", ")}`);
    const level = stronger(r.options?.level, this.#o.level);
    if (level && r.method !== "GET") headers["Holdfast-Level"] = level;
    const init: RequestInit = { method: r.method, headers, signal, redirect: "manual", cache: "no-store" };
    if (body !== undefined) init.body = body;

    let resp: Response;
    try {
      resp = await this.#fetch(this.base + r.path + search(r.query), init);
    } catch (cause) {
      throw new ConnectionError({ op: r.op, cause });
    }
    if (resp.ok) return resp;
    if (resp.type === "opaqueredirect")
      throw new HoldfastError({ op: r.op, status: 307, detail: "redirects are not followed: a token goes nowhere else" });
    let text: string;
    try {
      text = await resp.text();
    } catch (cause) {
      throw new ConnectionError({ op: r.op, status: resp.status, cause, detail: "the answer broke off" });
    }
    throw answered(r.op, resp.status, resp.headers, text);
  }
}

const levels = ["memory", "process", "power", "quorum"];

/** The stronger of two levels, if there is any. */
function stronger(a: Level | undefined, b: Level | undefined): Level | undefined {
  return a && b ? (levels.indexOf(a) > levels.indexOf(b) ? a : b) : (a ?? b);
}

function search(query: Query | undefined): string {
  const p = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const v of typeof value === "object" ? value : [value]) p.append(name, String(v));
  }
  const text = p.toString();
  return text && `?${text}`;
}
