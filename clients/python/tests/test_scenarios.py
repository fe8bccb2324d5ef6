"""Runs clients/scenarios.json against a server, with both clients. What the steps mean is in clients/README.md."""

import asyncio
import base64
import inspect
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness import Harness

from holdfastdb import AsyncClient, Client, Dead, HoldfastError, Snooze, TaskRun, Worker

SCENARIOS = json.loads((Path(__file__).parent.parent.parent / "scenarios.json").read_text())

# The data of messages may be 1,000 deep, which is more than Python lets JSON be by itself.
sys.setrecursionlimit(10_000)

number = itertools.count(1)


@pytest.fixture(scope="session")
def harness() -> Iterator[Harness]:
    h = Harness()
    yield h
    h.stop()


@pytest.mark.parametrize("kind", [AsyncClient, Client])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[s["name"] for s in SCENARIOS])
def test_scenario(harness: Harness, scenario: Any, kind: Any) -> None:
    asyncio.run(run(harness, scenario["steps"], kind))


async def run(harness: Harness, steps: list[Any], kind: Any) -> None:
    # Writers wait in threads for a server that another one starts.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(32))
    s = Scenario(harness, kind)
    try:
        await s.call(lambda: s.client({}).create_namespace(s.ns))
        for i, step in enumerate(steps):
            try:
                await s.step(step)
            except Exception as e:
                raise AssertionError(f"step {i}, {short(step)}: {e!r}") from e
    finally:
        await s.end()


def short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)[:400]


class Collected:
    """What a follower has yielded."""

    def __init__(self, follower: Any) -> None:
        self.follower, self.got, self.taken = follower, list[Any](), 0
        self.error: Exception | None = None


