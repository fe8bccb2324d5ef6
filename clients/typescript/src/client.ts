import * as bytes from "./bytes.js";
import { AbortedError, BadRequestError, ExistsError, HoldfastError, LeaseLostError, NotFoundError } from "./errors.js";
import { Follower } from "./follow.js";
import { Pauses, Transport, path, sleep } from "./transport.js";
import type { CallOptions, Options, Query, Request } from "./transport.js";
import type * as t from "./types.js";

/** How many things a request of a list asks for. */
const pageSize = 500;
/** How long a claim lets the server wait before it asks again, in milliseconds. */
const maxWaitMs = 30_000;

/** Which messages are meant: those of a stream, of a category, or of the namespace. */
export interface MessageQuery {
  stream?: string;
  category?: string;
  /** Of these types only. */
  types?: readonly string[];
  /** Of streams only whose names begin with this. */
  prefix?: string;
  /** Only those whose metadata name a stream of this category as correlationStreamName. */
  correlation?: string;
  /** The share of one member of a consumer group, from 0. */
  group?: { member: number; size: number };
  /** The first position: in the stream for one, else the global one. */
  from?: number;
  /** What {@link Follower.history} was when the position was kept: another one now is an AheadError. */
  history?: string;
}

/** A Holdfast server. It has no state but the connections of fetch, and needs no closing. */
export class Client {
  readonly #t: Transport;

  /**
   * Makes a client of the server at an address such as "http://127.0.0.1:8080". It does not connect. BadRequestError:
   * the address or an option makes no sense.
   */
  constructor(address: string, options: Options = {}) {
    this.#t = new Transport(address, options);
  }

  /** A namespace of the server. That there is none with that id, the first call tells. */
  namespace(id: string): Namespace {
    return new Namespace(this.#t, id);
  }

  /**
   * Does operations in their order, in one namespace or in several, as one commit: all or none. Messages, events and
   * tasks without ids get some, so that it can be repeated. If one is refused, the error is that of its single call,
   * with its number in {@link HoldfastError.operation}.
   */
  async update(operations: readonly t.Operation[], options?: CallOptions): Promise<t.OperationResult[]> {
    if (operations.length === 0) return [];
    const known = operations.map((o) => hasIds(o.write?.messages ?? o.append?.events ?? []));
    const body = { operations: operations.map(operationWithIds) };
    const r: Request = { op: "transaction", method: "POST", path: "/v1/transactions", body, safe: true, options };
    const done = await this.#t.call<{ results: t.OperationResult[] }>(r);
    count(r, done.results, operations.length);
    for (const [i, o] of done.results.entries()) repeated(o.written ?? o.appended, known[i]!, r);
    return done.results;
  }

  /** Describes the server. The token is one that is good for all namespaces. */
  server(options?: CallOptions): Promise<t.Server> {
    return this.#t.call({ op: "server", method: "GET", path: "/v1/server", safe: true, options });
  }

  /** Describes all namespaces, in the order of their ids. */
  namespaces(options?: CallOptions): Promise<t.Namespace[]> {
    const r: Request = { op: "namespaces", method: "GET", path: "/v1/namespaces", safe: true, options };
    return pages<t.Namespace>(this.#t, r, "", 0, (n) => n.id);
  }

  /** Makes a namespace; its token is in the result, and told only here. If the answer is lost, it is not tried again. */
  createNamespace(namespace: t.NewNamespace, options?: CallOptions): Promise<t.Namespace> {
    const body = namespace;
    return this.#t.call({ op: "create namespace", method: "POST", path: "/v1/namespaces", body, options });
  }

  /** Deletes a namespace and all that is in it, and returns how many messages there were. */
  async deleteNamespace(id: string, options?: CallOptions): Promise<number> {
    const r: Request = { op: "delete namespace", method: "DELETE", path: path`/v1/namespaces/${id}`, safe: true, options };
    return (await this.#t.call<{ removed: number }>(r)).removed;
  }

  /** Describes the tokens of a namespace, or all that may be seen. */
  tokens(namespace?: string, options?: CallOptions): Promise<t.Token[]> {
    const query = { namespace };
    return this.#t.call({ op: "tokens", method: "GET", path: "/v1/tokens", query, safe: true, options });
  }

  /** Makes a token; its secret is in the result, and told only here. If the answer is lost, it is not tried again. */
  createToken(token: t.NewToken, options?: CallOptions): Promise<t.Token> {
    return this.#t.call({ op: "create token", method: "POST", path: "/v1/tokens", body: token, options });
  }

  /** Removes a token. */
  revokeToken(id: string, options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "revoke token", method: "DELETE", path: path`/v1/tokens/${id}`, safe: true, options });
  }
}

/** The messages of a namespace, and by `log`, `subscription` and `tasks` all else that is in it. */
export class Namespace {
  readonly id: string;
  readonly tasks: Tasks;
  readonly #t: Transport;
  readonly #path: string;

