# Made by scripts/generate.py, of the client for asyncio. Do not edit it.
"""The client. That in the folder _async is written by hand, and that in _sync is made of it by scripts/generate.py."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

import httpx

from .. import _wire, api
from .._wire import Level, Request, ms, path
from ..errors import BadRequest, ConnectionFailed, Exists, HoldfastError, LeaseLost, NotFound, answered

T = TypeVar("T")


class Client:
    """A Holdfast server. It is closed by `close`, or by the end of an `with`.

    token is sent with each request. level is what writes must survive before they are answered; without it the
    server's decides. A call is tried again for `retry` seconds, not at all if that is below 0. `timeout` is for how
    many seconds an answer may have nothing new, beside what it asks the server to wait. http makes the requests; it is
    not closed, and redirects must not be followed by it. BadRequest: the address or the token makes no sense.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        level: Level | None = None,
        retry: float = 60.0,
        timeout: float = 30.0,
        http: httpx.Client | None = None,
    ) -> None:
        self._base = _wire.check_address(address, token)
        self._token, self._level, self._retry, self._timeout = token, level, retry, timeout
        self._own = http is None
        # Followers and waiting claims have a connection each.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = http or httpx.Client(limits=limits)

    def close(self) -> None:
        """Closes the connections."""
        if self._own:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def namespace(self, id: str) -> Namespace:
        """A namespace of the server. That there is none with that id, the first call tells."""
        return Namespace(self, id)

    def update(self, operations: Sequence[api.Operation], *, level: Level | None = None) -> list[api.OperationResult]:
        """Does operations in their order, in one namespace or in several, as one commit: all or none.

        Messages, events and tasks without ids get some, so that it can be repeated. If one is refused, the error is
        that of its single call, with its number in `operation`.
        """
        if not operations:
            return []
        body = {"operations": [_wire.operation_with_ids(o) for o in operations]}
        r = Request("transaction", "POST", "/v1/transactions", body=body, safe=True, level=level)
        results: list[api.OperationResult] = _wire.counted(r, (self._call(r))["results"], len(operations))
        for o, done in zip(operations, results, strict=True):
            _wire.repeated(done.get("written") or done.get("appended"), _wire.known(o), r)
        return results

    def server(self) -> api.Server:
        """Describes the server. The token is one that is good for all namespaces."""
        got: api.Server = self._call(Request("server", "GET", "/v1/server", safe=True))
        return got

    def namespaces(self) -> list[api.Namespace]:
        """Describes all namespaces, in the order of their ids."""
        return self._pages(Request("namespaces", "GET", "/v1/namespaces", safe=True), "", 0, lambda n: n["id"])

    def create_namespace(self, id: str, *, description: str = "", level: Level | None = None) -> api.Namespace:
        """Makes a namespace; its token is in the result, and told only here. A lost answer is not tried again."""
        body = {"id": id, "description": description}
        made: api.Namespace = self._call(Request("create namespace", "POST", "/v1/namespaces", body=body, level=level))
        return made

    def delete_namespace(self, id: str) -> int:
        """Deletes a namespace and all that is in it, and returns how many messages there were."""
        r = Request("delete namespace", "DELETE", path("/v1/namespaces/{}", id), safe=True)
        return int((self._call(r))["removed"])

    def tokens(self, namespace: str = "") -> list[api.Token]:
        """Describes the tokens of a namespace, or all that may be seen."""
        r = Request("tokens", "GET", "/v1/tokens", query={"namespace": namespace}, safe=True)
        got: list[api.Token] = self._call(r)
        return got

    def create_token(
        self, namespace: str, role: str, *, description: str = "", expires: str | None = None
    ) -> api.Token:
        """Makes a token; its secret is in the result, and told only here. A lost answer is not tried again."""
        body = {"namespace": namespace, "role": role, "description": description, "expires": expires}
        made: api.Token = self._call(Request("create token", "POST", "/v1/tokens", body=body))
        return made

    def revoke_token(self, id: str) -> None:
        """Removes a token."""
        self._call(Request("revoke token", "DELETE", path("/v1/tokens/{}", id), safe=True))

    def _call(self, r: Request) -> Any:
        """Makes a request until it is answered."""
        _wire.check(r)
        body, tries = _wire.encode(r), _wire.Tries(r, self._retry)
        while True:
            try:
                return self._try(r, body)
            except HoldfastError as e:
                pause = tries.again(e)
            time.sleep(pause)

    def _try(self, r: Request, body: bytes | None) -> Any:
        """Makes a request once."""
        headers = _wire.headers(r, self._token, self._level, None)
        timeout = httpx.Timeout(self._timeout, read=self._timeout + r.wait, pool=None)
        try:
            resp = self._http.request(
                r.method,
                _wire.url(self._base, r),
                content=body,
                headers=headers,
                timeout=timeout,
                follow_redirects=False,
            )
        except (httpx.RequestError, httpx.InvalidURL) as e:
            raise ConnectionFailed(r.op, cause=e) from e
        if not resp.is_success:
            raise answered(r.op, resp.status_code, resp.headers, resp.text)
        return _wire.decode(r, resp.status_code, resp.content)

    def _pages(self, r: Request, after: str, limit: int, key: Callable[[Any], str]) -> list[Any]:
        """Asks for lists of what comes after something until there is no more, or limit things, 0 for all."""
        every: list[Any] = []
        while limit == 0 or len(every) < limit:
            size = min(_wire.PAGE_SIZE, limit - len(every)) if limit else _wire.PAGE_SIZE
            query = {**r.query, "after": after, "limit": size}
            part = self._call(Request(r.op, r.method, r.path, query=query, safe=True))
            if not part:
                break
            every += part
            after = key(part[-1])
        return every

    def _wait_for(self, ask: Callable[[float], Request], what: str) -> list[Any]:
        """Claims until there is something."""
        pauses = _wire.Pauses()
        while True:
            asked = time.monotonic()
            r = ask(_wire.MAX_WAIT)
            r.wait, r.always = _wire.MAX_WAIT, True
            if got := (self._call(r))[what]:
                return list(got)
            # A server that is stopping answers at once, and is not asked again at once.
            if time.monotonic() - asked >= _wire.MAX_WAIT / 2:
                pauses.reset()
            else:
                time.sleep(pauses.next(0))


