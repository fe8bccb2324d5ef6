"""A client of a Holdfast server.

`AsyncClient` is for asyncio, `Client` the same without it. `Worker` runs tasks, and `api` has the types of what is sent
and read, as dictionaries.
"""

from . import api, errors
from ._async.client import AsyncClient, AsyncFollower, AsyncLog, AsyncNamespace, AsyncSubscription, AsyncTasks
from ._sync.client import Client, Follower, Log, Namespace, Subscription, Tasks
from ._wire import Level, new_id
from .errors import HoldfastError
from .worker import Dead, RetryIn, Snooze, StillRunning, TaskRun, Worker, WorkerStopping

__all__ = [
    "AsyncClient",
    "AsyncFollower",
    "AsyncLog",
    "AsyncNamespace",
    "AsyncSubscription",
    "AsyncTasks",
    "Client",
    "Dead",
    "Follower",
    "HoldfastError",
    "Level",
    "Log",
    "Namespace",
    "RetryIn",
    "Snooze",
    "StillRunning",
    "Subscription",
    "TaskRun",
    "Tasks",
    "Worker",
    "WorkerStopping",
    "api",
    "errors",
    "new_id",
]
