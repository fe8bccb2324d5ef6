"""What a server that answers as it likes gets, and what the caller is told."""

import asyncio
import email.utils
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from holdfastdb import AsyncClient, Client, StillRunning, TaskRun, Worker, _wire, errors, new_id
from holdfastdb.errors import ConnectionFailed, HoldfastError

Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(_wire, "MOST_PAUSE", 0.001)


def client(answer: Answer, retry: float = 60.0) -> Client:
    return Client("http://localhost", retry=retry, http=httpx.Client(transport=httpx.MockTransport(answer)))


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An answer of these bytes, in pieces, which then breaks off."""

    def __init__(self, whole: bytes, piece: int) -> None:
        self.whole, self.piece = whole, piece

    def __iter__(self) -> Iterator[bytes]:
        for i in range(0, len(self.whole), self.piece):
            yield self.whole[i : i + self.piece]
        if len(self.whole) % 2:  # otherwise as the end of an answer without chunks looks
            raise httpx.ReadError("cut")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


def feed(at: int) -> Answer:
    """A stream of messages, whose first connections are cut off after some bytes."""
    connections = itertools.count()

    def answer(r: httpx.Request) -> httpx.Response:
        text = ": hello\n\nretry: 1\n\n"
        for n in range(max(1, int(r.url.params["from"])), 5):
            text += f"id: {n + 1}\r\nevent:message\n"
            text += f'data: {{"global":{n},\ndata:"stream":"ü🦊-{n}"}}\n\n: all is well\n\n'
        n = next(connections)
        whole = text.encode()
        return httpx.Response(200, stream=Broken(whole[: at + n] if n < 4 else whole, 1 + at % 7))

    return answer


def test_followers_cut_at_each_byte() -> None:
    """Wherever a connection is cut off, and however its bytes come, each message comes once, in order."""

    async def with_asyncio(at: int) -> list[int]:
        http = httpx.AsyncClient(transport=httpx.MockTransport(feed(at)))
        got = []
        async with AsyncClient("http://localhost", http=http).namespace("n").follow(start=2) as follower:
            async for m in follower:
                assert m["stream"] == f"ü🦊-{m['global']}"
                got.append(m["global"])
                if len(got) == 3:
                    break
        return got

    async def every() -> list[list[int]]:
        return await asyncio.gather(*(with_asyncio(at) for at in range(330)))

    assert asyncio.run(every()) == [[2, 3, 4]] * 330
    for at in range(330):
        got = [m["global"] for m in itertools.islice(client(feed(at)).namespace("n").follow(start=2), 3)]
        assert got == [2, 3, 4], f"cut at {at}"


def test_a_follower_ends_with_what_does_not_pass() -> None:
    tries = itertools.count(1)
    text = 'event: problem\ndata: {"status":404,"code":"no_namespace"}\n\n'

    def answer(_: httpx.Request) -> httpx.Response:
        assert next(tries) == 1
        return httpx.Response(200, text=text)

    with pytest.raises(errors.NoNamespace):
        list(client(answer).namespace("n").follow())


def test_what_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(step=10)  # each look at it takes 10 s
    monkeypatch.setattr(_wire, "time", SimpleNamespace(monotonic=lambda: next(clock), time_ns=time.time_ns))

    def problem(status: int, code: str) -> Answer:
        return lambda _: httpx.Response(status, json={"status": status, "code": code, "detail": "as it is"})

    def lost(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    def refused(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    def untrusted(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    def page(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="<html>")

    calls: dict[str, Callable[[Any], Any]] = {
        "write": lambda n: n.write("a-1", {"type": "T", "data": {}}),
        "delete": lambda n: n.delete("a-1"),
        "read": lambda n: n.info(),
    }
    # How often it is tried: 0 for several times, until the time is up.
    cases: list[tuple[Answer, str, int, type[HoldfastError], bool]] = [
        (refused, "delete", 0, ConnectionFailed, False),
        (lost, "delete", 1, ConnectionFailed, True),
        (lost, "write", 0, ConnectionFailed, True),
        (lost, "read", 0, ConnectionFailed, False),
        (problem(503, "stopping"), "delete", 0, errors.Stopping, False),
        (problem(429, ""), "delete", 0, errors.TooMany, False),
        (problem(503, "poisoned"), "delete", 1, errors.Poisoned, True),
        (problem(503, "poisoned"), "write", 0, errors.Poisoned, True),
        (problem(503, "fenced"), "read", 0, errors.Unavailable, False),
        (problem(502, ""), "delete", 1, HoldfastError, True),
        (problem(413, ""), "write", 1, errors.TooLarge, False),
        (problem(409, "conflict"), "write", 1, errors.Conflict, False),
        (problem(500, "internal"), "write", 1, errors.InternalError, False),
        (untrusted, "read", 1, ConnectionFailed, False),
        (page, "read", 1, HoldfastError, False),
        (page, "write", 1, HoldfastError, True),
        (lambda _: httpx.Response(200, text='{"position":'), "delete", 1, HoldfastError, True),  # cut, without a length
        (lambda _: httpx.Response(200), "write", 1, HoldfastError, True),
        (problem(418, "teapot"), "write", 1, HoldfastError, False),
        (lambda _: httpx.Response(307, headers={"Location": "http://other"}), "read", 1, HoldfastError, False),
    ]
    for i, (answer, what, tries, kind, unknown) in enumerate(cases):
        made = []

        def counted(r: httpx.Request) -> httpx.Response:
            made.append(r)
            return answer(r)

        with pytest.raises(kind) as e:
            calls[what](client(counted, 40).namespace("n"))
        assert e.value.unknown == unknown, i
        assert len(made) == tries if tries else len(made) > 2, i


def test_an_id_is_made_before_the_first_try_and_stays() -> None:
    sent: list[bytes] = []

    def answer(r: httpx.Request) -> httpx.Response:
        sent.append(r.content)
        if len(sent) < 3:
            raise httpx.ReadError("reset")
        return httpx.Response(200, json={"position": 0, "global": 1, "repeated": True})

    done = client(answer).namespace("n").write("a-1", {"type": "T", "data": {}})
    assert len(set(sent)) == 1
    id = json.loads(sent[0])["messages"][0]["id"]
    assert re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", id)
    assert done["repeated"] is False  # the id was new to the caller


def test_ids_have_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time_ns() // 1_000_000
    ids = [new_id() for _ in range(1000)]
    for id in ids:
        assert before <= int(id[:8] + id[9:13], 16) <= time.time_ns() // 1_000_000
    assert len(set(ids)) == 1000
    monkeypatch.setattr(time, "time_ns", lambda: 0)  # a clock that is wrong makes ids all the same
    assert new_id().startswith("00000000-0000-7")


def test_each_code_of_the_server_has_a_class() -> None:
    source = (Path(__file__).parent.parent.parent.parent / "api" / "api.go").read_text()
    codes = re.findall(r'^\tCode\w+ += "(\w+)"', source, re.MULTILINE)
    assert len(codes) > 25
    assert set(codes) == set(errors.CLASSES)
    assert len(set(errors.CLASSES.values())) == len(codes)


def test_addresses_and_tokens_that_make_no_sense() -> None:
    addresses = [
        "",
        "localhost:8080",
        "ftp://localhost",
        "http://",
        "http://l?y=z",
        "http://u:p@l",
        "http://l#y",
        "http://[::1",
    ]
    for address in addresses:
        with pytest.raises(errors.BadRequest):
            Client(address)
    with pytest.raises(errors.BadRequest):
        Client("http://localhost", token="a b")


def test_unknown_levels_are_not_sent() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise AssertionError("it was sent")

    n = client(answer).namespace("n")
    for level in ("Power", "none"):
        with pytest.raises(errors.BadRequest, match=level):
            n.write("a-1", {"type": "T", "data": {}}, level=cast(Any, level))


def test_what_is_no_json_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = itertools.count()

    def answer(_: httpx.Request) -> httpx.Response:
        raise AssertionError("it was sent")

    monkeypatch.setattr(_wire.Pauses, "next", lambda *_: next(tries))
    n = client(answer).namespace("n")
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for data in (float("nan"), "\ud800", object(), deep):
        with pytest.raises(errors.BadRequest):
            n.write("a-1", {"type": "T", "data": {"x": data}})
    with pytest.raises(errors.BadRequest):
        n.version("\ud800")
    with pytest.raises(errors.BadRequest):
        n.last("\ud800")
    with pytest.raises(errors.BadRequest):
        list(n.follow(stream="\ud800"))
    assert next(tries) == 1  # with its first try: of all calls only `last` gets as far as one


def test_a_function_that_does_not_return_does_not_keep_the_worker_from_stopping() -> None:
    async def run() -> None:
        claims = itertools.count()
        never = asyncio.Event()

        async def answer(r: httpx.Request) -> httpx.Response:
            if r.url.path.endswith("/claim") and next(claims) == 0:
                task = {"id": "t", "kind": "k", "attempt": 1, "state": "running", "created": ""}
                return httpx.Response(200, json={"leases": [{"task": task, "token": 1, "until": ""}]})
            await never.wait()
            raise AssertionError

        async def stubborn(_: TaskRun) -> None:
            worker.stop()
            while not never.is_set():
                try:
                    await never.wait()
                except asyncio.CancelledError:
                    continue

        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        tasks = AsyncClient("http://localhost", http=http).namespace("n").tasks
        worker = Worker(tasks, {"k": stubborn}, grace=0.05)
        with pytest.raises(StillRunning):
            await worker.run()
        never.set()

    asyncio.run(run())


def test_a_failure_is_told_whatever_its_text_is() -> None:
    async def run() -> None:
        claims = itertools.count()
        told: list[Any] = []

        async def answer(r: httpx.Request) -> httpx.Response:
            if r.url.path.endswith("/claim"):
                task = {"id": "t", "kind": "k", "attempt": 1, "state": "running", "created": ""}
                leases = [{"task": task, "token": 1, "until": ""}] if next(claims) == 0 else []
                return httpx.Response(200, json={"leases": leases})
            assert r.url.path.endswith("/fail")
            told.append(json.loads(r.content)["failure"])
            worker.stop()
            return httpx.Response(204)

        async def fails(_: TaskRun) -> None:
            raise FileNotFoundError("no file n\udcffme" + 100_000 * ".")  # a name that is no UTF-8, as Python has it

        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        tasks = AsyncClient("http://localhost", http=http).namespace("n").tasks
        worker = Worker(tasks, {"k": fails}, lease=0.3)
        await asyncio.wait_for(worker.run(), 60)
        assert len(told) == 1
        assert told[0]["message"].startswith("no file n\\udcffme.")
        assert "FileNotFoundError" in told[0]["stack"]
        assert max(len(text) for text in told[0].values()) < 70_000

    asyncio.run(run())


def test_a_date_to_come_again_is_by_the_clock_of_whoever_has_answered_and_nobody_is_believed_for_ever() -> None:
    ahead = time.time() + 365 * 86400

    def at(seconds: int) -> str:
        return email.utils.formatdate(ahead + seconds, usegmt=True)

    for after, date, want in [
        (at(7), at(0), 7),
        (at(-1), at(0), 0),
        (at(0), "", 3600),
        ("1.5", at(0), 1.5),
        ("1e9", "", 3600),
        ("-1", "", 0),
        ("soon", at(0), 0),
    ]:
        headers = httpx.Headers({"Retry-After": after, "Date": date})
        assert errors.answered("op", 503, headers, "").retry_after == want
