import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import { encode, fromBase64, newId, toBase64 } from "../src/bytes.js";
import { answered } from "../src/errors.js";
import { silence } from "../src/follow.js";
import {
  AbortedError, BadRequestError, Client, ConnectionError, HoldfastError, NoNamespaceError, StillRunningError, TooLargeError,
  UnavailableError, Worker, errorClasses, retryIn,
} from "../src/index.js";
import { Pauses } from "../src/transport.js";

Pauses.first = Pauses.most = 1;
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  silence.ms = 45_000;
});

/** A client of a function that answers. */
function client(answer: (url: URL, init: RequestInit) => Response | Promise<Response>, retryMs?: number): Client {
  const f = (input: unknown, init: unknown) =>
    Promise.resolve().then(() => answer(new URL(input as string), init as RequestInit));
  return new Client("http://localhost", { token: "secret", fetch: f as typeof fetch, retryMs });
}

async function failure(what: Promise<unknown>): Promise<HoldfastError> {
  const e: unknown = await what.then(() => undefined, (e: unknown) => e);
  if (!(e instanceof HoldfastError)) throw new Error(`not a HoldfastError: ${String(e)}`);
  return e;
}

const bytes = (text: string) => new TextEncoder().encode(text);

/** An answer of these bytes, in pieces, which then breaks off. */
function broken(whole: Uint8Array, piece: number): Response {
  let at = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(c) {
      if (at < whole.length) c.enqueue(whole.slice(at, (at += piece)));
      else if (whole.length % 2) c.error(new TypeError("terminated"));
      else c.close(); // the end of an answer without chunks looks like this
    },
  });
  return new Response(body);
}

// Wherever a connection is cut off, and however its bytes come, each message comes once, in order.
test("followers cut at each byte", async () => {
  const text = (from: number) => {
    let made = ": hello\n\nretry: 1\n\n";
    for (let n = from; n <= 4; n++)
      made += `id: ${n + 1}\r\nevent:message\ndata: {"global":${n},\ndata:"stream":"ü🦊-${n}"}\n\n: all is well\n\n`;
    return bytes(made);
  };
  for (let at = 0; at < 330; at += 1) {
    let connections = 0;
    const c = client((url) => {
      const whole = text(Math.max(1, Number(url.searchParams.get("from"))));
      const most = connections++ < 4 ? at + connections : whole.length;
      return broken(whole.slice(0, most), 1 + (at % 7));
    });
    const got: number[] = [];
    for await (const m of c.namespace("n").follow({ from: 2 })) {
      expect(m.stream).toBe(`ü🦊-${m.global}`);
      got.push(m.global);
      if (got.length === 3) break;
    }
    expect(got, `cut at ${at}`).toEqual([2, 3, 4]);
  }
});

test("a server that is silent is given up", async () => {
  silence.ms = 20;
  let connections = 0;
  const c = client((_, init) => {
    const last = connections++ > 1;
    const body = new ReadableStream<Uint8Array>({
      start(s) {
        s.enqueue(bytes(last ? 'id: 2\nevent: message\ndata: {"global":1}\n\n' : ":\n\n"));
        init.signal!.addEventListener("abort", () => s.error(init.signal!.reason));
      },
    });
    return new Response(body);
  });
  for await (const m of c.namespace("n").follow()) {
    expect(m.global).toBe(1);
    break;
  }
  expect(connections).toBeGreaterThanOrEqual(3);
});

test("a follower ends with what does not pass, and with its signal", async () => {
  const problem = 'event: problem\ndata: {"status":404,"code":"no_namespace"}\n\n';
  let connections = 0;
  const ended = client(() => (connections++, new Response(problem)));
  const all = async (c: Client, signal?: AbortSignal) => {
    for await (const m of c.namespace("n").follow({}, { signal })) throw new Error(m.id);
  };
  expect(await failure(all(ended))).toBeInstanceOf(NoNamespaceError);
  expect(connections).toBe(1);

  const stop = new AbortController();
  const waiting = client((_, init) => {
    const body = new ReadableStream<Uint8Array>({
      start: (s) => init.signal!.addEventListener("abort", () => s.error(init.signal!.reason)),
    });
    setTimeout(() => stop.abort(), 10);
    return new Response(body);
  });
  const e = await failure(all(waiting, stop.signal));
  expect(e).toBeInstanceOf(AbortedError);
  expect(e.name).toBe("AbortError");
});

