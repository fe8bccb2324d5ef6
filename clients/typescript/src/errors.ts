import type { Problem } from "./types.js";

/** What is known of an error besides its text. */
export interface ErrorDetails {
  /** What was to be done: "message write". */
  op: string;
  /** The status of HTTP, 0 if there was no answer. */
  status?: number;
  /** The code of the server: docs/errors.md has all of them. "" if the answer has none. */
  code?: string;
  detail?: string;
  /** The id under which the server's log has more. */
  request?: string;
  /** How long the server asks to wait before the next try, in milliseconds. */
  retryAfterMs?: number;
  /** Which operation of a transaction was refused, from 0. */
  operation?: number;
  expected?: number;
  actual?: number;
  cause?: unknown;
}

/** What the server has refused, or why it could not be asked. The classes below it are by the server's code. */
export class HoldfastError extends Error {
  readonly op: string;
  readonly status: number;
  readonly code: string;
  readonly detail: string;
  readonly request: string | undefined;
  readonly retryAfterMs: number;
  readonly operation: number | undefined;
  /** A try was made whose answer was lost: it may have been done all the same. */
  unknown = false;

  constructor(e: ErrorDetails) {
    super(describe(e), e.cause === undefined ? undefined : { cause: e.cause });
    this.name = new.target.name;
    this.op = e.op;
    this.status = e.status ?? 0;
    this.code = e.code ?? "";
    this.detail = e.detail ?? "";
    this.request = e.request;
    this.retryAfterMs = e.retryAfterMs ?? 0;
    this.operation = e.operation;
  }
}

function describe(e: ErrorDetails): string {
  let text = e.detail || (e.code ?? "").replaceAll("_", " ");
  if (e.cause !== undefined) text = [reason(e.cause), e.detail].filter(Boolean).join(": ");
  else if (!e.code) text = `the server answered with status ${e.status ?? 0}${e.detail ? `: ${e.detail}` : ""}`;
  if (e.code === "unauthorized") text += "; check the token";
  if (e.request && ["internal", "corrupt", "poisoned"].includes(e.code ?? ""))
    text += `; the server's log has more under request ${e.request}`;
  return `${e.op}: ${text}`;
}

function reason(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error ? `${cause.message}: ${cause.cause.message}` : cause.message;
}

/** There was no answer, or none of a Holdfast server: the error of the connection is its cause. */
export class ConnectionError extends HoldfastError {}
/** The signal of a call has ended it. `unknown` says whether the server may have done it; the reason is the cause. */
export class AbortedError extends HoldfastError {
  override name = "AbortError"; // as that of the platform
}
/** The request is malformed, or makes no sense. */
export class BadRequestError extends HoldfastError {}
/** The engine does not give that level. */
export class LevelError extends HoldfastError {}
/** There is no token, or one that is not known, revoked or expired. */
export class UnauthorizedError extends HoldfastError {}
/** The token's role or namespace does not allow it. */
export class ForbiddenError extends HoldfastError {}
/** There is no such thing. */
export class NotFoundError extends HoldfastError {}
/** There is no such namespace. */
export class NoNamespaceError extends NotFoundError {}
/** The address does not take such a request. */
export class MethodError extends HoldfastError {}
/** There is a namespace or task with that id already. */
export class ExistsError extends HoldfastError {}
/** The version of the stream, or the last position of the log, is another one. */
export class ConflictError extends HoldfastError {
  readonly expected: number | undefined;
  readonly actual: number | undefined;

