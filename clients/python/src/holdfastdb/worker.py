"""Runs tasks: the function of their kind, under a lease that is extended as long as it works."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from . import api
from ._async.client import AsyncTasks
from .errors import BadRequest, Cancelled, Corrupt, HoldfastError, LeaseLost, Poisoned, TooLarge, error_of

T = TypeVar("T")

_log = logging.getLogger("holdfastdb.worker")
_FIRST_PAUSE, _MOST_PAUSE = 0.1, 10.0


class WorkerStopping(Exception):
    """The reason of a run when its worker stops. If the function then raises, the task is given back."""


class StillRunning(Exception):
    """Functions have not returned though they were told to. Their tasks are claimed again when the leases run out."""


class Dead(Exception):
    """Raised by a function, it lets the task die, whatever attempts it has left."""


class RetryIn(Exception):
    """Raised by a function, it lets the task be tried again in so many seconds, if it has attempts left."""

    def __init__(self, seconds: float, *args: object) -> None:
        super().__init__(*args)
        self.seconds = seconds


class Snooze(Exception):
    """Raised by a function, it is no failure: the task runs again in so many seconds; the attempt is not counted."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds} s")
        self.seconds = seconds


class TaskRun:
    """One attempt at a task."""

    def __init__(self, tasks: AsyncTasks, lease: api.Lease, held: float) -> None:
        self.task: api.Task = lease["task"]
        """What the task was when it was claimed."""
        self.reason: Exception | None = None
        """Why the function is to return: Cancelled, LeaseLost, WorkerStopping, or None."""
        self.ended = threading.Event()
        """Set together with the reason, for plain functions: coroutines are cancelled."""
        self._tasks, self._lease, self._expires = tasks, lease, time.monotonic() + held
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._inner: asyncio.Task[Any] | None = None
        self._settling = self._completed = False

    def args(self) -> Any:
        """The payload, read as JSON; None if there is none."""
        payload = self.task.get("payload")
        return json.loads(payload) if payload else None

    async def set_output(self, output: object) -> None:
        """Stores progress or a result with the task: bytes as they are, anything else as JSON."""
        data = bytes(output) if isinstance(output, (bytes, bytearray)) else json.dumps(output).encode()
        await self._tasks.set_output(self._lease, data)

    async def complete_then(self, *then: api.NewTask) -> list[api.Enqueued]:
        """Completes the task in one commit with tasks that are to run then. After it, the function returns."""
        self._settling = True
        try:
            results = await self._tasks.complete_then(self._lease, *then)
            self._completed = True
            return results
        finally:
            self._settling = self._completed

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, as that of `set_output`, for a plain function, which has a thread of its own."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self, reason: Exception) -> None:
        self.reason = self.reason or reason
        self.ended.set()
        if self._inner is not None:
            self._inner.cancel()

    def _lose(self, reason: HoldfastError) -> None:
        self._lost.set()
        self._end(reason)


Handler = Callable[[TaskRun], Any]
"""Does what a task says: a coroutine function, or a plain one, which then runs in a thread. It is called for several
tasks at once."""