class Scenario:
    def __init__(self, harness: Harness, kind: Any) -> None:
        self.harness, self.kind, self.ns = harness, kind, f"scenario-{next(number)}"
        self.saved: dict[str, Any] = {}
        self.clients: dict[str, Any] = {}
        self.followers: dict[str, Collected] = {}
        self.collecting: list[asyncio.Task[None]] = []
        self.workers: dict[str, tuple[Worker, asyncio.Task[None], list[str], list[None]]] = {}
        self.own: AsyncClient | None = None
        self.marked = 0.0

    def client(self, o: dict[str, Any]) -> Any:
        key = json.dumps(o)
        if key not in self.clients:
            options: dict[str, Any] = {"token": o.get("token", self.harness.token), "level": o.get("level")}
            if "retry_ms" in o:
                options["retry"] = o["retry_ms"] / 1000
            self.clients[key] = self.kind(self.harness.direct if o.get("direct") else self.harness.url, **options)
        return self.clients[key]

    async def call(self, f: Callable[[], Any]) -> Any:
        """Calls something of a client: in a thread, if it is the one without asyncio."""
        if self.kind is Client:
            return await asyncio.to_thread(f)
        got = f()
        return await got if isinstance(got, Awaitable) else got

    async def all(self, f: Callable[[], Any]) -> list[Any]:
        if self.kind is Client:
            return await asyncio.to_thread(lambda: list(f()))
        return [x async for x in f()]

    async def end(self) -> None:
        for worker, done, *_ in self.workers.values():
            worker.stop()
            await done
        for c in self.collecting:
            c.cancel()
        if self.kind is AsyncClient:
            await asyncio.gather(*self.collecting, return_exceptions=True)
            for client in self.clients.values():
                await client.aclose()
        if self.own:
            await self.own.aclose()
        self.harness.do(do="clear")

    async def step(self, raw: Any) -> None:
        step = self.made(raw)
        end = time.monotonic() + 60
        while True:
            error = got = None
            try:
                got = normal(await self.do(step))
            except HoldfastError as e:
                if "error" not in step and not step.get("until"):
                    raise
                error = e
            wrong = self.wrong(step, got, error)
            if "save" in step and error is None:
                self.saved[step["save"]] = got
            if wrong is None:
                return
            if not step.get("until") or time.monotonic() > end:
                raise AssertionError(wrong)
            await asyncio.sleep(0.02)

    def wrong(self, step: Any, got: Any, error: HoldfastError | None) -> str | None:
        if "error" not in step:
            return str(error) if error else differs(step["want"], got, "") if "want" in step else None
        if error is None:
            return f"it was done: {short(got)}"
        if error.code and type(error).__name__ == "HoldfastError":
            return f"no class for {error.code}"
        fields = ("code", "status", "unknown", "operation", "expected", "actual")
        said = differs(step["error"], {f: getattr(error, f) for f in fields}, "error")
        return said and f"{said} ({error})"

    def made(self, value: Any) -> Any:
        """Puts in values that are made or saved."""
        if isinstance(value, list):
            return [self.made(v) for v in value]
        if isinstance(value, str) and value.startswith("$"):
            name, *at = value[1:].split(".")
            got = self.saved[name]
            for key in at:
                got = got[int(key)] if isinstance(got, list) else got[key]
            return got
        if not isinstance(value, dict):
            return value
        if "$repeat" in value:
            return value["$repeat"][0] * value["$repeat"][1]
        if "$bytes" in value:
            return base64.b64encode(bytes(i % 251 for i in range(value["$bytes"]))).decode()
        if "$deep" in value:
            deep: dict[str, Any] = {}
            for _ in range(value["$deep"] - 1):
                deep = {"a": deep}
            return deep
        return {k: self.made(v) for k, v in value.items()}

    async def do(self, s: Any) -> Any:
        c = self.client(s.get("with", {}))
        n = c.namespace(s.get("ns", self.ns))
        what = s["do"]
        if flow := getattr(self, "flow_" + what, None):
            return await flow(n, c, s)
        if what == "read":
            keys = ("stream", "category", "types", "limit", "history")
            return await self.all(lambda: n.read(**only(s, *keys), start=s.get("from", 0)))
        if what == "events":
            return await self.all(lambda: n.log(s["log"]).read())
        call = CALLS.get(what)
        if call is None:  # kill, stop, start, fault, clear, cut
            return await asyncio.to_thread(lambda: self.harness.do(**s))
        got = await self.call(lambda: call(n, c, s))
        if what in ("heartbeat", "complete"):
            return [r.get("code") or "" for r in got]
        return got[0] if what == "tasks" else None if what == "subscribe" else got

    async def flow_write_numbered(self, n: Any, c: Any, s: Any) -> None:
        for i in range(s["from"], s["to"] + 1):
            await self.call(lambda: n.write(s["stream"], {"type": "T", "data": {"n": i}}))

    async def flow_follow(self, n: Any, c: Any, s: Any) -> None:
        if "log" in s:
            follower = n.log(s["log"]).follow(start=s.get("from", 0))
        else:
            options = only(s, "stream", "category", "types", "history")
            follower = n.follow(**options, start=s.get("from", 0))
        f = self.followers[s["as"]] = Collected(follower)

        async def collect() -> None:
            try:
                async for x in follower:
                    f.got.append(x)
            except HoldfastError as e:
                f.error = e

        def collect_in_thread() -> None:
            try:
                for x in follower:
                    f.got.append(x)
            except HoldfastError as e:
                f.error = e

        if self.kind is Client:
            threading.Thread(target=collect_in_thread, daemon=True).start()
        else:
            self.collecting.append(asyncio.create_task(collect()))

    async def flow_take(self, n: Any, c: Any, s: Any) -> list[Any]:
        f = self.followers[s["of"]]
        await until(lambda: len(f.got) >= f.taken + s["n"] or f.error is not None)
        if len(f.got) < f.taken + s["n"]:
            assert f.error
            raise f.error
        f.taken += s["n"]
        return f.got[f.taken - s["n"] : f.taken]

    async def flow_ended(self, n: Any, c: Any, s: Any) -> None:
        f = self.followers[s["of"]]
        await until(lambda: f.error is not None)
        assert f.error
        raise f.error

    async def flow_position(self, n: Any, c: Any, s: Any) -> Any:
        return self.followers[s["of"]].follower.position

    async def flow_follower_history(self, n: Any, c: Any, s: Any) -> Any:
        return self.followers[s["of"]].follower.history

    async def flow_update(self, n: Any, c: Any, s: Any) -> Any:
        operations = []
        for o in s["operations"]:
            made = {"namespace": self.ns, **o}
            if "append" in o:
                made["append"] = {**o["append"], "events": [with_bytes(e) for e in o["append"]["events"]]}
            if "enqueue" in o:
                made["enqueue"] = {"tasks": [with_bytes(t) for t in o["enqueue"]["tasks"]]}
            operations.append(made)
        return await self.call(lambda: c.update(operations, level=s.get("level")))

    async def flow_create_token(self, n: Any, c: Any, s: Any) -> Any:
        return await self.call(lambda: c.create_token(self.ns, s["role"]))

    async def flow_names(self, n: Any, c: Any, s: Any) -> None:
        for i, name in enumerate(s["good"]):
            message = {"type": "T", "data": {"n": i}}
            await self.call(lambda: n.write(name, message, expected=-1))
            assert await self.call(lambda: n.version(name)) == 0, name
            await self.call(lambda: n.save_position(name, 1))
            assert await self.call(lambda: n.load_position(name)) == 1, name
            await self.call(lambda: n.tasks.enqueue({"id": name, "kind": "k"}))
            assert (await self.call(lambda: n.tasks.get(name)))["id"] == name
        streams = await self.call(lambda: n.streams())
        assert sorted(x["stream"] for x in streams) == sorted(s["good"])
        self.harness.do(do="clear")
        for name in s["bad"]:
            calls: list[Callable[[], Any]] = [
                lambda: n.version(name), lambda: n.delete(name), lambda: n.load_position(name),
                lambda: n.subscription(name).info(), lambda: n.tasks.get(name), lambda: c.delete_namespace(name),
                lambda: n.log(name).delete(), lambda: n.tasks.pause(name), lambda: c.revoke_token(name),
                lambda: n.log("l").delete_offset(name),
            ]  # fmt: skip
            for call in calls:
                with pytest.raises(HoldfastError) as e:
                    await self.call(call)
                assert e.value.code == "bad_request", name
            with pytest.raises(HoldfastError) as e:
                await self.all(lambda: n.log(name).follow())
            assert e.value.code == "bad_request", name
        assert not self.harness.do(do="tries")

    async def flow_work(self, n: Any, c: Any, s: Any) -> None:
        saw: list[str] = []  # why those that wait ended, the same in a row once
        waits: list[None] = []  # one for each that does

        def ended(x: TaskRun) -> None:
            waits.pop()
            if (why := getattr(x.reason, "code", "stopping")) not in saw[-1:]:
                saw.append(why)

        def handler(script: list[str]) -> Callable[[TaskRun], Any]:
            calls = itertools.count()

            async def act(x: TaskRun, what: str, text: str) -> None:
                if what == "fail":
                    raise ValueError(text)
                if what == "dead":
                    raise Dead(text)
                if what == "snooze":
                    raise Snooze(float(text) / 1000)
                if what == "sleep":
                    await asyncio.sleep(float(text) / 1000)
                if what == "output":
                    await x.set_output(text.encode())
                if what == "then":
                    await x.complete_then({"kind": text, "queue": "then"})

            async def run(x: TaskRun) -> None:
                what, _, text = script[min(next(calls), len(script) - 1)].partition(":")
                if what != "wait":
                    return await act(x, what, text)
                waits.append(None)
                try:
                    await asyncio.Event().wait()
                finally:
                    ended(x)

            def plain(x: TaskRun) -> None:  # in a thread
                what, _, text = script[min(next(calls), len(script) - 1)].partition(":")
                if what != "wait":
                    return x.call(act(x, what, text))
                waits.append(None)
                x.ended.wait()
                ended(x)
                assert x.reason
                raise x.reason

            return plain if self.kind is Client else run

        self.own = AsyncClient(self.harness.url, token=self.harness.token)
        worker = Worker(
            self.own.namespace(self.ns).tasks,
            {kind: handler(script) for kind, script in s["script"].items()},
            queues=s["queues"],
            lease=s["lease_ms"] / 1000,
            concurrency=s["concurrency"],
            grace=s["grace_ms"] / 1000,
        )
        self.workers[s["as"]] = worker, asyncio.create_task(worker.run()), saw, waits

    async def flow_worker_saw(self, n: Any, c: Any, s: Any) -> Any:
        return self.workers[s["of"]][2]

    async def flow_worker_waits(self, n: Any, c: Any, s: Any) -> Any:
        return len(self.workers[s["of"]][3])

    async def flow_stop_worker(self, n: Any, c: Any, s: Any) -> None:
        worker, done, *_ = self.workers[s["of"]]
        worker.stop()
        await done

    async def flow_lose(self, n: Any, c: Any, s: Any) -> None:
        self.harness.do(do="clear")
        self.harness.do(do="fault", path="*", what="half" if s.get("half") else "unheard")

    async def flow_tries(self, n: Any, c: Any, s: Any) -> int:
        return sum(t.endswith(s["path"]) for t in self.harness.do(do="tries"))

    async def flow_mark(self, n: Any, c: Any, s: Any) -> None:
        self.marked = time.monotonic()

    async def flow_elapsed(self, n: Any, c: Any, s: Any) -> None:
        assert time.monotonic() - self.marked >= s["least_ms"] / 1000 - 0.002

    async def flow_storm(self, n: Any, c: Any, s: Any) -> Any:
        """Writes from eight writers, follows, and works, while the server is killed."""
        if os.environ.get("HOLDFAST_NIGHT"):
            s = {**s, **s["night"]}
        n = self.client({"direct": True, "retry_ms": 300_000}).namespace(self.ns)
        total, tasks, done = s["messages"], s["tasks"], 0
        runs: dict[str, int] = {}

        async def count(x: TaskRun) -> None:
            id = x.task["id"]
            runs[id] = runs.get(id, 0) + 1

        self.own = AsyncClient(self.harness.direct, token=self.harness.token)
        worker = Worker(self.own.namespace(self.ns).tasks, {"k": count}, lease=3)
        working = asyncio.create_task(worker.run())
        await self.flow_follow(n, c, {"as": "storm", "category": "s"})
        f = self.followers["storm"]

        async def write(writer: int) -> None:
            nonlocal done
            for i in range(writer, total, 8):
                message = {"type": "T", "data": {"n": i, "text": "ü🦊"}}
                await self.call(lambda: n.write(f"s-{writer}", message))
                if i < tasks:
                    task = {"id": f"t-{i}", "kind": "k", "keep_ms": 3_600_000}
                    await self.call(lambda: n.tasks.enqueue(task))
                done += 1

        async def kill() -> None:
            for i in range(1, s["kills"] + 1):
                await until(lambda: done >= total * i / (s["kills"] + 1), 600)
                await asyncio.to_thread(lambda: self.harness.do(do="kill" if i % 2 else "stop"))
                await asyncio.to_thread(lambda: self.harness.do(do="start"))

        await asyncio.gather(kill(), *(write(w) for w in range(8)))
        await until(lambda: len(f.got) >= total or f.error is not None, 300)
        assert f.error is None
        there = [m["data"]["n"] for m in await self.all(lambda: n.read(category="s"))]
        followed = [m["data"]["n"] for m in f.got]
        left, end = tasks, time.monotonic() + 300
        while left > 0 and time.monotonic() < end:
            left = tasks - (await self.call(lambda: n.tasks.queue("default")))["counts"].get("completed", 0)
        worker.stop()
        await working
        return {
            "lost": total - len(set(there)), "twice": len(there) - len(set(there)),
            "followed_lost": total - len(set(followed)), "followed_twice": len(followed) - len(set(followed)),
            "tasks_open": left + tasks - len(runs),
        }  # fmt: skip


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "write": lambda n, c, s: n.write(s["stream"], *s["messages"], **only(s, "expected", "level")),
    "last": lambda n, c, s: n.last(s["stream"], **only(s, "type")),
    "version": lambda n, c, s: n.version(s["stream"]),
    "streams": lambda n, c, s: n.streams(s["prefix"]),
    "categories": lambda n, c, s: n.categories(),
    "truncate": lambda n, c, s: n.truncate(s["stream"], s["before"]),
    "delete": lambda n, c, s: n.delete(s["stream"]),
    "tombstone": lambda n, c, s: n.tombstone(s["stream"]),
    "save_position": lambda n, c, s: n.save_position(s["name"], s["position"]),
    "load_position": lambda n, c, s: n.load_position(s["name"]),
    "delete_position": lambda n, c, s: n.delete_position(s["name"]),
    "history": lambda n, c, s: n.history(),
    "append": lambda n, c, s: n.log(s["log"]).append(*map(with_bytes, s["events"]), **only(s, "after", "level")),
    "log_info": lambda n, c, s: n.log(s["log"]).info(),
    "truncate_log": lambda n, c, s: n.log(s["log"]).truncate(s["before"]),
    "save_offset": lambda n, c, s: n.log(s["log"]).save_offset(s["name"], s["position"]),
    "load_offset": lambda n, c, s: n.log(s["log"]).load_offset(s["name"]),
    "enqueue": lambda n, c, s: n.tasks.enqueue(*map(with_bytes, s["tasks"]), **only(s, "level")),
    "claim": lambda n, c, s: n.tasks.claim(
        *s.get("queues", []), **only(s, "n", "worker"), lease=s.get("lease_ms", 30_000) / 1000
    ),
    "heartbeat": lambda n, c, s: n.tasks.heartbeat(*s["leases"]),
    "complete": lambda n, c, s: n.tasks.complete(*s["leases"]),
    "complete_then": lambda n, c, s: n.tasks.complete_then(s["lease"], *map(with_bytes, s["then"])),
    "fail": lambda n, c, s: n.tasks.fail(s["lease"], s["message"], **only(s, "dead")),
    "snooze": lambda n, c, s: n.tasks.snooze(s["lease"], s["for_ms"] / 1000),
    "output": lambda n, c, s: n.tasks.set_output(s["lease"], base64.b64decode(s["output"])),
    "task": lambda n, c, s: n.tasks.get(s["id"]),
    "tasks": lambda n, c, s: n.tasks.find(**only(s, "queue", "state")),
    "cancel": lambda n, c, s: n.tasks.cancel(s["id"]),
    "retry": lambda n, c, s: n.tasks.retry(s["id"]),
    "delete_task": lambda n, c, s: n.tasks.delete(s["id"]),
    "queue": lambda n, c, s: n.tasks.queue(s["name"]),
    "pause_queue": lambda n, c, s: n.tasks.pause(s["name"]),
    "resume_queue": lambda n, c, s: n.tasks.resume(s["name"]),
    "subscribe": lambda n, c, s: n.subscribe(s["name"], only(s, "category", "lease_ms", "max_attempts")),
    "subscription": lambda n, c, s: n.subscription(s["name"]).info(),
    "claim_messages": lambda n, c, s: n.subscription(s["name"]).claim(s["max"]),
    "ack": lambda n, c, s: n.subscription(s["name"]).ack(*s["deliveries"]),
    "extend": lambda n, c, s: n.subscription(s["name"]).extend(*s["deliveries"]),
    "fail_messages": lambda n, c, s: n.subscription(s["name"]).fail(*s["deliveries"], reason=s["reason"]),
    "return_messages": lambda n, c, s: n.subscription(s["name"]).give_back(*s["deliveries"]),
    "park": lambda n, c, s: n.subscription(s["name"]).park(*s["deliveries"], reason=s["reason"]),
    "parked": lambda n, c, s: n.subscription(s["name"]).parked(),
    "replay": lambda n, c, s: n.subscription(s["name"]).replay(*s["globals"]),
    "discard": lambda n, c, s: n.subscription(s["name"]).discard(*s["globals"]),
    "create_namespace": lambda n, c, s: c.create_namespace(s["as"]),
    "delete_namespace": lambda n, c, s: c.delete_namespace(s["as"]),
    "revoke_token": lambda n, c, s: c.revoke_token(s["id"]),
}