test("what is tried again", async () => {
  const problem = (status: number, code: string) => () =>
    new Response(code && JSON.stringify({ status, code, detail: "as it is" }), { status });
  const lost = () => {
    throw new TypeError("fetch failed", { cause: { code: "ECONNRESET", syscall: "read" } });
  };
  const refused = () => {
    throw new TypeError("fetch failed", { cause: { code: "ECONNREFUSED", syscall: "connect" } });
  };
  const untrusted = () => {
    throw new TypeError("fetch failed", { cause: { code: "SELF_SIGNED_CERT_IN_CHAIN" } });
  };
  const page = () => new Response("<html>");
  type Case = [string, () => Response, "write" | "delete" | "read", number, typeof HoldfastError, boolean];
  const cases: Case[] = [ // tries: 0 for several, until the time is up
    ["never there", refused, "delete", 0, ConnectionError, false],
    ["lost, not safe", lost, "delete", 1, ConnectionError, true],
    ["lost, safe", lost, "write", 0, ConnectionError, true],
    ["lost, a read", lost, "read", 0, ConnectionError, false],
    ["stopping", problem(503, "stopping"), "delete", 0, UnavailableError, false],
    ["too many, of a proxy", problem(429, ""), "delete", 0, UnavailableError, false],
    ["poisoned", problem(503, "poisoned"), "delete", 1, errorClasses["poisoned"]!, true],
    ["poisoned, safe", problem(503, "poisoned"), "write", 0, errorClasses["poisoned"]!, true],
    ["fenced, a read", problem(503, "fenced"), "read", 0, UnavailableError, false],
    ["a proxy's 502", problem(502, ""), "delete", 1, ConnectionError, true],
    ["a proxy's 413", problem(413, ""), "write", 1, TooLargeError, false],
    ["conflict", problem(409, "conflict"), "write", 1, errorClasses["conflict"]!, false],
    ["internal", problem(500, "internal"), "write", 1, errorClasses["internal"]!, false],
    ["untrusted", untrusted, "read", 1, ConnectionError, false],
    ["not JSON", page, "read", 1, HoldfastError, false],
    ["not JSON, a write", page, "write", 1, HoldfastError, true],
    ["cut, without a length", () => new Response('{"removed":'), "delete", 1, HoldfastError, true],
    ["nothing", () => new Response(""), "write", 1, HoldfastError, true],
    ["a code that is new", problem(418, "teapot"), "write", 1, HoldfastError, false],
  ];
  let clock = 0; // each look at it takes 10 ms
  vi.spyOn(performance, "now").mockImplementation(() => (clock += 10));
  for (const [name, answer, what, tries, kind, unknown] of cases) {
    let made = 0;
    const n = client(() => (made++, answer()), 40).namespace("n");
    const calls = {
      write: () => n.write("a-1", [{ type: "T", data: {} }]), delete: () => n.delete("a-1"), read: () => n.info(),
    };
    const e = await failure(calls[what]());
    expect(e, name).toBeInstanceOf(kind);
    expect(e.unknown, name).toBe(unknown);
    if (tries) expect(made, name).toBe(tries);
    else expect(made, name).toBeGreaterThan(2);
  }
});

test("an id is made before the first try, and stays", async () => {
  const sent: string[] = [];
  const c = client((_, init) => {
    sent.push(init.body as string);
    if (sent.length < 3) throw new TypeError("fetch failed");
    return new Response(JSON.stringify({ position: 0, global: 1, repeated: true }));
  });
  const done = await c.namespace("n").write("a-1", [{ type: "T", data: {} }]);
  expect(new Set(sent).size).toBe(1);
  expect(sent[0]).toMatch(/"id":"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"/);
  expect(done.repeated).toBe(false); // the id was new to the caller
});

test("ids have the time", () => {
  const before = Date.now();
  const ids = Array.from({ length: 1000 }, newId);
  for (const id of ids) {
    const ms = parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
    expect(ms).toBeGreaterThanOrEqual(before);
    expect(ms).toBeLessThanOrEqual(Date.now());
  }
  expect(new Set(ids).size).toBe(1000);
  vi.useFakeTimers({ now: 0 }); // a clock that is wrong makes ids all the same
  expect(newId()).toMatch(/^00000000-0000-7/);
});