class Worker:
    """Claims tasks and runs them.

    A task is completed when its function returns. What that raises is a failure, after which the task is tried again
    until its attempts are used up, or what `Dead`, `RetryIn` and `Snooze` say. A task is run at least once: again if
    the program is killed, or does not reach the server for as long as a lease lasts.

    handlers are the functions by kind. Tasks are claimed from queues, the first ones first, `concurrency` at once. A
    task is held for `lease` seconds without a heartbeat; there is one every third of that. When the worker stops,
    functions may go on for `grace` seconds before they are told to end, and then again before `run` returns without
    them. What becomes of tasks is in the log `holdfastdb.worker`.
    """

    def __init__(
        self,
        tasks: AsyncTasks,
        handlers: Mapping[str, Handler],
        *,
        queues: tuple[str, ...] | list[str] = (),
        concurrency: int = 16,
        lease: float = 30.0,
        grace: float = 30.0,
        name: str | None = None,
    ) -> None:
        if not handlers or concurrency < 1 or lease < 0.003 or grace < 0:
            detail = "there is a handler, concurrency is 1 at least, lease 0.003 s, and grace 0"
            raise BadRequest("new worker", code="bad_request", detail=detail)
        self._tasks, self._handlers, self._queues = tasks, dict(handlers), tuple(queues)
        self._concurrency, self._lease, self._grace = concurrency, lease, grace
        self._name = name or f"{socket.gethostname()[:100]}-{os.getpid()}"
        self._running: dict[TaskRun, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._ending = False
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="holdfastdb")

    def stop(self) -> None:
        """Lets `run` end. It is called in the thread of the event loop, as by `loop.add_signal_handler`."""
        self._stop.set()

    async def run(self) -> None:
        """Claims and runs tasks until `stop`, or until it is cancelled. Then it claims no more and waits for what runs.

        Errors that may pass are logged, and claiming is tried again; others stop it, too, and are raised. It is called
        once.
        """
        beats = asyncio.create_task(self._beat())
        try:
            await self._claim()
        finally:
            try:
                await self._finish()
            finally:
                beats.cancel()
                self._threads.shutdown(wait=False)

    async def _finish(self) -> None:
        idle = self._grace > 0 and await self._idle(self._grace)
        self._ending = True
        for x in list(self._running):
            x._end(WorkerStopping("the worker is stopping"))
        if not idle and not await self._idle(self._grace or 30.0):
            ids = ", ".join(str(x.task.get("id")) for x in self._running)
            for x in list(self._running):
                x._lose(_lost("the worker has ended"))
            raise StillRunning(f"functions of these tasks still run: {ids}")

    async def _idle(self, seconds: float) -> bool:
        """Waits until nothing runs; False if that takes longer."""
        if not self._running:
            return True
        _, pending = await asyncio.wait(list(self._running.values()), timeout=seconds)
        return not pending

    async def _claim(self) -> None:
        pause = _FIRST_PAUSE
        stopped = asyncio.create_task(self._stop.wait())
        try:
            while not self._stop.is_set():
                free = self._concurrency - len(self._running)
                if free <= 0:
                    await asyncio.wait([stopped, *self._running.values()], return_when=asyncio.FIRST_COMPLETED)
                    continue
                claim = asyncio.create_task(
                    self._tasks.claim(*self._queues, n=free, lease=self._lease, worker=self._name, wait=True)
                )
                try:
                    await asyncio.wait([stopped, claim], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    claim.cancel()
                    await asyncio.wait([claim])
                    # What was claimed is begun in any case; what comes when all stops is given back.
                    if not claim.cancelled() and claim.exception() is None:
                        for lease in claim.result():
                            self._begin(lease)
                if claim.cancelled():
                    continue
                e = claim.exception()
                if e is None:
                    pause = _FIRST_PAUSE
                    continue
                if not isinstance(e, HoldfastError) or _permanent(e):
                    raise e
                _log.warning("tasks cannot be claimed; trying again in %.1f s: %s", pause, e)
                await asyncio.wait([stopped], timeout=pause)
                pause = min(2 * pause, _MOST_PAUSE)
        finally:
            stopped.cancel()

    def _begin(self, lease: api.Lease) -> None:
        x = TaskRun(self._tasks, lease, self._lease)
        work = asyncio.create_task(self._execute(x, self._stop.is_set()))
        self._running[x] = work
        work.add_done_callback(lambda _: self._running.pop(x, None))

    async def _execute(self, x: TaskRun, give_back: bool) -> None:
        """Runs a task, and tells the server what became of it."""
        tasks, lease = self._tasks, x._lease
        if give_back:
            return await self._report(x, "given back", lambda: tasks.snooze(lease, 0), logging.INFO)
        error: BaseException | None = None
        try:
            await self._call(x)
        except BaseException as e:
            error = e
        x._settling = True
        if x._completed:
            if error is not None:
                _log.warning("task %s completed, and then its function failed: %r", x.task.get("id"), error)
            return
        if error is None:
            return await self._report(x, "completed", lambda: self._complete(x), logging.DEBUG)
        if isinstance(error, Snooze):
            seconds = error.seconds
            return await self._report(x, "snoozed", lambda: tasks.snooze(lease, seconds), logging.DEBUG)
        dead = isinstance(error, Dead)
        retry_in = max(error.seconds, 0.001) if isinstance(error, RetryIn) else 0.0
        if isinstance(x.reason, WorkerStopping) and not dead and not retry_in:
            return await self._report(x, "given back", lambda: tasks.snooze(lease, 0), logging.INFO)
        message = _sendable(str(error)) or type(error).__name__
        stack = _sendable("".join(traceback.format_exception(error)))
        last = dead or x.task["attempt"] >= (x.task.get("max_attempts") or 25)
        _log.log(logging.ERROR if last else logging.WARNING, "task %s failed: %s", x.task.get("id"), message)
        await self._report(
            x,
            "failed",
            lambda: tasks.fail(lease, message, stack=stack, retry_in=retry_in, dead=dead),
            logging.DEBUG,
        )

    async def _call(self, x: TaskRun) -> None:
        kind = x.task["kind"]
        handler = self._handlers.get(kind)
        if handler is None:
            raise LookupError(f"no handler for the kind {kind!r}")
        if not inspect.iscoroutinefunction(handler):
            if self._ending:
                x._end(WorkerStopping("the worker is stopping"))
            result = await asyncio.get_running_loop().run_in_executor(self._threads, handler, x)
            if not isinstance(result, Awaitable):
                return
        else:
            result = handler(x)
        x._inner = asyncio.ensure_future(result)
        if self._ending:
            x._end(WorkerStopping("the worker is stopping"))
        await asyncio.wait([x._inner])
        if x._inner.cancelled():
            raise x.reason or asyncio.CancelledError("the function was cancelled")
        x._inner.result()

    async def _complete(self, x: TaskRun) -> None:
        [result] = await self._tasks.complete(x._lease)
        if code := result.get("code"):
            raise error_of("task complete", code, detail=result.get("detail", ""))

    async def _report(self, x: TaskRun, what: str, ask: Callable[[], Coroutine[Any, Any, Any]], level: int) -> None:
        """Asks the server for something until it is done, or can be done no more."""
        id, pause = x.task.get("id"), _FIRST_PAUSE
        while True:
            try:
                async with asyncio.timeout(self._lease):
                    await ask()
                _log.log(level, "task %s %s", id, what)
                return
            except Cancelled:
                _log.info("task %s was cancelled while it ran", id)
                return
            except LeaseLost as e:
                _log.warning("task %s was taken away while it ran: it has not %s: %s", id, what, e)
                return
            except (HoldfastError, TimeoutError) as e:
                if _permanent(e):
                    _log.error("the server does not learn that task %s has %s: %s", id, what, e)
                    return
                why = str(e) or f"no answer within {self._lease:g} s, the time of a lease"
                _log.warning("the server does not learn that task %s has %s; trying again: %s", id, what, why)
            try:
                await asyncio.wait_for(x._lost.wait(), pause)
            except TimeoutError:
                pause = min(2 * pause, _MOST_PAUSE)
                continue
            _log.error("the lease of task %s was lost before the server learned that it has %s", id, what)
            return

    async def _beat(self) -> None:
        """Extends the leases every third of their time. One whose end would come before the next is given up."""
        every = self._lease / 3
        while True:
            await asyncio.sleep(every)
            held = [x for x in self._running if not x._lost.is_set()]
            if not held:
                continue
            asked = time.monotonic()
            try:
                async with asyncio.timeout(every):
                    results = await self._tasks.heartbeat(*(x._lease for x in held))
            except (HoldfastError, TimeoutError) as e:
                _log.warning("%d leases cannot be extended: %r", len(held), e)
                for x in held:
                    if time.monotonic() + every >= x._expires:
                        x._lose(_lost("it could not be extended"))
                continue
            for x, result in zip(held, results, strict=True):
                code = result.get("code") or ""
                if not code:
                    x._expires = asked + self._lease
                elif x._settling:  # just given up
                    continue
                elif code == "cancelled":
                    x._lose(Cancelled("heartbeat", code=code, detail="the task was cancelled"))
                else:
                    x._lose(_lost(result.get("detail") or code))


def _sendable(text: str) -> str:
    """The beginning of a text, of which the server keeps less. Bytes of the names of files can be no UTF-8 in it."""
    return text[:65536].encode("utf-8", "backslashreplace").decode()


def _lost(detail: str) -> LeaseLost:
    return LeaseLost("heartbeat", code="lease_lost", detail=detail)


def _permanent(e: BaseException) -> bool:
    """Whether asking again is no use."""
    return isinstance(e, (Poisoned, Corrupt, BadRequest, TooLarge, LeaseLost, Cancelled))


__all__ = ["Dead", "Handler", "RetryIn", "Snooze", "StillRunning", "TaskRun", "Worker", "WorkerStopping"]
