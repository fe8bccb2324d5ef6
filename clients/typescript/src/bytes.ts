import type { Event, Lease, Task } from "./types.js";

/** Encodes a value as JSON, as payload of a task or data of an event. */
export function json(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

/** Reads what {@link json} has encoded; undefined if there is nothing. */
export function fromJSON<T = unknown>(bytes: Uint8Array | null | undefined): T | undefined {
  return bytes?.length ? (JSON.parse(new TextDecoder().decode(bytes)) as T) : undefined;
}

/** How many bytes become a text at once: a function has not any number of arguments. */
const chunk = 0x8000;

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += chunk) text += String.fromCharCode(...bytes.subarray(i, i + chunk));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Encodes a body. Bytes are base64 in it. */
export function encode(body: unknown): string {
  return JSON.stringify(body, function (this: Record<string, unknown>, key, value: unknown) {
    const own = this[key]; // before toJSON, which a Buffer of Node has
    return own instanceof Uint8Array ? toBase64(own) : value;
  });
}

/** What is read has texts where its type has bytes, until this has changed them, in place. */
function decode<K extends string>(from: { [_ in K]?: unknown }, ...fields: K[]): void {
  for (const f of fields) if (typeof from[f] === "string") from[f] = fromBase64(from[f]);
}

export function event(e: Event): Event {
  decode(e, "data", "metadata");
  return e;
}

export function task(t: Task): Task {
  decode(t, "payload", "output");
  return t;
}

export function lease(l: Lease): Lease {
  task(l.task);
  return l;
}

/** Makes a UUID of version 7 (RFC 9562): the milliseconds of now, and 74 random bits. */
export function newId(): string {
  const b = crypto.getRandomValues(new Uint8Array(16));
  const now = Date.now();
  new DataView(b.buffer).setUint16(0, Math.floor(now / 2 ** 32));
  new DataView(b.buffer).setUint32(2, now % 2 ** 32);
  b[6] = (b[6]! & 0x0f) | 0x70;
  b[8] = (b[8]! & 0x3f) | 0x80;
  const hex = Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