test("bytes", () => {
  for (const n of [0, 1, 2, 3, 32768, 100_001]) {
    const b = Uint8Array.from({ length: n }, (_, i) => (i * 7) % 256);
    expect(fromBase64(toBase64(b))).toEqual(b);
  }
  expect(encode({ a: Buffer.from([255]), b: new Uint8Array([0]) })).toBe('{"a":"/w==","b":"AA=="}');
});

test("each code of the server has a class", () => {
  const source = readFileSync(new URL("../../../api/api.go", import.meta.url), "utf8");
  const codes = [...source.matchAll(/^\tCode\w+ += "(\w+)"/gm)].map((m) => m[1]);
  expect(codes.length).toBeGreaterThan(25);
  expect(Object.keys(errorClasses).sort()).toEqual(codes.sort());
});

test("addresses and options that make no sense", () => {
  for (const a of ["", "localhost:8080", "ftp://localhost", "http://localhost?y=z", "http://u:p@localhost", "http://l#y"])
    expect(() => new Client(a), a).toThrow(BadRequestError);
  expect(() => new Client("http://localhost", { token: "a b" })).toThrow(BadRequestError);
  expect(() => new Worker(new Client("http://localhost").namespace("n").tasks, {})).toThrow(BadRequestError);
});

test("texts that are not Unicode are not sent", async () => {
  let made = 0;
  const n = client(() => (made++, new Response("{}"))).namespace("n");
  const all = async () => {
    for await (const m of n.follow({ stream: "\ud800" })) throw new Error(m.id);
  };
  for (const call of [() => n.version("\ud800"), () => n.last("\ud800"), all])
    expect(await failure(call())).toBeInstanceOf(BadRequestError);
  expect(made).toBe(0);
});

test("unknown levels are not sent", async () => {
  let made = 0;
  const n = client(() => (made++, new Response("{}"))).namespace("n");
  const level = "Power" as "power"; // as programs without types can write
  expect(await failure(n.write("a-1", [{ type: "T", data: {} }], { level }))).toBeInstanceOf(BadRequestError);
  expect(made).toBe(0);
});

test("a redirect is not followed, and the token goes nowhere else", async () => {
  let second = 0;
  const other = createServer((_, w) => (second++, w.end("{}"))).listen(0);
  const to = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`;
  const first = createServer((_, w) => w.writeHead(307, { Location: to }).end()).listen(0);
  try {
    const c = new Client(`http://127.0.0.1:${(first.address() as AddressInfo).port}`, { token: "secret" });
    expect((await failure(c.server())).status).toBe(307);
    expect(second).toBe(0);
  } finally {
    first.close();
    other.close();
  }
});

test("a function that does not return does not keep the worker from stopping", async () => {
  const stop = new AbortController();
  let claims = 0;
  const lease = { task: { id: "t", kind: "k", attempt: 1, state: "running", created: "" }, token: 1, until: "" };
  const c = client((url, init) => {
    if (url.pathname.endsWith("/claim") && claims++ === 0) return new Response(JSON.stringify({ leases: [lease] }));
    return new Promise((_, reject) => init.signal!.addEventListener("abort", () => reject(new Error("aborted"))));
  });
  const worker = new Worker(
    c.namespace("n").tasks,
    { k: () => (setTimeout(() => stop.abort(), 5), new Promise(() => {})) },
    { graceMs: 20, log: () => {} },
  );
  await expect(worker.run(stop.signal)).rejects.toThrow(StillRunningError);
});

test("a worker that is always busy leaves nothing with its signal", async () => {
  const stop = new AbortController();
  const listening = { now: 0, most: 0 };
  const add = stop.signal.addEventListener.bind(stop.signal);
  const remove = stop.signal.removeEventListener.bind(stop.signal);
  stop.signal.addEventListener = (...a: [never, never]) => {
    listening.most = Math.max(listening.most, ++listening.now);
    add(...a);
  };
  stop.signal.removeEventListener = (...a: [never, never]) => {
    listening.now--;
    remove(...a);
  };
  let claimed = 0;
  const c = client((url) => {
    if (!url.pathname.endsWith("/claim")) return new Response(JSON.stringify({ results: [{}] }));
    const task = { id: `t${++claimed}`, kind: "k", attempt: 1, state: "running", created: "" };
    return new Response(JSON.stringify({ leases: [{ task, token: 1, until: "" }] }));
  });
  const handlers = { k: () => claimed === 300 && stop.abort() };
  await new Worker(c.namespace("n").tasks, handlers, { concurrency: 1, log: () => {} }).run(stop.signal);
  expect(claimed).toBe(300);
  expect(listening.most).toBeLessThan(10);
});