def only(s: Any, *keys: str) -> dict[str, Any]:
    return {k: s[k] for k in keys if k in s}


async def until(done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"it has not come in {seconds} s"
        await asyncio.sleep(0.005)


def with_bytes(x: Any) -> Any:
    """Makes bytes of the texts that scenarios have for them."""
    fields = ("payload",) if "kind" in x else ("data", "metadata")
    return {k: base64.b64decode(v) if k in fields else v for k, v in x.items()}


def normal(value: Any) -> Any:
    """Makes the texts of bytes, as scenarios have them."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [normal(v) for v in value]
    if isinstance(value, dict):
        return {k: normal(v) for k, v in value.items()}
    return value


def differs(want: Any, got: Any, at: str) -> str | None:
    """Says where something is not as it is wanted. Objects may have more than is wanted."""
    wrong = f"{at or 'the result'} is {short(got)}, want {short(want)}"
    if isinstance(want, dict):
        if "$least" in want:
            return None if got >= want["$least"] else wrong
        if "$length" in want:
            return None if len(got) == want["$length"] else wrong
        if "$numbered" in want:
            first, last = want["$numbered"]
            numbers = [m["data"]["n"] for m in got]
            return None if numbers == list(range(first, last + 1)) else f"{at}: {numbers}, want {first} to {last}"
        if not isinstance(got, dict):
            return wrong
        return next(filter(None, (differs(v, got.get(k), f"{at}.{k}") for k, v in want.items())), None)
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return wrong
        return next(
            filter(None, (differs(w, g, f"{at}[{i}]") for i, (w, g) in enumerate(zip(want, got, strict=True)))), None
        )
    # What is false or empty may be absent.
    return None if want == got or (want in (False, "") and got is None) else wrong


def test_client_and_asyncio_have_the_same() -> None:
    """What the client for asyncio can do, the other one can."""
    for one, other in [(AsyncClient, Client)]:
        names = {n for n, _ in inspect.getmembers(one) if not n.startswith("_")}
        assert {"close" if n == "aclose" else n for n in names} == {
            n for n, _ in inspect.getmembers(other) if not n.startswith("_")
        }
