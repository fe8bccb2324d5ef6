"""What both clients have in common: how requests are written and answers read, and what is tried again."""

from __future__ import annotations

import base64
import codecs
import json
import random
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx

from .errors import BadRequest, ConnectionFailed, HoldfastError, Stopping, answered

Level = Literal["memory", "process", "power", "quorum"]
"""What a write survives before it is answered."""

_LEVELS = ("memory", "process", "power", "quorum")  # each survives more

PAGE_SIZE = 500  # how many things a request of a list asks for
MAX_WAIT = 30.0  # how long a claim lets the server wait before it asks again
SILENCE = 45.0  # after which a stream of events is dead: three times the server's keepalive
FIRST_PAUSE, MOST_PAUSE = 0.1, 5.0

T = TypeVar("T")


@dataclass
class Request:
    """What a call asks for."""

    op: str  # for errors
    method: str
    path: str  # escaped
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    wait: float = 0.0  # how long the server is asked to wait
    safe: bool = False  # does no harm if it is done twice
    always: bool = False  # is tried again until the caller ends it
    level: Level | None = None
    lost: bool = False  # an answer was; set by the call


def path(form: str, *names: str) -> str:
    """Makes a path of texts, each of which becomes one segment."""
    return form.format(*(_segment(name) for name in names))


_UNADDRESSABLE = "\0"


def _segment(name: str) -> str:
    # What is between a client and the server rewrites paths in which a segment is empty, "." or "..", however it is
    # escaped: another operation would be reached.
    parts = name.split("/")
    if not any(parts) or "." in parts or ".." in parts:
        return _UNADDRESSABLE
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:  # half of a surrogate pair
        return _UNADDRESSABLE


def check(r: Request) -> None:
    """Refuses a path that would reach another operation."""
    if _UNADDRESSABLE in r.path:
        detail = 'a name or an id cannot stand in a path: it is empty, of slashes alone, or has "." or ".." as a part'
        raise BadRequest(r.op, status=400, code="bad_request", detail=detail)


def check_address(address: str, token: str | None) -> str:
    """Returns an address without the slashes at its end, if it is one of a server."""
    try:
        u = urlsplit(address)
        ok = u.scheme in ("http", "https") and bool(u.hostname) and not (u.query or u.fragment or u.username)
        _ = u.port
    except ValueError:
        ok = False
    if not ok:
        detail = "the address is one of a server, as http://HOST:PORT, without a token or query"
        raise BadRequest("new client", code="bad_request", detail=detail)
    if token and any(c.isspace() for c in token):
        raise BadRequest("new client", code="bad_request", detail="the token has white space in it")
    return address.rstrip("/")


def url(base: str, r: Request) -> str:
    """The address of a request."""
    pairs: list[tuple[str, str]] = []
    for name, value in r.query.items():
        if value is None or value == "":
            continue
        many = value if isinstance(value, (list, tuple)) else [value]
        pairs += [(name, str(v).lower() if isinstance(v, bool) else str(v)) for v in many]
    try:
        return base + r.path + ("?" + urlencode(pairs) if pairs else "")
    except UnicodeEncodeError as e:
        raise BadRequest(r.op, status=400, code="bad_request", detail=f"a text is not UTF-8: {e}") from None


def encode(r: Request) -> bytes | None:
    """Encodes a body, once for all tries. Bytes are base64 in it."""
    if r.body is None:
        return None
    try:
        text = json.dumps(r.body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_base64)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as e:  # a UnicodeEncodeError, too
        raise BadRequest(r.op, status=400, code="bad_request", detail=f"it cannot be written as JSON: {e}") from None