  constructor(e: ErrorDetails) {
    super(e);
    this.expected = e.expected;
    this.actual = e.actual;
  }
}
/** The id is known with another content. */
export class IdTakenError extends HoldfastError {}
/** An import names a position that something else has. */
export class PositionTakenError extends HoldfastError {}
/** The stream was ended for ever. */
export class EndedError extends HoldfastError {}
/** The task's state does not allow it. */
export class StateError extends HoldfastError {}
/** It is in use. */
export class LockedError extends HoldfastError {}
/** Another one may have the task or message now: drop the work. */
export class LeaseLostError extends HoldfastError {}
/** The task was cancelled: drop the work. */
export class CancelledError extends HoldfastError {}
/** The position was removed. */
export class TruncatedError extends HoldfastError {}
/** A position that was never reached in this history: begin anew with what is there. */
export class AheadError extends HoldfastError {}
/** Split the request. */
export class TooLargeError extends HoldfastError {}
/** Bodies are not compressed. */
export class EncodingError extends HoldfastError {}
/** A fault of the server. */
export class InternalError extends HoldfastError {}
/** The server's data is damaged. */
export class CorruptError extends HoldfastError {}
/** Not with this engine. */
export class NotImplementedError extends HoldfastError {}
/** The server's disk is full; nothing was written. */
export class FullError extends HoldfastError {}
/** Writing has ended, and the outcome is unknown: restart the server, then repeat with the same ids. */
export class PoisonedError extends HoldfastError {}
/** The server cannot do it now. */
export class UnavailableError extends HoldfastError {}
/** There were too many requests. */
export class TooManyError extends UnavailableError {}
/** The server is stopping. */
export class StoppingError extends UnavailableError {}
/** Another process owns the data now, or may. */
export class FencedError extends UnavailableError {}

/** The class of each code. */
export const errorClasses: Readonly<Record<string, typeof HoldfastError>> = {
  bad_request: BadRequestError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  no_namespace: NoNamespaceError,
  method: MethodError,
  exists: ExistsError,
  conflict: ConflictError,
  id_taken: IdTakenError,
  position_taken: PositionTakenError,
  ended: EndedError,
  state: StateError,
  locked: LockedError,
  lease_lost: LeaseLostError,
  cancelled: CancelledError,
  truncated: TruncatedError,
  ahead: AheadError,
  too_large: TooLargeError,
  encoding: EncodingError,
  level: LevelError,
  too_many: TooManyError,
  internal: InternalError,
  corrupt: CorruptError,
  not_implemented: NotImplementedError,
  stopping: StoppingError,
  unavailable: UnavailableError,
  fenced: FencedError,
  poisoned: PoisonedError,
  full: FullError,
};

/** Makes the error of a code. */
export function errorOf(e: ErrorDetails & { code: string }): HoldfastError {
  return new (errorClasses[e.code] ?? HoldfastError)(e);
}

/** What something in front of the server means by a status. */
const codesOfStatus: Readonly<Record<number, string>> = { 401: "unauthorized", 413: "too_large", 429: "too_many" };

/** Makes the error of an answer that is none of success. */
export function answered(op: string, status: number, headers: Headers | undefined, text: string): HoldfastError {
  const request = headers?.get("X-Request-Id") ?? undefined;
  const base = { op, status, retryAfterMs: retryAfter(headers), ...(request && { request }) };
  let p: Partial<Problem> | undefined;
  try {
    p = JSON.parse(text) as Partial<Problem>;
  } catch {
    // It is not of the server.
  }
  if (typeof p?.code === "string" && p.code !== "") {
    const { code, detail = "", operation, expected, actual } = p;
    return errorOf({
      ...base,
      code,
      detail,
      ...(p.request && { request: p.request }),
      ...(operation !== undefined && { operation }),
      ...(expected !== undefined && { expected }),
      ...(actual !== undefined && { actual }),
    });
  }
  const code = codesOfStatus[status] ?? "";
  const detail = text.includes("<") ? "" : text.trim().replaceAll("\n", " ").slice(0, 200);
  return code ? errorOf({ ...base, code, detail }) : new ConnectionError({ ...base, detail });
}

/** The longest that the word of a server, or of what answers in its place, is believed. */
const LONGEST_WAIT_MS = 3_600_000;

/** Reads the header, in seconds or as a date, which is by the clock of whoever has answered. */
function retryAfter(headers: Headers | undefined): number {
  const text = headers?.get("Retry-After");
  if (!text) return 0;
  let ms = Number(text) * 1000;
  if (Number.isNaN(ms)) {
    const now = Date.parse(headers?.get("Date") ?? "");
    ms = Date.parse(text) - (Number.isNaN(now) ? Date.now() : now);
  }
  return Number.isFinite(ms) ? Math.min(Math.max(0, ms), LONGEST_WAIT_MS) : 0;
}