class Follower(Generic[T]):
    """Yields what there is, and then each new one, once and in order, whatever happens to connections and servers.

    It ends with an error that does not pass. Whoever leaves the loop before closes it by `close`, or by an
    `with` around the loop, so that its connection ends at once.
    """

    def __init__(
        self,
        client: Client,
        r: Request,
        position: int,
        history: str | None,
        read: Callable[[Any], tuple[T, int]],
    ) -> None:
        self.position = max(position, 0)
        """The position to go on from: behind what was yielded last. Who keeps it once that is handled, with
        `history`, and begins with both again, misses nothing."""
        self.history = history
        """What positions mean, as soon as the server has said it."""
        self._client, self._r, self._read = client, r, read
        self._pause = 0.0  # what the server asks to wait before the next connection
        self._items = self._run()

    def __iter__(self) -> Follower[T]:
        return self

    def __next__(self) -> T:
        return self._items.__next__()

    def close(self) -> None:
        """Ends the loop and its connection."""
        self._items.close()  # type: ignore[attr-defined]

    def __enter__(self) -> Follower[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> Iterator[T]:
        _wire.check(self._r)
        pauses = _wire.Pauses()
        while True:
            connection = self._connect()
            try:
                for e in connection:
                    pauses.reset()
                    if e.data is not None and e.kind in ("message", "event"):
                        value, at = self._understood(e.data)
                        if at < self.position:  # it was yielded before the connection was lost
                            continue
                        self.position = at + 1
                        yield value
                    # The id of an event is the position to go on from, which can be behind what was told.
                    if e.id.isdecimal():
                        self.position = max(self.position, int(e.id))
                lost: HoldfastError = ConnectionFailed(self._r.op, cause=EOFError("the server has ended the answer"))
            except HoldfastError as e:
                if not _wire.passing(e):
                    raise
                lost = e
            finally:
                connection.close()  # type: ignore[attr-defined]
            time.sleep(pauses.next(max(lost.retry_after, self._pause)))

    def _understood(self, data: str) -> tuple[T, int]:
        try:
            return self._read(json.loads(data))
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            detail = f"an event of the server cannot be read: {e!r}"
        raise HoldfastError(self._r.op, status=200, detail=detail)

    def _connect(self) -> Iterator[_wire.ServerSent]:
        """Connects, and yields what comes until the connection ends."""
        c, op = self._client, self._r.op
        query = {**self._r.query, "from": self.position, "history": self.history}
        r = Request(op, "GET", self._r.path, query=query)
        headers = _wire.headers(r, c._token, None, "text/event-stream")
        # The time that the loop's body takes is no silence: it is counted while something is read.
        timeout = httpx.Timeout(c._timeout, read=_wire.SILENCE, pool=None)
        try:
            address = _wire.url(c._base, r)
            with c._http.stream("GET", address, headers=headers, timeout=timeout, follow_redirects=False) as resp:
                if not resp.is_success:
                    resp.read()
                    raise answered(op, resp.status_code, resp.headers, resp.text)
                # Positions are those of one history. The next connection names it, so that what was made anew is not
                # followed as the old one.
                self.history = resp.headers.get("Holdfast-History") or self.history
                events = _wire.Events()
                for chunk in resp.iter_bytes():
                    for e in events.feed(chunk):
                        if events.retry is not None:
                            self._pause = events.retry
                        if wrong := _wire.refused(op, e, resp.headers):
                            raise wrong
                        yield e
        except (httpx.RequestError, httpx.InvalidURL) as e:
            raise ConnectionFailed(op, cause=e) from e


class Namespace:
    """The messages of a namespace, and by `log`, `subscription` and `tasks` all else that is in it."""

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self._client, self._path = client, path("/v1/namespaces/{}", id)
        self.tasks = Tasks(client, self._path)

    def log(self, name: str) -> Log:
        """The log of that name. The server makes it when something is appended."""
        return Log(self._client, self._path + path("/logs/{}", name))

    def subscription(self, name: str) -> Subscription:
        """The subscription of that name, which is there; `subscribe` makes one."""
        return Subscription(self._client, self._path + path("/subscriptions/{}", name))

    def subscribe(self, name: str, what: api.Subscription, *, level: Level | None = None) -> Subscription:
        """Sets what a subscription delivers and how, and makes it if it is not there."""
        at = self._path + path("/subscriptions/{}", name)
        self._client._call(Request("subscribe", "PUT", at, body=what, safe=True, level=level))
        return self.subscription(name)

    def info(self) -> api.Namespace:
        """Describes the namespace."""
        got: api.Namespace = self._client._call(Request("namespace info", "GET", self._path, safe=True))
        return got

    def write(
        self, stream: str, *messages: api.NewMessage, expected: int | None = None, level: Level | None = None
    ) -> api.Written:
        """Adds messages at the end of a stream, all or none.

        With `expected` only if the stream has that version, -1 for one that never had a message; else it is a
        Conflict. Messages without an id get one, so that it can be repeated.
        """
        body: dict[str, Any] = {"stream": stream, "messages": [_wire.with_id(m) for m in messages]}
        if expected is not None:
            body["expected"] = expected
        r = Request("message write", "POST", self._path + "/messages", body=body, safe=True, level=level)
        done: api.Written = _wire.repeated(self._client._call(r), _wire.have_ids(messages), r)
        return done

    def read(
        self,
        *,
        stream: str | None = None,
        category: str | None = None,
        types: Sequence[str] = (),
        prefix: str | None = None,
        start: int = 0,
        limit: int = 0,
        history: str | None = None,
    ) -> Iterator[api.Message]:
        """Yields messages from the position start on, up to where the namespace ended when the loop began."""
        if limit < 0:
            raise BadRequest("message read", code="bad_request", detail="a limit below 0")
        # Where it ends is asked first: a loop beside a busy writer comes to its end.
        end = (self.info())["last"] if stream is None else self.version(stream)
        place = "global" if stream is None else "position"
        next_, left, first = max(start, 0), limit, True
        while first or (end is not None and next_ <= end):
            first = False
            query = {**_query(stream, category, types, prefix), "from": next_, "history": history}
            query["limit"] = min(_wire.PAGE_SIZE, left) if limit else _wire.PAGE_SIZE
            r = Request("message read", "GET", self._path + "/messages", query=query, safe=True)
            page = self._client._call(r)
            for m in page["messages"]:
                if end is None or m[place] > end:
                    return
                yield m
                next_ = m[place] + 1
            # The next page names the history: if the namespace is made anew in between, its positions are not taken
            # for the same.
            history = page["history"]
            left -= len(page["messages"])
            if (limit and left <= 0) or (not page["messages"] and page["next"] <= next_):
                return
            next_ = max(next_, page["next"])  # types that are left out lie between

    def follow(
        self,
        *,
        stream: str | None = None,
        category: str | None = None,
        types: Sequence[str] = (),
        prefix: str | None = None,
        start: int = 0,
        history: str | None = None,
    ) -> Follower[api.Message]:
        """Yields messages from the position start on, and then each new one as soon as it has reached its level."""
        place = "global" if stream is None else "position"
        query = _query(stream, category, types, prefix)
        r = Request("message follow", "GET", self._path + "/messages/follow", query=query)
        return Follower(self._client, r, start, history, lambda m: (m, m[place]))

    def history(self) -> str:
        """What positions mean in the namespace now."""
        r = Request("message history", "GET", self._path + "/messages", query={"limit": 1}, safe=True)
        return str((self._client._call(r))["history"])

    def last(self, stream: str, type: str = "") -> api.Message:
        """The last message of a stream, or the last one of a type. NotFound: there is none."""
        query = {"stream": stream, "type": type}
        r = Request("message last", "GET", self._path + "/messages/last", query=query, safe=True)
        got: api.Message = self._client._call(r)
        return got

    def version(self, stream: str) -> int | None:
        """The position of a stream's last message that readers see; None if there is no such stream."""
        try:
            return int(
                (self._client._call(Request("stream version", "GET", self._stream(stream), safe=True)))["version"]
            )
        except NotFound as e:
            if e.code != "not_found":
                raise
            return None

    def streams(self, prefix: str = "", *, after: str = "", limit: int = 0) -> list[api.Stream]:
        """Describes streams that have messages, in the order of their names: up to a limit, 0 for all."""
        r = Request("streams", "GET", self._path + "/streams", query={"prefix": prefix})
        return self._client._pages(r, after, limit, lambda s: s["stream"])

    def categories(self) -> list[api.Category]:
        """Describes all categories that have messages."""
        got: list[api.Category] = self._client._call(
            Request("categories", "GET", self._path + "/categories", safe=True)
        )
        return got

    def delete(self, stream: str, *, level: Level | None = None) -> int:
        """Removes all messages of a stream, and returns how many there were. A lost answer is not tried again."""
        return self._remove("stream delete", stream, {}, False, level)

    def truncate(self, stream: str, before: int, *, level: Level | None = None) -> int:
        """Removes the messages of a stream below a position, and returns how many this try has removed."""
        return self._remove("stream truncate", stream, {"before": before}, True, level)

    def tombstone(self, stream: str, *, level: Level | None = None) -> int:
        """Ends a stream: it can never be written to again. Its messages are removed."""
        return self._remove("stream tombstone", stream, {"tombstone": True}, True, level)

    def _remove(self, op: str, stream: str, query: Mapping[str, Any], safe: bool, level: Level | None) -> int:
        r = Request(op, "DELETE", self._stream(stream), query=query, safe=safe, level=level)
        return int((self._client._call(r))["removed"])

    def retention(self, stream: str) -> api.Retention:
        """What `set_retention` has set for a stream."""
        got: api.Retention = self._client._call(
            Request("retention", "GET", self._stream(stream) + "/retention", safe=True)
        )
        return got

    def set_retention(self, stream: str, retention: api.Retention, *, level: Level | None = None) -> None:
        """Says which messages of a stream are to be kept from now on."""
        at = self._stream(stream) + "/retention"
        self._client._call(Request("set retention", "PUT", at, body=retention, safe=True, level=level))

    def save_position(self, consumer: str, position: int, *, level: Level | None = None) -> None:
        """Stores the last position that a consumer has handled, 0 for none."""
        at, body = self._path + path("/positions/{}", consumer), {"position": position}
        self._client._call(Request("save position", "PUT", at, body=body, safe=True, level=level))

    def load_position(self, consumer: str) -> int:
        """The position that was saved last. NotFound: there is none."""
        r = Request("load position", "GET", self._path + path("/positions/{}", consumer), safe=True)
        return int((self._client._call(r))["position"])

    def delete_position(self, consumer: str, *, level: Level | None = None) -> None:
        """Removes a consumer's position. It is no error if there is none."""
        at = self._path + path("/positions/{}", consumer)
        self._client._call(Request("delete position", "DELETE", at, safe=True, level=level))

    def subscriptions(self) -> list[api.Subscription]:
        """Describes the subscriptions of the namespace."""
        r = Request("subscriptions", "GET", self._path + "/subscriptions", safe=True)
        got: list[api.Subscription] = self._client._call(r)
        return got

    def logs(self) -> list[api.Log]:
        """Describes the logs of the namespace."""
        got: list[api.Log] = self._client._call(Request("logs", "GET", self._path + "/logs", safe=True))
        return got

    def _stream(self, name: str) -> str:
        return self._path + path("/streams/{}", name)


def _query(stream: str | None, category: str | None, types: Sequence[str], prefix: str | None) -> dict[str, Any]:
    return {"stream": stream, "category": category, "type": list(types), "prefix": prefix}


class Log:
    """An ordered log of events."""

    def __init__(self, client: Client, at: str) -> None:
        self._client, self._path = client, at

    def info(self) -> api.Log:
        """Describes the log. NotFound: there is none of that name."""
        got: api.Log = self._client._call(Request("log info", "GET", self._path, safe=True))
        return got

    def append(self, *events: api.NewEvent, after: int | None = None, level: Level | None = None) -> api.Appended:
        """Adds events at the end of the log, all or none.

        With `after` only if that is the last position; else it is a Conflict. If none has an id, all get one, so that
        it can be repeated.
        """
        body: dict[str, Any] = {"events": _wire.events_with_ids(events)}
        if after is not None:
            body["after"] = after
        r = Request("event append", "POST", self._path + "/events", body=body, safe=True, level=level)
        done: api.Appended = _wire.repeated(self._client._call(r), _wire.have_ids(events), r)
        return done

    def read(self, *, start: int = 0, limit: int = 0, history: str | None = None) -> Iterator[api.Event]:
        """Yields events up to where the log ended when the loop began; none if there is no such log."""
        try:
            end = (self.info())["last"]
        except NotFound as e:
            if e.code != "not_found":
                raise
            return
        next_, left, first = max(start, 0), limit, True
        while first or next_ <= end:
            first = False
            size = min(_wire.PAGE_SIZE, left) if limit else _wire.PAGE_SIZE
            query = {"from": next_, "history": history, "limit": size}
            page = self._client._call(Request("event read", "GET", self._path + "/events", query=query, safe=True))
            for got in page["events"]:
                if got["position"] > end:
                    return
                yield _wire.event(got)
                next_ = got["position"] + 1
            history = page["history"]
            left -= len(page["events"])
            if (limit and left <= 0) or (not page["events"] and page["next"] <= next_):
                return
            next_ = max(next_, page["next"])

    def follow(self, *, start: int = 0, history: str | None = None) -> Follower[api.Event]:
        """Yields events, and then each new one. Truncated: truncation has overtaken it."""
        r = Request("event follow", "GET", self._path + "/events/follow")
        return Follower(self._client, r, start, history, lambda e: (_wire.event(e), e["position"]))

    def history(self) -> str:
        """What positions mean in the log now."""
        r = Request("event history", "GET", self._path + "/events", query={"limit": 1}, safe=True)
        return str((self._client._call(r))["history"])

    def truncate(self, before: int, *, level: Level | None = None) -> int:
        """Removes all events below a position, and returns by how many the log has become shorter."""
        body = {"before": before}
        r = Request("event truncate", "POST", self._path + "/truncate", body=body, safe=True, level=level)
        return int((self._client._call(r))["removed"])

    def delete(self) -> None:
        """Removes the log with all that is in it. A lost answer is not tried again."""
        self._client._call(Request("log delete", "DELETE", self._path))

    def save_offset(self, name: str, position: int, *, level: Level | None = None) -> None:
        """Stores the last position that a subscription has handled, 0 for none."""
        at, body = self._path + path("/offsets/{}", name), {"position": position}
        self._client._call(Request("save offset", "PUT", at, body=body, safe=True, level=level))

    def load_offset(self, name: str) -> int:
        """What was saved last. NotFound: there is nothing."""
        r = Request("load offset", "GET", self._path + path("/offsets/{}", name), safe=True)
        return int((self._client._call(r))["position"])

    def delete_offset(self, name: str, *, level: Level | None = None) -> None:
        """Removes a subscription of the log."""
        at = self._path + path("/offsets/{}", name)
        self._client._call(Request("delete offset", "DELETE", at, safe=True, level=level))


class Subscription:
    """Delivers each message to one of those who claim, and again until one has acknowledged it."""

    def __init__(self, client: Client, at: str) -> None:
        self._client, self._path = client, at

    def info(self) -> api.Subscription:
        """How it is doing."""
        got: api.Subscription = self._client._call(Request("subscription", "GET", self._path, safe=True))
        return got

    def delete(self) -> None:
        """Removes what is kept of the subscription, and its parked messages."""
        self._client._call(Request("delete subscription", "DELETE", self._path, safe=True))

    def claim(self, most: int = 1) -> list[api.Delivery]:
        """Waits until there is a message to be delivered, also for a server that cannot be reached.

        It delivers up to `most`, which are the caller's until their leases end.
        """

        def ask(wait: float) -> Request:
            body = {"max": most, "wait_ms": ms(wait)}
            return Request("subscription claim", "POST", self._path + "/claim", body=body, safe=True)

        return self._client._wait_for(ask, "deliveries")

    def ack(self, *deliveries: api.Delivery, level: Level | None = None) -> None:
        """Says that messages are done with.

        LeaseLost: a lease has run out; if it is `unknown`, a try whose answer was lost may have acknowledged them, and
        if not, they come again. So it is with the calls below.
        """
        self._settle("ack", deliveries, "", level)

    def extend(self, *deliveries: api.Delivery, level: Level | None = None) -> None:
        """Begins the leases anew."""
        self._settle("extend", deliveries, "", level)

    def fail(self, *deliveries: api.Delivery, reason: str, level: Level | None = None) -> None:
        """Gives messages back: they come again after a while, or are parked if their attempts are used up."""
        self._settle("fail", deliveries, reason, level)

    def give_back(self, *deliveries: api.Delivery, level: Level | None = None) -> None:
        """Gives messages back that nobody has seen: they come again at once, and the attempt does not count."""
        self._settle("return", deliveries, "", level)

    def park(self, *deliveries: api.Delivery, reason: str, level: Level | None = None) -> None:
        """Puts messages aside: they are not delivered any more."""
        self._settle("park", deliveries, reason, level)

    def _settle(self, what: str, deliveries: Sequence[api.Delivery], reason: str, level: Level | None) -> None:
        refs = [{"global": d["global"], "token": d["token"]} for d in deliveries]
        body = {"deliveries": refs, "reason": reason}
        self._client._call(
            Request(f"subscription {what}", "POST", f"{self._path}/{what}", body=body, safe=True, level=level)
        )

    def parked(self, *, after: int = 0, limit: int = 0) -> list[api.ParkedMessage]:
        """Lists messages that are not delivered any more, behind a global position: up to a limit, 0 for all."""
        r = Request("subscription parked", "GET", self._path + "/parked")
        return self._client._pages(r, str(after), limit, lambda p: str(p["global"]))

    def replay(self, *globals: int, level: Level | None = None) -> int:
        """Delivers parked messages again, and returns how many of them were there."""
        return self._unpark("replay", globals, level)

    def discard(self, *globals: int, level: Level | None = None) -> int:
        """Gives parked messages up, and returns how many of them were there."""
        return self._unpark("discard", globals, level)

    def _unpark(self, what: str, globals: Sequence[int], level: Level | None) -> int:
        body = {"globals": list(globals)}
        r = Request(f"subscription {what}", "POST", f"{self._path}/{what}", body=body, safe=True, level=level)
        return int((self._client._call(r))["count"])


class Tasks:
    """The tasks of a namespace. Durations are in seconds."""

    def __init__(self, client: Client, at: str) -> None:
        self._client, self._path = client, at

    def enqueue(self, *tasks: api.NewTask, level: Level | None = None) -> list[api.Enqueued]:
        """Adds tasks, all or none.

        Those without an id get one, so that it can be repeated. Exists: there is another one with that id.
        """
        every = [_wire.with_id(t) for t in tasks]
        r = Request("task enqueue", "POST", self._path + "/tasks", body={"tasks": every}, safe=True, level=level)
        try:
            return _wire.counted(r, (self._client._call(r))["results"], len(every))
        except Exists:
            # If the ids exist after a try whose answer was lost, that try has enqueued the tasks if they are the same.
            done = self._enqueued(every) if r.lost else None
            if done is None:
                raise
            return done

    def _enqueued(self, tasks: Sequence[Any]) -> list[api.Enqueued] | None:
        """Looks whether tasks are there as a try whose answer was lost has enqueued them."""
        done: list[api.Enqueued] = []
        for want in tasks:
            try:
                if not _wire.same(self.get(want["id"]), want):
                    return None
                done.append({"id": want["id"]})
            except NotFound:
                if not want.get("unique"):
                    return None
                # All or none were enqueued, and some were; so another task had the text.
                done += self.enqueue(want)
        return done

    def claim(
        self,
        *queues: str,
        n: int = 1,
        lease: float = 30.0,
        worker: str = "",
        wait: bool = False,
        level: Level | None = None,
    ) -> list[api.Lease]:
        """Takes waiting tasks, which are the caller's until their leases end. With wait it waits until there is one."""

        def ask(seconds: float) -> Request:
            body = {"queues": list(queues), "n": n, "lease_ms": ms(lease), "worker": worker, "wait_ms": ms(seconds)}
            return Request("task claim", "POST", self._path + "/tasks/claim", body=body, safe=True, level=level)

        got = self._client._wait_for(ask, "leases") if wait else (self._client._call(ask(0)))["leases"]
        return [_wire.lease(one) for one in got]

    def heartbeat(self, *leases: api.Lease, level: Level | None = None) -> list[api.LeaseResult]:
        """Begins leases anew. What became of each is in the result: `code` is "" or absent if all is well."""
        return (self._each("heartbeat", leases, level))[0]

    def give_back(self, *leases: api.Lease, level: Level | None = None) -> list[api.LeaseResult]:
        """Gives back tasks that no worker has seen: the attempt does not count."""
        return (self._each("return", leases, level))[0]

    def complete(self, *leases: api.Lease, level: Level | None = None) -> list[api.LeaseResult]:
        """Says that tasks are done. What became of each is in the result, as that of `heartbeat`."""
        results, lost = self._each("complete", leases, level)
        for i, one in enumerate(leases):
            if lost and results[i].get("code") == "lease_lost" and self._was(one, _wire.completed):
                results[i] = {}
        return results

    def _each(self, what: str, leases: Sequence[api.Lease], level: Level | None) -> tuple[list[api.LeaseResult], bool]:
        if not leases:
            return [], False
        body = {"leases": [_wire.ref(one) for one in leases]}
        r = Request(f"task {what}", "POST", f"{self._path}/leases/{what}", body=body, safe=True, level=level)
        return _wire.counted(r, (self._client._call(r))["results"], len(leases)), r.lost

    def _was(self, lease: api.Lease, done: Callable[[Any, Any], bool]) -> bool:
        """Whether it was a try whose answer was lost that has ended a lease, as the state of the task tells."""
        try:
            return done(self.get(lease["task"]["id"]), lease)
        except HoldfastError:
            return False

    def complete_then(self, lease: api.Lease, *then: api.NewTask, level: Level | None = None) -> list[api.Enqueued]:
        """Completes a task, and in the same commit enqueues the tasks that come next."""
        every = [_wire.with_id(t) for t in then]
        body = {**_wire.ref(lease), "then": every}
        r = Request("task complete", "POST", self._path + "/leases/complete-then", body=body, safe=True, level=level)
        try:
            return _wire.counted(r, (self._client._call(r))["results"], len(every))
        except LeaseLost:
            was = r.lost and self._was(lease, _wire.completed)
            done = self._enqueued(every) if was else None
            if done is None:
                raise
            return done

    def _settle(
        self,
        what: str,
        lease: api.Lease,
        more: Mapping[str, Any],
        done: Callable[[Any, Any], bool],
        level: Level | None,
    ) -> None:
        """Tells what became of a running task. If the lease is lost after a lost answer, the task's state says why."""
        body = {**_wire.ref(lease), **more}
        r = Request(f"task {what}", "POST", f"{self._path}/leases/{what}", body=body, safe=True, level=level)
        try:
            self._client._call(r)
        except LeaseLost:
            if not (r.lost and self._was(lease, done)):
                raise

    def set_output(self, lease: api.Lease, output: bytes, *, level: Level | None = None) -> None:
        """Sets the output of a running task."""
        self._settle("output", lease, {"output": output}, lambda got, one: False, level)

    def fail(
        self,
        lease: api.Lease,
        message: str,
        *,
        stack: str = "",
        retry_in: float = 0.0,
        dead: bool = False,
        level: Level | None = None,
    ) -> None:
        """Says that an attempt has failed: the task is tried again after a while, or is dead."""
        more = {"failure": {"message": message, "stack": stack}, "retry_in_ms": ms(retry_in), "dead": dead}
        self._settle("fail", lease, more, lambda got, one: _wire.failed(got, one, message), level)

    def snooze(self, lease: api.Lease, seconds: float, *, level: Level | None = None) -> None:
        """Puts a task back for a while; the attempt does not count."""
        # Nothing else takes an attempt back.
        was: Callable[[Any, Any], bool] = lambda got, one: got["attempt"] < (one["task"].get("attempt") or 0)  # noqa: E731
        self._settle("snooze", lease, {"for_ms": ms(seconds)}, was, level)

    def get(self, id: str) -> api.Task:
        """What is known of a task. NotFound: there is none with that id."""
        got: api.Task = _wire.task(self._client._call(Request("task get", "GET", self._task(id), safe=True)))
        return got

    def find(self, *, queue: str = "", state: str = "", cursor: str = "", limit: int = 0) -> tuple[list[api.Task], str]:
        """Lists tasks, and returns the cursor of the next list, "" if there are no more."""
        query = {"queue": queue, "state": state, "cursor": cursor, "limit": limit or None}
        page = self._client._call(Request("task list", "GET", self._path + "/tasks", query=query, safe=True))
        return [_wire.task(t) for t in page["tasks"]], page.get("next") or ""

    def cancel(self, id: str, *, level: Level | None = None) -> None:
        """Ends a task that is not finished. WrongState: it is completed or dead."""
        self._client._call(Request("task cancel", "POST", self._task(id) + "/cancel", safe=True, level=level))

    def retry(self, id: str, *, level: Level | None = None) -> None:
        """Lets a dead or cancelled task run again. A lost answer is not tried again."""
        self._client._call(Request("task retry", "POST", self._task(id) + "/retry", level=level))

    def delete(self, id: str, *, level: Level | None = None) -> None:
        """Removes a task that does not run."""
        self._client._call(Request("task delete", "DELETE", self._task(id), safe=True, level=level))

    def queues(self) -> Sequence[api.Queue]:
        """Describes all queues that have tasks or options."""
        got: Sequence[api.Queue] = self._client._call(Request("queues", "GET", self._path + "/queues", safe=True))
        return got

    def queue(self, name: str) -> api.Queue:
        """Describes a queue. NotFound: there is none of that name, with tasks or options."""
        got: api.Queue = self._client._call(Request("queue", "GET", self._queue(name), safe=True))
        return got

    def set_queue(self, name: str, limits: api.QueueOptions, *, level: Level | None = None) -> None:
        """Sets the limits of a queue, which need not have tasks yet."""
        self._client._call(Request("set queue", "PUT", self._queue(name), body=limits, safe=True, level=level))

    def pause(self, name: str, *, level: Level | None = None) -> None:
        """Lets no task of a queue be claimed until `resume`; running tasks continue."""
        self._client._call(Request("pause queue", "POST", self._queue(name) + "/pause", safe=True, level=level))

    def resume(self, name: str, *, level: Level | None = None) -> None:
        """Ends what `pause` has begun."""
        self._client._call(Request("resume queue", "POST", self._queue(name) + "/resume", safe=True, level=level))

    def retry_all(self, name: str, *, level: Level | None = None) -> int:
        """Retries the dead tasks of a queue, and returns how many there were. A lost answer is not tried again."""
        r = Request("retry queue", "POST", self._queue(name) + "/retry", level=level)
        return int((self._client._call(r))["count"])

    def _task(self, id: str) -> str:
        return self._path + path("/tasks/{}", id)

    def _queue(self, name: str) -> str:
        return self._path + path("/queues/{}", name)