def _base64(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    raise TypeError(f"a {type(value).__name__} is neither JSON nor bytes")


def decode(r: Request, status: int, text: bytes) -> Any:
    """Reads an answer of success."""
    if status == 204:
        return None
    try:
        return json.loads(text)
    except RecursionError:
        detail = "the answer is deeper than this program lets Python go; see sys.setrecursionlimit"
    except ValueError:
        detail = "the answer cannot be read; is this the address of a Holdfast server?"

    # It is a lost answer: the server may have done what it was asked for.
    e = HoldfastError(r.op, status=status, detail=detail)
    e.unknown = r.method != "GET"
    raise e


def headers(r: Request, token: str | None, level: Level | None, accept: str | None) -> dict[str, str]:
    """The headers of a request."""
    made = {"Cache-Control": "no-store"}
    if r.body is not None:
        made["Content-Type"] = "application/json"
    if accept:
        made["Accept"] = accept
    if token:
        made["Authorization"] = f"Bearer {token}"
    named = [name for name in (r.level, level) if name]
    for name in named:
        if name not in _LEVELS:
            detail = f"the level {name!r} is not one of {', '.join(_LEVELS)}"
            raise BadRequest(r.op, code="bad_request", detail=detail)
    if named and r.method != "GET":  # the stronger one
        made["Holdfast-Level"] = max(named, key=_LEVELS.index)
    return made


class Pauses:
    """Those between tries: they double, and are made longer by chance, so that clients do not come back together."""

    def __init__(self) -> None:
        self._now = FIRST_PAUSE

    def next(self, asked: float) -> float:
        """How long to wait: at least what the server has asked for."""
        own = self._now / 2 + random.random() * self._now / 2
        self._now = min(2 * self._now, MOST_PAUSE)
        return asked + random.random() * asked / 4 if asked > own else own

    def reset(self) -> None:
        """Begins anew, after the server was heard."""
        self._now = FIRST_PAUSE


def passing(e: HoldfastError) -> bool:
    """Whether another try may do better."""
    if "CERTIFICATE_VERIFY_FAILED" in str(e.__cause__):
        return False
    return e.status in (0, 429, 502, 503, 504) or e.__cause__ is not None


def _not_done(e: HoldfastError) -> bool:
    """Whether the server surely has not begun what it was asked for."""
    return e.status == 429 or e.code in ("stopping", "too_many")


def _never_sent(e: HoldfastError) -> bool:
    """Whether an error of a connection means that nothing was sent."""
    never = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)
    return isinstance(e.__cause__, never)


class Tries:
    """The tries of one call."""

    def __init__(self, r: Request, retry: float) -> None:
        self._r, self._retry = r, retry
        self._pauses, self._began = Pauses(), time.monotonic()

    def again(self, e: HoldfastError) -> float:
        """Returns after how long a call that has failed is tried again, or raises what it ends with."""
        r = self._r

        # Whether the server may have done it is remembered over all tries: a later refusal does not undo an earlier
        # success.
        if e.unknown or (not _never_sent(e) if e.status == 0 else passing(e) and not _not_done(e)):
            r.lost = True
        e.unknown = r.lost and r.method != "GET"
        wait = self._pauses.next(e.retry_after)
        if not (passing(e) and (r.safe or not r.lost) and self._retry >= 0):
            raise e
        if not r.always and time.monotonic() - self._began + wait > self._retry:
            raise e
        return wait


@dataclass
class ServerSent:
    """One of Server-Sent Events."""

    kind: str = ""
    id: str = ""
    data: str | None = None


class Events:
    """Reads Server-Sent Events. What the end of an answer cuts off comes again with the next connection."""

    def __init__(self) -> None:
        self.retry: float | None = None  # what the server asks to wait before the next connection
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._parts: list[str] = []  # of a line that is not whole yet
        self._now = ServerSent()

    def feed(self, chunk: bytes) -> Iterator[ServerSent]:
        """Yields what is whole; also for a comment, or an id alone, which have no data."""
        *whole, rest = self._decoder.decode(chunk).split("\n")
        for line in whole:
            self._parts.append(line)
            line = "".join(self._parts).removesuffix("\r")
            self._parts = []
            if not line:
                now, self._now = self._now, ServerSent()
                yield now
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._now.kind = value
            elif name == "data":
                self._now.data = value if self._now.data is None else self._now.data + "\n" + value
            elif name == "id":
                self._now.id = value
            elif name == "retry" and value.isdecimal():
                self.retry = int(value) / 1000
        self._parts.append(rest)