  constructor(transport: Transport, id: string) {
    this.id = id;
    this.#t = transport;
    this.#path = path`/v1/namespaces/${id}`;
    this.tasks = new Tasks(transport, this.#path);
  }

  /** The log of that name. The server makes it when something is appended. */
  log(name: string): Log {
    return new Log(this.#t, this.#path + path`/logs/${name}`);
  }

  /** The subscription of that name, which is there; {@link subscribe} makes one. */
  subscription(name: string): Subscription {
    return new Subscription(this.#t, this.#path + path`/subscriptions/${name}`);
  }

  /** Sets what a subscription delivers and how, and makes it if it is not there. */
  async subscribe(name: string, what: t.Subscription, options?: CallOptions): Promise<Subscription> {
    const at = this.#path + path`/subscriptions/${name}`;
    await this.#t.call({ op: "subscribe", method: "PUT", path: at, body: what, safe: true, options });
    return this.subscription(name);
  }

  /** Describes the namespace. */
  info(options?: CallOptions): Promise<t.Namespace> {
    return this.#t.call({ op: "namespace info", method: "GET", path: this.#path, safe: true, options });
  }

  /**
   * Adds messages at the end of a stream, all or none. With `expected` only if the stream has that version, -1 for one
   * that never had a message; else it is a ConflictError. Messages without an id get one, so that it can be repeated.
   */
  async write(
    stream: string,
    messages: readonly t.NewMessage[],
    options: CallOptions & { expected?: number } = {},
  ): Promise<t.Written> {
    const { expected } = options;
    const body = { stream, messages: messages.map(withId), ...(expected !== undefined && { expected }) };
    const r: Request = { op: "message write", method: "POST", path: `${this.#path}/messages`, body, safe: true, options };
    return repeated(await this.#t.call<t.Written>(r), hasIds(messages), r);
  }

  /** Yields messages up to where the namespace ended when the loop began. */
  async *read(query: MessageQuery & { limit?: number } = {}, options?: CallOptions): AsyncGenerator<t.Message> {
    if ((query.limit ?? 0) < 0) throw bad("message read", "a limit below 0");
    // Where it ends is asked first: a loop beside a busy writer comes to its end.
    const version = query.stream === undefined ? (await this.info(options)).last : await this.version(query.stream, options);
    const end = version ?? -1;
    let next = Math.max(query.from ?? 0, 0);
    let history = query.history;
    let left = query.limit ?? 0;
    for (let first = true; first || next <= end; first = false) {
      const limit = query.limit ? Math.min(pageSize, left) : pageSize;
      const page = await this.#t.call<{ messages: t.Message[]; next: number; history: string }>({
        op: "message read",
        method: "GET",
        path: `${this.#path}/messages`,
        query: { ...values(query), from: next, limit, history },
        safe: true,
        options,
      });
      for (const m of page.messages) {
        if (place(query, m) > end) return;
        yield m;
        next = place(query, m) + 1;
      }
      // The next page names the history: if the namespace is made anew in between, its positions are not taken for the
      // same.
      history = page.history;
      left -= page.messages.length;
      if ((query.limit && left <= 0) || (page.messages.length === 0 && page.next <= next)) return;
      next = Math.max(next, page.next); // types that are left out lie between
    }
  }

  /** Yields messages, and then each new one as soon as it has reached its level. */
  follow(query: MessageQuery = {}, options?: CallOptions): Follower<t.Message> {
    return new Follower<t.Message>(
      this.#t,
      {
        op: "message follow",
        path: `${this.#path}/messages/follow`,
        query: values(query),
        position: Math.max(query.from ?? 0, 0),
        ...(query.history !== undefined && { history: query.history }),
        ...(options && { options }),
      },
      (data) => {
        const m = JSON.parse(data) as t.Message;
        return [m, place(query, m)];
      },
    );
  }

  /** What positions mean in the namespace now. */
  async history(options?: CallOptions): Promise<string> {
    const r: Request = { op: "message history", method: "GET", path: `${this.#path}/messages`, query: { limit: 1 }, options };
    return (await this.#t.call<{ history: string }>({ ...r, safe: true })).history;
  }

  /** The last message of a stream, or the last one of a type. NotFoundError: there is none. */
  last(stream: string, type?: string, options?: CallOptions): Promise<t.Message> {
    const query = { stream, type };
    return this.#t.call({ op: "message last", method: "GET", path: `${this.#path}/messages/last`, query, safe: true, options });
  }

  /** The position of a stream's last message that readers see; undefined if there is no such stream. */
  async version(stream: string, options?: CallOptions): Promise<number | undefined> {
    try {
      const r: Request = { op: "stream version", method: "GET", path: this.#stream(stream), safe: true, options };
      return (await this.#t.call<t.Stream>(r)).version;
    } catch (e) {
      if (e instanceof HoldfastError && e.code === "not_found") return undefined;
      throw e;
    }
  }

  /** Describes streams that have messages, in the order of their names: up to a limit, 0 for all. */
  streams(which: { prefix?: string; after?: string; limit?: number } = {}, options?: CallOptions): Promise<t.Stream[]> {
    const query = { prefix: which.prefix };
    const r: Request = { op: "streams", method: "GET", path: `${this.#path}/streams`, query, safe: true, options };
    return pages<t.Stream>(this.#t, r, which.after ?? "", which.limit ?? 0, (s) => s.stream);
  }

  categories(options?: CallOptions): Promise<t.Category[]> {
    return this.#t.call({ op: "categories", method: "GET", path: `${this.#path}/categories`, safe: true, options });
  }

  /** Removes all messages of a stream, and returns how many there were. If the answer is lost, it is not tried again. */
  delete(stream: string, options?: CallOptions): Promise<number> {
    return this.#remove("stream delete", stream, {}, false, options);
  }

  /** Removes the messages of a stream below a position, and returns how many this try has removed. */
  truncate(stream: string, before: number, options?: CallOptions): Promise<number> {
    return this.#remove("stream truncate", stream, { before }, true, options);
  }

  /** Ends a stream: it can never be written to again. Its messages are removed. */
  tombstone(stream: string, options?: CallOptions): Promise<number> {
    return this.#remove("stream tombstone", stream, { tombstone: true }, true, options);
  }

  async #remove(op: string, stream: string, query: Query, safe: boolean, options?: CallOptions): Promise<number> {
    const r: Request = { op, method: "DELETE", path: this.#stream(stream), query, safe, options };
    return (await this.#t.call<{ removed: number }>(r)).removed;
  }

  retention(stream: string, options?: CallOptions): Promise<t.Retention> {
    const at = `${this.#stream(stream)}/retention`;
    return this.#t.call({ op: "retention", method: "GET", path: at, safe: true, options });
  }

  setRetention(stream: string, retention: t.Retention, options?: CallOptions): Promise<void> {
    const at = `${this.#stream(stream)}/retention`;
    return this.#t.call({ op: "set retention", method: "PUT", path: at, body: retention, safe: true, options });
  }

  /** Stores the last position that a consumer has handled, 0 for none. */
  savePosition(consumer: string, position: number, options?: CallOptions): Promise<void> {
    const at = this.#path + path`/positions/${consumer}`;
    return this.#t.call({ op: "save position", method: "PUT", path: at, body: { position }, safe: true, options });
  }

  /** The position that was saved last. NotFoundError: there is none. */
  async loadPosition(consumer: string, options?: CallOptions): Promise<number> {
    const at = this.#path + path`/positions/${consumer}`;
    const r: Request = { op: "load position", method: "GET", path: at, safe: true, options };
    return (await this.#t.call<{ position: number }>(r)).position;
  }

  deletePosition(consumer: string, options?: CallOptions): Promise<void> {
    const at = this.#path + path`/positions/${consumer}`;
    return this.#t.call({ op: "delete position", method: "DELETE", path: at, safe: true, options });
  }

  subscriptions(options?: CallOptions): Promise<t.Subscription[]> {
    return this.#t.call({ op: "subscriptions", method: "GET", path: `${this.#path}/subscriptions`, safe: true, options });
  }

  logs(options?: CallOptions): Promise<t.Log[]> {
    return this.#t.call({ op: "logs", method: "GET", path: `${this.#path}/logs`, safe: true, options });
  }

  #stream(name: string): string {
    return this.#path + path`/streams/${name}`;
  }
}

/** An ordered log of events. */
export class Log {
  readonly #t: Transport;
  readonly #path: string;

  constructor(transport: Transport, at: string) {
    this.#t = transport;
    this.#path = at;
  }

  /** Describes the log. NotFoundError: there is none of that name. */
  info(options?: CallOptions): Promise<t.Log> {
    return this.#t.call({ op: "log info", method: "GET", path: this.#path, safe: true, options });
  }

  /**
   * Adds events at the end of the log, all or none. With `after` only if that is the last position; else it is a
   * ConflictError. If none has an id, all get one, so that it can be repeated.
   */
  async append(events: readonly t.NewEvent[], options: CallOptions & { after?: number } = {}): Promise<t.Appended> {
    const { after } = options;
    const body = { events: eventsWithIds(events), ...(after !== undefined && { after }) };
    const r: Request = { op: "event append", method: "POST", path: `${this.#path}/events`, body, safe: true, options };
    return repeated(await this.#t.call<t.Appended>(r), hasIds(events), r);
  }

  /** Yields events up to where the log ended when the loop began; none if there is no such log. */
  async *read(
    which: { from?: number; limit?: number; history?: string } = {},
    options?: CallOptions,
  ): AsyncGenerator<t.Event> {
    let end: number;
    try {
      end = (await this.info(options)).last;
    } catch (e) {
      if (e instanceof HoldfastError && e.code === "not_found") return;
      throw e;
    }
    let next = which.from ?? 0;
    let left = which.limit ?? 0;
    let history = which.history;
    for (let first = true; first || next <= end; first = false) {
      const limit = which.limit ? Math.min(pageSize, left) : pageSize;
      const page = await this.#t.call<{ events: t.Event[]; next: number; history: string }>({
        op: "event read",
        method: "GET",
        path: `${this.#path}/events`,
        query: { from: next, limit, history },
        safe: true,
        options,
      });
      for (const e of page.events) {
        if (e.position > end) return;
        yield bytes.event(e);
        next = e.position + 1;
      }
      history = page.history;
      left -= page.events.length;
      if ((which.limit && left <= 0) || (page.events.length === 0 && page.next <= next)) return;
      next = Math.max(next, page.next);
    }
  }

  /** Yields events, and then each new one. TruncatedError: truncation has overtaken it. */
  follow(which: { from?: number; history?: string } = {}, options?: CallOptions): Follower<t.Event> {
    return new Follower<t.Event>(
      this.#t,
      {
        op: "event follow",
        path: `${this.#path}/events/follow`,
        query: {},
        position: Math.max(which.from ?? 0, 0),
        ...(which.history !== undefined && { history: which.history }),
        ...(options && { options }),
      },
      (data) => {
        const e = bytes.event(JSON.parse(data) as t.Event);
        return [e, e.position];
      },
    );
  }

  /** What positions mean in the log now. */
  async history(options?: CallOptions): Promise<string> {
    const r: Request = { op: "event history", method: "GET", path: `${this.#path}/events`, query: { limit: 1 }, options };
    return (await this.#t.call<{ history: string }>({ ...r, safe: true })).history;
  }

  /** Removes all events below a position, and returns by how many the log has become shorter. */
  async truncate(before: number, options?: CallOptions): Promise<number> {
    const at = `${this.#path}/truncate`;
    const r: Request = { op: "event truncate", method: "POST", path: at, body: { before }, safe: true, options };
    return (await this.#t.call<{ removed: number }>(r)).removed;
  }

  /** Removes the log with all that is in it. If the answer is lost, it is not tried again. */
  delete(options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "log delete", method: "DELETE", path: this.#path, options });
  }

  /** Stores the last position that a subscription has handled, 0 for none. */
  saveOffset(name: string, position: number, options?: CallOptions): Promise<void> {
    const at = this.#path + path`/offsets/${name}`;
    return this.#t.call({ op: "save offset", method: "PUT", path: at, body: { position }, safe: true, options });
  }

  /** What was saved last. NotFoundError: there is nothing. */
  async loadOffset(name: string, options?: CallOptions): Promise<number> {
    const r: Request = { op: "load offset", method: "GET", path: this.#path + path`/offsets/${name}`, safe: true, options };
    return (await this.#t.call<{ position: number }>(r)).position;
  }

  deleteOffset(name: string, options?: CallOptions): Promise<void> {
    const at = this.#path + path`/offsets/${name}`;
    return this.#t.call({ op: "delete offset", method: "DELETE", path: at, safe: true, options });
  }
}

/** What names a delivery. */
export type DeliveryRef = Pick<t.Delivery, "global" | "token">;

/** Delivers each message to one of those who claim, and again until one has acknowledged it. */
export class Subscription {
  readonly #t: Transport;
  readonly #path: string;

  constructor(transport: Transport, at: string) {
    this.#t = transport;
    this.#path = at;
  }

  info(options?: CallOptions): Promise<t.Subscription> {
    return this.#t.call({ op: "subscription", method: "GET", path: this.#path, safe: true, options });
  }

  /** Removes what is kept of the subscription, and its parked messages. */
  delete(options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "delete subscription", method: "DELETE", path: this.#path, safe: true, options });
  }

  /**
   * Waits until there is a message to be delivered, also for a server that cannot be reached, and delivers up to `max`.
   * They are the caller's until their leases end.
   */
  async claim(max = 1, options?: CallOptions): Promise<t.Delivery[]> {
    const op = "subscription claim";
    const ask = (waitMs: number): Request => {
      return { op, method: "POST", path: `${this.#path}/claim`, body: { max, wait_ms: waitMs }, waitMs, safe: true, options };
    };
    return waitFor(this.#t, ask, async (r) => (await this.#t.call<{ deliveries: t.Delivery[] }>(r)).deliveries);
  }

  /**
   * Says that messages are done with. LeaseLostError: a lease has run out; if it is `unknown`, a try whose answer was
   * lost may have acknowledged them, and if not, they come again. So it is with the calls below.
   */
  ack(deliveries: readonly DeliveryRef[], options?: CallOptions): Promise<void> {
    return this.#settle("ack", deliveries, undefined, options);
  }

  /** Begins the leases anew. */
  extend(deliveries: readonly DeliveryRef[], options?: CallOptions): Promise<void> {
    return this.#settle("extend", deliveries, undefined, options);
  }

  /** Gives messages back: they come again after a while, or are parked if their attempts are used up. */
  fail(deliveries: readonly DeliveryRef[], reason: string, options?: CallOptions): Promise<void> {
    return this.#settle("fail", deliveries, reason, options);
  }

  /** Gives messages back that no consumer has seen: they come again at once, and the attempt does not count. */
  return(deliveries: readonly DeliveryRef[], options?: CallOptions): Promise<void> {
    return this.#settle("return", deliveries, undefined, options);
  }

  /** Puts messages aside: they are not delivered any more. */
  park(deliveries: readonly DeliveryRef[], reason: string, options?: CallOptions): Promise<void> {
    return this.#settle("park", deliveries, reason, options);
  }

  #settle(what: string, refs: readonly DeliveryRef[], reason?: string, options?: CallOptions): Promise<void> {
    const body = { deliveries: refs.map(({ global, token }) => ({ global, token })), ...(reason && { reason }) };
    return this.#t.call({ op: `subscription ${what}`, method: "POST", path: `${this.#path}/${what}`, body, safe: true, options });
  }

  /** Lists messages that are not delivered any more, behind a global position: up to a limit, 0 for all. */
  parked(after = 0, limit = 0, options?: CallOptions): Promise<t.ParkedMessage[]> {
    const r: Request = { op: "subscription parked", method: "GET", path: `${this.#path}/parked`, safe: true, options };
    return pages<t.ParkedMessage>(this.#t, r, String(after), limit, (p) => String(p.global));
  }

  /** Delivers parked messages again, and returns how many of them were there. */
  replay(globals: readonly number[], options?: CallOptions): Promise<number> {
    return this.#unpark("replay", globals, options);
  }

  /** Gives parked messages up, and returns how many of them were there. */
  discard(globals: readonly number[], options?: CallOptions): Promise<number> {
    return this.#unpark("discard", globals, options);
  }

  async #unpark(what: string, globals: readonly number[], options?: CallOptions): Promise<number> {
    const at = `${this.#path}/${what}`;
    const r: Request = { op: `subscription ${what}`, method: "POST", path: at, body: { globals }, safe: true, options };
    return (await this.#t.call<{ count: number }>(r)).count;
  }
}

/** What names a lease. */
export interface LeaseRef {
  task: Pick<t.Task, "id"> & Partial<t.Task>;
  token: number;
}

/** The tasks of a namespace. */
export class Tasks {
  readonly #t: Transport;
  readonly #path: string;

  constructor(transport: Transport, at: string) {
    this.#t = transport;
    this.#path = at;
  }

  /**
   * Adds tasks, all or none. Those without an id get one, so that it can be repeated. ExistsError: there is another one
   * with that id.
   */
  async enqueue(tasks: readonly t.NewTask[], options?: CallOptions): Promise<t.Enqueued[]> {
    const all = tasks.map(withId);
    const r: Request = { op: "task enqueue", method: "POST", path: `${this.#path}/tasks`, body: { tasks: all }, options };
    r.safe = true;
    try {
      return count(r, (await this.#t.call<{ results: t.Enqueued[] }>(r)).results, all.length);
    } catch (e) {
      // If the ids exist after a try whose answer was lost, that try has enqueued the tasks if they are the same.
      const done = e instanceof ExistsError && r.lost ? await this.#enqueued(all, options) : undefined;
      if (!done) throw e;
      return done;
    }
  }

  /** Looks whether tasks are there as a try whose answer was lost has enqueued them. */
  async #enqueued(tasks: readonly t.NewTask[], options?: CallOptions): Promise<t.Enqueued[] | undefined> {
    const list: t.Enqueued[] = [];
    for (const want of tasks) {
      try {
        const got = await this.get(want.id!, options);
        if (!same(got, want)) return undefined;
        list.push({ id: want.id! });
      } catch (e) {
        if (!(e instanceof NotFoundError) || !want.unique) return undefined;
        // All or none were enqueued, and some were; so another task had the text.
        list.push(...(await this.enqueue([want], options)));
      }
    }
    return list;
  }

  /** Takes waiting tasks, which are the caller's until their leases end. With `wait` it waits until there is one. */
  async claim(what: Omit<t.ClaimTasks, "wait_ms"> & { wait?: boolean } = {}, options?: CallOptions): Promise<t.Lease[]> {
    const { wait, ...claim } = what;
    const ask = (waitMs: number): Request => {
      const body = { ...claim, wait_ms: waitMs };
      return { op: "task claim", method: "POST", path: `${this.#path}/tasks/claim`, body, waitMs, safe: true, options };
    };
    const get = async (r: Request) => (await this.#t.call<{ leases: t.Lease[] }>(r)).leases.map(bytes.lease);
    return wait ? waitFor(this.#t, ask, get) : get(ask(0));
  }

  /** Begins leases anew. What became of each is in the result: `code` is "" or absent if all is well. */
  async heartbeat(leases: readonly LeaseRef[], options?: CallOptions): Promise<t.LeaseResult[]> {
    return (await this.#each("heartbeat", leases, options)).results;
  }

  /** Gives back tasks that no worker has seen: the attempt does not count. */
  async return(leases: readonly LeaseRef[], options?: CallOptions): Promise<t.LeaseResult[]> {
    return (await this.#each("return", leases, options)).results;
  }

  /** Says that tasks are done. What became of each is in the result, as that of {@link heartbeat}. */
  async complete(leases: readonly LeaseRef[], options?: CallOptions): Promise<t.LeaseResult[]> {
    const { results, lost } = await this.#each("complete", leases, options);
    if (!lost) return results;
    return Promise.all(
      results.map(async (r, i) =>
        r.code === "lease_lost" && (await this.#was(leases[i]!, completed, options)) ? {} : r,
      ),
    );
  }

  async #each(what: string, leases: readonly LeaseRef[], options?: CallOptions) {
    if (leases.length === 0) return { results: [], lost: false };
    const body = { leases: leases.map(ref) };
    const r: Request = { op: `task ${what}`, method: "POST", path: `${this.#path}/leases/${what}`, body, safe: true, options };
    const { results } = await this.#t.call<{ results: t.LeaseResult[] }>(r);
    return { results: count(r, results, leases.length), lost: !!r.lost };
  }

  /** Whether it was a try whose answer was lost that has ended a lease, as the state of the task tells. */
  async #was(l: LeaseRef, done: (got: t.Task, l: LeaseRef) => boolean, options?: CallOptions): Promise<boolean> {
    try {
      return done(await this.get(l.task.id!, options), l);
    } catch {
      return false;
    }
  }

  /** Completes a task, and in the same commit enqueues the tasks that come next. */
  async completeThen(lease: LeaseRef, then: readonly t.NewTask[], options?: CallOptions): Promise<t.Enqueued[]> {
    const all = then.map(withId);
    const body = { ...ref(lease), then: all };
    const at = `${this.#path}/leases/complete-then`;
    const r: Request = { op: "task complete", method: "POST", path: at, body, safe: true, options };
    try {
      return count(r, (await this.#t.call<{ results: t.Enqueued[] }>(r)).results, all.length);
    } catch (e) {
      const was = e instanceof LeaseLostError && r.lost && (await this.#was(lease, completed, options));
      const done = was ? await this.#enqueued(all, options) : undefined;
      if (!done) throw e;
      return done;
    }
  }

  /** Tells what became of a running task. If the lease is lost after a lost answer, the task's state says why. */
  async #settle(
    what: string,
    lease: LeaseRef,
    more: object,
    done: (got: t.Task, l: LeaseRef) => boolean,
    options?: CallOptions,
  ): Promise<void> {
    const body = { ...ref(lease), ...more };
    const r: Request = { op: `task ${what}`, method: "POST", path: `${this.#path}/leases/${what}`, body, safe: true, options };
    try {
      await this.#t.call(r);
    } catch (e) {
      if (!(e instanceof LeaseLostError && r.lost && (await this.#was(lease, done, options)))) throw e;
    }
  }

  /** Sets the output of a running task. */
  setOutput(lease: LeaseRef, output: Uint8Array, options?: CallOptions): Promise<void> {
    return this.#settle("output", lease, { output }, () => false, options);
  }

  /** Says that an attempt has failed: the task is tried again after a while, or is dead if its attempts are used up. */
  fail(
    lease: LeaseRef,
    failure: { message: string; stack?: string },
    how: { retryInMs?: number; dead?: boolean } = {},
    options?: CallOptions,
  ): Promise<void> {
    const more = { failure, retry_in_ms: Math.round(how.retryInMs ?? 0), dead: how.dead ?? false };
    const done = (got: t.Task, l: LeaseRef) =>
      (got.failures ?? []).some((f) => f.attempt === l.task.attempt && failure.message.startsWith(f.message));
    return this.#settle("fail", lease, more, done, options);
  }

  /** Puts a task back for a while; the attempt does not count. */
  snooze(lease: LeaseRef, forMs: number, options?: CallOptions): Promise<void> {
    const done = (got: t.Task, l: LeaseRef) => got.attempt < (l.task.attempt ?? 0); // nothing else takes one back
    return this.#settle("snooze", lease, { for_ms: Math.round(forMs) }, done, options);
  }

  /** What is known of a task. NotFoundError: there is none with that id. */
  async get(id: string, options?: CallOptions): Promise<t.Task> {
    return bytes.task(await this.#t.call<t.Task>({ op: "task get", method: "GET", path: this.#task(id), safe: true, options }));
  }

  /** Lists tasks; `next` is the cursor of the next list, "" or absent if there are no more. */
  async list(
    which: { queue?: string; state?: string; cursor?: string; limit?: number } = {},
    options?: CallOptions,
  ): Promise<{ tasks: t.Task[]; next?: string }> {
    const query = { ...which };
    const r: Request = { op: "task list", method: "GET", path: `${this.#path}/tasks`, query, safe: true, options };
    const page = await this.#t.call<{ tasks: t.Task[]; next?: string }>(r);
    page.tasks.forEach(bytes.task);
    return page;
  }

  /** Ends a task that is not finished. StateError: it is completed or dead. */
  cancel(id: string, options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "task cancel", method: "POST", path: `${this.#task(id)}/cancel`, safe: true, options });
  }

  /** Lets a dead or cancelled task run again. If the answer is lost, it is not tried again. */
  retry(id: string, options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "task retry", method: "POST", path: `${this.#task(id)}/retry`, options });
  }

  /** Removes a task that does not run. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "task delete", method: "DELETE", path: this.#task(id), safe: true, options });
  }

  queues(options?: CallOptions): Promise<t.Queue[]> {
    return this.#t.call({ op: "queues", method: "GET", path: `${this.#path}/queues`, safe: true, options });
  }

  queue(name: string, options?: CallOptions): Promise<t.Queue> {
    return this.#t.call({ op: "queue", method: "GET", path: this.#queue(name), safe: true, options });
  }

  setQueue(name: string, limits: t.QueueOptions, options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "set queue", method: "PUT", path: this.#queue(name), body: limits, safe: true, options });
  }

  /** Lets no task of a queue be claimed until {@link resume}; running tasks continue. */
  pause(name: string, options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "pause queue", method: "POST", path: `${this.#queue(name)}/pause`, safe: true, options });
  }

  resume(name: string, options?: CallOptions): Promise<void> {
    return this.#t.call({ op: "resume queue", method: "POST", path: `${this.#queue(name)}/resume`, safe: true, options });
  }

  /** Retries the dead tasks of a queue, and returns how many there were. If the answer is lost, it is not tried again. */
  async retryAll(name: string, options?: CallOptions): Promise<number> {
    const r: Request = { op: "retry queue", method: "POST", path: `${this.#queue(name)}/retry`, options };
    return (await this.#t.call<{ count: number }>(r)).count;
  }

  #task(id: string): string {
    return this.#path + path`/tasks/${id}`;
  }

  #queue(name: string): string {
    return this.#path + path`/queues/${name}`;
  }
}

function bad(op: string, detail: string): BadRequestError {
  return new BadRequestError({ op, code: "bad_request", detail });
}

function withId<T extends { id?: string | null }>(one: T): T {
  return one.id ? one : { ...one, id: bytes.newId() };
}

/** Either all events have ids or none has. */
function eventsWithIds(events: readonly t.NewEvent[]): readonly t.NewEvent[] {
  return hasIds(events) ? events : events.map(withId);
}

function hasIds(list: readonly { id?: string | null }[]): boolean {
  return list.some((x) => x.id);
}

function operationWithIds(o: t.Operation): t.Operation {
  const made = { ...o };
  if (o.write) made.write = { ...o.write, messages: o.write.messages.map(withId) };
  if (o.append) made.append = { ...o.append, events: [...eventsWithIds(o.append.events)] };
  if (o.enqueue) made.enqueue = { ...o.enqueue, tasks: o.enqueue.tasks.map(withId) };
  if (o.complete) made.complete = { ...o.complete, then: (o.complete.then ?? []).map(withId) };
  return made;
}

/** What a try has done whose answer was lost is no repeat to the caller, whose ids were new. */
function repeated<T extends { repeated?: boolean } | undefined>(done: T, known: boolean, r: Request): T {
  if (done) done.repeated = !!done.repeated && (known || !r.lost);
  return done;
}

/** Checks that an answer has a result for each thing. If not, it is not known what was done. */
function count<T>(r: Request, results: T[], n: number): T[] {
  if (results.length === n) return results;
  const e = new HoldfastError({ op: r.op, status: 200, detail: `${results.length} results for ${n}` });
  e.unknown = true;
  throw e;
}

function ref(l: LeaseRef): { id: string; token: number } {
  return { id: l.task.id!, token: l.token };
}

function completed(got: t.Task, l: LeaseRef): boolean {
  return got.state === "completed" && (!l.task.attempt || got.attempt === l.task.attempt);
}

/** Whether a task is the one that was to be enqueued. */
function same(got: t.Task, want: t.NewTask): boolean {
  const payload = (x: { payload?: Uint8Array | null }) => bytes.toBase64(x.payload ?? new Uint8Array());
  return (
    got.kind === want.kind &&
    got.queue === (want.queue || "default") &&
    (["key", "unique", "sequence"] as const).every((f) => (got[f] ?? "") === (want[f] ?? "")) &&
    payload(got) === payload(want)
  );
}

function values(q: MessageQuery): Query {
  const { stream, category, types, prefix, correlation, group } = q;
  return { stream, category, type: types, prefix, correlation, member: group?.member, size: group?.size };
}

/** The position of a message by which a query goes. */
function place(q: MessageQuery, m: t.Message): number {
  return q.stream === undefined ? m.global : m.position;
}

/** Asks for lists of what comes after something until there is no more, or `limit` things, 0 for all. */
async function pages<T>(transport: Transport, r: Request, after: string, limit: number, key: (x: T) => string): Promise<T[]> {
  const all: T[] = [];
  while (limit === 0 || all.length < limit) {
    const size = limit ? Math.min(pageSize, limit - all.length) : pageSize;
    const part = await transport.call<T[]>({ ...r, query: { ...r.query, after, limit: size } });
    if (part.length === 0) break;
    all.push(...part);
    after = key(part[part.length - 1]!);
  }
  return all;
}

/** Claims until there is something, or the signal ends it. */
async function waitFor<T>(transport: Transport, ask: (waitMs: number) => Request, get: (r: Request) => Promise<T[]>) {
  const pauses = new Pauses();
  for (;;) {
    const r: Request = { ...ask(maxWaitMs), always: true };
    const asked = performance.now();
    const list = await get(r);
    if (list.length > 0) return list;
    // A server that is stopping answers at once, and is not asked again at once.
    if (performance.now() - asked >= maxWaitMs / 2) pauses.reset();
    else if (!(await sleep(pauses.next(0), r.options?.signal))) throw transport.aborted(r) satisfies AbortedError;
  }
}