test("a failure is told whatever its text is", async () => {
  const stop = new AbortController();
  const lease = { task: { id: "t", kind: "k", attempt: 1, state: "running", created: "" }, token: 1, until: "" };
  const told: { message: string; stack: string }[] = [];
  let claims = 0;
  const c = client((url, init) => {
    if (url.pathname.endsWith("/claim")) return new Response(JSON.stringify({ leases: claims++ === 0 ? [lease] : [] }));
    told.push((JSON.parse(init.body as string) as { failure: { message: string; stack: string } }).failure);
    stop.abort();
    return new Response(null, { status: 204 });
  });
  const k = () => {
    throw new Error("cut in the middle of 🦊".slice(0, -1) + ".".repeat(100_000)); // half of a character
  };
  await new Worker(c.namespace("n").tasks, { k }, { log: () => {} }).run(stop.signal);
  expect(told.length).toBe(1);
  expect(told[0]!.message.slice(0, 24)).toBe("cut in the middle of \ufffd..");
  for (const text of Object.values(told[0]!)) {
    expect(text.isWellFormed()).toBe(true);
    expect(text.length).toBeLessThan(70_000);
  }
});

test("times need not be whole, nor a lease divisible by three", async () => {
  const stop = new AbortController();
  const asked: Record<string, unknown[]> = {};
  const lease = { task: { id: "t", kind: "k", attempt: 1, state: "running", created: "" }, token: 1, until: "" };
  const c = client((url, init) => {
    const what = url.pathname.split("/").pop()!;
    (asked[what] ??= []).push(JSON.parse(init.body as string));
    if (what === "claim" && asked[what].length === 1) return new Response(JSON.stringify({ leases: [lease] }));
    if (what === "heartbeat") return new Response(JSON.stringify({ results: [{ id: "t" }] }));
    if (what === "fail") return (stop.abort(), new Response(null, { status: 204 }));
    return new Promise((_, reject) => init.signal!.addEventListener("abort", () => reject(new Error("aborted"))));
  });
  const k = async () => {
    for (let i = 0; i < 500 && !asked.heartbeat; i++) await new Promise((r) => setTimeout(r, 5));
    throw retryIn(1.5, new Error("later"));
  };
  await new Worker(c.namespace("n").tasks, { k }, { leaseMs: 100.2, graceMs: Infinity, log: () => {} }).run(stop.signal);
  expect(asked.claim![0]).toMatchObject({ lease_ms: 100 });
  expect(asked.fail![0]).toMatchObject({ retry_in_ms: 2 });

  for (const o of [{ leaseMs: Infinity }, { leaseMs: NaN }, { graceMs: NaN }])
    expect(() => new Worker(c.namespace("n").tasks, { k }, o)).toThrow(BadRequestError);
});

test("a time that is too long for a timer is a long one", async () => {
  const slow = (async (_, init) => {
    await new Promise((r) => setTimeout(r, 50));
    init!.signal!.throwIfAborted();
    return new Response("[]");
  }) as typeof fetch;
  for (const timeoutMs of [Infinity, 2 ** 40])
    expect(await new Client("http://localhost", { timeoutMs, retryMs: -1, fetch: slow }).tokens()).toEqual([]);
  expect(() => new Client("http://localhost", { timeoutMs: NaN })).toThrow(BadRequestError);
});

test("a date to come again is by the clock of whoever has answered, and nobody is believed for ever", () => {
  const ahead = Date.now() + 365 * 86_400_000;
  const at = (ms: number) => new Date(ahead + ms).toUTCString();
  for (const [after, date, want] of [
    [at(7000), at(0), 7000], [at(-1000), at(0), 0], [at(0), "", 3_600_000], ["1.5", at(0), 1500], ["1e9", "", 3_600_000],
    ["-1", "", 0], ["soon", at(0), 0],
  ] as const)
    expect(answered("op", 503, new Headers({ "Retry-After": after, Date: date }), "").retryAfterMs).toBe(want);
});