def refused(op: str, e: ServerSent, answer: httpx.Headers) -> HoldfastError | None:
    """The error that an event of a follower is, if it is one."""
    if e.kind == "bye":
        return Stopping(op, status=503, code="stopping", detail="the server is stopping")
    if e.kind != "problem":
        return None
    try:
        status = int(json.loads(e.data or "")["status"])
    except (ValueError, KeyError, TypeError):
        return ConnectionFailed(op, cause=ValueError(f"the server says: {e.data!r:.200}"))
    return answered(op, status, answer, e.data or "")


def new_id() -> str:
    """Makes a UUID of version 7 (RFC 9562): the milliseconds of now, and 74 random bits."""
    bits = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def ms(seconds: float) -> int:
    """Seconds as the API has them."""
    return round(seconds * 1000)


def with_id(one: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with an id."""
    return {**one, "id": one.get("id") or new_id()}


def have_ids(many: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some have ids of the caller."""
    return any(one.get("id") for one in many)


def events_with_ids(events: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Either all events have ids or none has."""
    return list(events) if have_ids(events) else [with_id(e) for e in events]


def operation_with_ids(o: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of an operation of a transaction in which all has ids."""
    made = dict(o)
    if w := o.get("write"):
        made["write"] = {**w, "messages": [with_id(m) for m in w["messages"]]}
    if a := o.get("append"):
        made["append"] = {**a, "events": events_with_ids(a["events"])}
    if q := o.get("enqueue"):
        made["enqueue"] = {**q, "tasks": [with_id(t) for t in q["tasks"]]}
    if c := o.get("complete"):
        made["complete"] = {**c, "then": [with_id(t) for t in c.get("then") or []]}
    return made


def known(o: Mapping[str, Any]) -> bool:
    """Whether an operation has ids of the caller."""
    return have_ids((o.get("write") or {}).get("messages") or (o.get("append") or {}).get("events") or [])


def repeated(done: Any, own: bool, r: Request) -> Any:
    """What a try has done whose answer was lost is no repeat to the caller, whose ids were new."""
    if done is not None:
        done["repeated"] = bool(done.get("repeated")) and (own or not r.lost)
    return done


def counted(r: Request, results: list[T], n: int) -> list[T]:
    """Checks that an answer has a result for each thing. If not, it is not known what was done."""
    if len(results) != n:
        e = HoldfastError(r.op, status=200, detail=f"{len(results)} results for {n}")
        e.unknown = True
        raise e
    return results


def ref(lease: Mapping[str, Any]) -> dict[str, Any]:
    """Names a lease, as requests do."""
    return {"id": lease["task"]["id"], "token": lease["token"]}


def completed(got: Mapping[str, Any], lease: Mapping[str, Any]) -> bool:
    """Whether a task was completed under a lease."""
    attempt = lease["task"].get("attempt")
    return bool(got["state"] == "completed" and (not attempt or got["attempt"] == attempt))


def failed(got: Mapping[str, Any], lease: Mapping[str, Any], message: str) -> bool:
    """Whether an attempt has failed with a message, of which the server keeps the beginning."""
    attempt = lease["task"].get("attempt")
    return any(f.get("attempt") == attempt and message.startswith(f["message"]) for f in got.get("failures") or [])


def same(got: Mapping[str, Any], want: Mapping[str, Any]) -> bool:
    """Whether a task is the one that was to be enqueued."""
    return (
        got["kind"] == want["kind"]
        and got.get("queue") == (want.get("queue") or "default")
        and all((got.get(f) or "") == (want.get(f) or "") for f in ("key", "unique", "sequence"))
        and bytes(got.get("payload") or b"") == bytes(want.get("payload") or b"")
    )


def _bytes(one: Any, *fields: str) -> Any:
    for f in fields:
        if isinstance(one.get(f), str):
            one[f] = base64.b64decode(one[f])
    return one


def event(e: Any) -> Any:
    """An event whose base64 has become bytes."""
    return _bytes(e, "data", "metadata")


def task(t: Any) -> Any:
    """A task whose base64 has become bytes."""
    return _bytes(t, "payload", "output")


def lease(one: Any) -> Any:
    """A lease whose task has bytes."""
    task(one["task"])
    return one
