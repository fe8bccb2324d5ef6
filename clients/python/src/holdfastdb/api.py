"""Made by scripts/generate.py, of docs/openapi.json. Do not edit it."""

from __future__ import annotations
from typing import Any, Literal, NotRequired, TypedDict


class Appended(TypedDict):
    """
    Appended is where the events of an append are.
    """

    first: int
    last: int
    repeated: NotRequired[bool]


class Backup(TypedDict):
    """
    Backup says how far a continuous backup is.
    """

    bytes: int
    lag_ms: int
    objects: int
    trouble: NotRequired[str]


class Category(TypedDict):
    """
    Category describes a category.
    """

    category: str
    messages: int
    streams: int


class ClaimMessages(TypedDict):
    """
    ClaimMessages claims messages of a subscription.
    """

    max: NotRequired[int | None]
    wait_ms: NotRequired[int | None]


class ClaimTasks(TypedDict):
    """
    ClaimTasks claims tasks.
    """

    lease_ms: NotRequired[int | None]
    n: NotRequired[int | None]
    queues: NotRequired[list[str]]
    wait_ms: NotRequired[int | None]
    worker: NotRequired[str | None]


class Cluster(TypedDict):
    """
    Cluster is a database of PostgreSQL with spaces in it.
    """

    address: str
    alive: int
    cluster: int
    seenMs: int
    spaces: int
    trouble: NotRequired[str]


class Counted(TypedDict):
    """
    Counted tells how many something was done with.
    """

    count: int


class Counters(TypedDict):
    """
    Counters are an engine's; -1 is what it cannot tell.
    """

    bytes_written: int
    commits: int
    disk_bytes: int
    files: int
    groups: int
    memory_bytes: int
    stalls: int
    standbys: int
    standbys_needed: int
    syncs: int


"""
Delivery is a message that a consumer has for the time of its lease.
"""
Delivery = TypedDict(
    "Delivery",
    {
        "attempt": int,
        "data": dict[str, Any],
        "global": int,
        "id": str,
        "metadata": NotRequired[dict[str, Any]],
        "position": int,
        "stream": str,
        "time": str,
        "token": int,
        "type": str,
    },
)


"""
DeliveryRef names a delivery.
"""
DeliveryRef = TypedDict(
    "DeliveryRef",
    {
        "global": int,
        "token": int,
    },
)


class Enqueued(TypedDict):
    """
    Enqueued is what became of one task of an Enqueue.
    """

    existing: NotRequired[bool]
    id: str


class Event(TypedDict):
    """
    Event is an event of a log.
    """

    data: NotRequired[bytes]
    id: NotRequired[str]
    metadata: NotRequired[bytes]
    origin: NotRequired[str]
    position: int
    time: str
    type: NotRequired[str]


class Events(TypedDict):
    """
    Events is a page of events.
    """

    events: list[Event]
    history: str
    next: int


class Globals(TypedDict):
    """
    Globals name parked messages.
    """

    globals: list[int]


class Imported(TypedDict):
    """
    Imported is how an import of messages ended.
    """

    imported: int
    known: int
    last: int


class LeaseRef(TypedDict):
    """
    LeaseRef names a lease.
    """

    id: str
    token: int


class LeaseRefs(TypedDict):
    """
    LeaseRefs name leases.
    """

    leases: list[LeaseRef]


class LeaseResult(TypedDict):
    """
    LeaseResult is what became of one lease of several. Code is "" if all is well.
    """

    code: NotRequired[str]
    detail: NotRequired[str]
    until: NotRequired[str]


class LeaseResults(TypedDict):
    """
    LeaseResults are in the order of the leases.
    """

    results: list[LeaseResult]


"""
Message is a message that is there.
"""
Message = TypedDict(
    "Message",
    {
        "data": dict[str, Any],
        "global": int,
        "id": str,
        "metadata": NotRequired[dict[str, Any]],
        "position": int,
        "stream": str,
        "time": str,
        "type": str,
    },
)


class Messages(TypedDict):
    """
    Messages is a page of messages.
    """

    history: str
    messages: list[Message]
    next: int


class Namespace(TypedDict):
    """
    Namespace describes a namespace.
    """

    created: str
    description: str
    id: str
    last: int
    messages: int
    metadata: NotRequired[dict[str, Any]]
    space: NotRequired[int]
    streams: int
    token: NotRequired[str]


class NewEvent(TypedDict):
    """
    NewEvent is an event to be appended, or a line of an import.
    """

    data: NotRequired[bytes | None]
    id: NotRequired[str | None]
    metadata: NotRequired[bytes | None]
    origin: NotRequired[str | None]
    position: NotRequired[int | None]
    time: NotRequired[str | None]
    type: NotRequired[str | None]


class NewMessage(TypedDict):
    """
    NewMessage is a message to be written.
    """

    data: dict[str, Any]
    id: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any] | None]
    time: NotRequired[str | None]
    type: str


class NewNamespace(TypedDict):
    """
    NewNamespace is how a namespace is created.
    """

    description: NotRequired[str | None]
    id: str
    metadata: NotRequired[dict[str, Any] | None]


class NewTask(TypedDict):
    """
    NewTask is a task to be enqueued. What is absent has its default.
    """

    after: NotRequired[list[str]]
    at: NotRequired[str | None]
    backoff_first_ms: NotRequired[int | None]
    backoff_max_ms: NotRequired[int | None]
    delay_ms: NotRequired[int | None]
    id: NotRequired[str | None]
    keep_ms: NotRequired[int | None]
    key: NotRequired[str | None]
    kind: str
    max_attempts: NotRequired[int | None]
    payload: NotRequired[bytes | None]
    priority: NotRequired[int | None]
    queue: NotRequired[str | None]
    sequence: NotRequired[str | None]
    unique: NotRequired[str | None]
    unique_for_ms: NotRequired[int | None]


class NewToken(TypedDict):
    """
    NewToken is how a token is created.
    """

    description: NotRequired[str | None]
    expires: NotRequired[str | None]
    namespace: str
    role: Literal["admin", "write", "query", "read"]


class Node(TypedDict):
    """
    Node is one of several processes.
    """

    address: str
    alive: bool
    clusters: list[int]
    protocol: int
    spaces: int
    version: str


"""
ParkedMessage is a message that is not delivered any more.
"""
ParkedMessage = TypedDict(
    "ParkedMessage",
    {
        "at": str,
        "attempts": int,
        "data": dict[str, Any],
        "global": int,
        "id": str,
        "metadata": NotRequired[dict[str, Any]],
        "position": int,
        "reason": str,
        "stream": str,
        "time": str,
        "type": str,
    },
)


class Periodic(TypedDict):
    """
    Periodic is a periodic task that a program has added to the store.
    """

    added: bool
    last: str
    name: str
    next: NotRequired[str]
    refused: int


class Position(TypedDict):
    """
    Position is a consumer's position, or that of a subscription of a log.
    """

    position: int


class Problem(TypedDict):
    """
    Problem is the body of an error (RFC 9457, application/problem+json).
    """

    actual: NotRequired[int]
    code: str
    detail: str
    expected: NotRequired[int]
    operation: NotRequired[int]
    request: NotRequired[str]
    status: int
    title: str


class Query(TypedDict):
    """
    Query is a statement of SQL that reads.
    """

    args: NotRequired[list[Any] | dict[str, Any] | None]
    explain: NotRequired[bool | None]
    format: NotRequired[Literal["json", "csv"]]
    memory_bytes: NotRequired[int | None]
    rows: NotRequired[int | None]
    sql: str
    time_ms: NotRequired[int | None]


class QueryLine(TypedDict):
    """
    QueryLine is a line of the answer to a query that is no row: the first one has columns, the last one rows or problem. Between them, each row is a list of its values: null, a number, a text, or bytes as {"base64": "AQID"}. A number with a point or an exponent is a float, another one an integer; 9e999 is infinite. An answer without a last line broke off.
    """

    columns: NotRequired[list[str]]
    problem: NotRequired[Problem]
    rows: NotRequired[int]


class QueryTable(TypedDict):
    """
    QueryTable is a table.
    """

    name: str
    sql: str


class QueueOptions(TypedDict):
    """
    QueueOptions are the limits of a queue.
    """

    concurrency: NotRequired[int | None]
    keep_dead_ms: NotRequired[int | None]
    keep_ms: NotRequired[int | None]
    key_concurrency: NotRequired[int | None]
    key_rate_n: NotRequired[int | None]
    key_rate_per_ms: NotRequired[int | None]
    rate_n: NotRequired[int | None]
    rate_per_ms: NotRequired[int | None]


class Removed(TypedDict):
    """
    Removed tells how many messages or events were removed.
    """

    removed: int


class Retention(TypedDict):
    """
    Retention says which messages of a stream are kept; 0 is no limit.
    """

    max_age_ms: NotRequired[int | None]
    max_count: NotRequired[int | None]


class Setting(TypedDict):
    """
    Setting is one of an engine's settings, as it was read back.
    """

    name: str
    value: str


class Settle(TypedDict):
    """
    Settle says which deliveries are acknowledged, extended, failed or parked.
    """

    deliveries: list[DeliveryRef]
    reason: NotRequired[str | None]


class SnoozeTask(TypedDict):
    """
    SnoozeTask puts a task back for a while.
    """

    for_ms: int
    id: str
    token: int


class Space(TypedDict):
    """
    Space is a part of the data that one process owns at a time.
    """

    cluster: int
    epoch: int
    free: bool
    host: str
    owner: str
    space: int
    standbyLag: int
    standbys: int
    standbysNeeded: int
    stillMs: NotRequired[int]
    transactions: int


class Stream(TypedDict):
    """
    Stream describes a stream.
    """

    last: NotRequired[str]
    stream: str
    version: int


class Subscriber(TypedDict):
    """
    Subscriber is a subscription or a snapshot of a log.
    """

    lag: int
    missed: NotRequired[int]
    name: str
    position: int


"""
Subscription is a consumer group whose members acknowledge messages.
"""
Subscription = TypedDict(
    "Subscription",
    {
        "behind": NotRequired[int | None],
        "category": NotRequired[str | None],
        "done": NotRequired[int | None],
        "embedded": NotRequired[bool | None],
        "from": NotRequired[int | None],
        "lease_ms": NotRequired[int | None],
        "max_attempts": NotRequired[int | None],
        "name": NotRequired[str | None],
        "parked": NotRequired[int | None],
        "pending": NotRequired[int | None],
        "prefix": NotRequired[str | None],
        "types": NotRequired[list[str]],
        "window": NotRequired[int | None],
    },
)


class TaskFailure(TypedDict):
    """
    TaskFailure is why an attempt failed.
    """

    attempt: NotRequired[int | None]
    message: str
    stack: NotRequired[str | None]
    time: NotRequired[str | None]


class TaskOutput(TypedDict):
    """
    TaskOutput sets the output of a task in hand.
    """

    id: str
    output: bytes
    token: int


class Token(TypedDict):
    """
    Token describes a token.
    """

    created: str
    description: NotRequired[str]
    expires: NotRequired[str]
    id: str
    namespace: str
    role: str
    secret: NotRequired[str]


class Truncate(TypedDict):
    """
    Truncate removes events below a position.
    """

    before: int


class Verified(TypedDict):
    """
    Verified is what a verification has found.
    """

    bytes: int
    keys: int
    problems: list[str]


class Write(TypedDict):
    """
    Write writes messages to a stream.
    """

    expected: NotRequired[int | None]
    messages: list[NewMessage]
    stream: str


"""
Written is where the messages of a Write are, in a row.
"""
Written = TypedDict(
    "Written",
    {
        "global": int,
        "position": int,
        "repeated": NotRequired[bool],
        "stream": str,
    },
)


class Append(TypedDict):
    """
    Append appends events, all or none.
    """

    after: NotRequired[int | None]
    events: list[NewEvent]


class CompleteTask(TypedDict):
    """
    CompleteTask completes one task, and enqueues those that come next in the same commit.
    """

    id: str
    then: NotRequired[list[NewTask]]
    token: int


class Deliveries(TypedDict):
    """
    Deliveries are what was claimed.
    """

    deliveries: list[Delivery]


class Enqueue(TypedDict):
    """
    Enqueue adds tasks, all or none.
    """

    tasks: list[NewTask]


class EnqueueResult(TypedDict):
    """
    EnqueueResult is the answer to an Enqueue, in the same order.
    """

    results: list[Enqueued]


class FailTask(TypedDict):
    """
    FailTask says that an attempt has failed.
    """

    dead: NotRequired[bool | None]
    failure: TaskFailure
    id: str
    retry_in_ms: NotRequired[int | None]
    token: int


class Log(TypedDict):
    """
    Log describes a log of events. Subscriptions and Snapshots are told by GET of the one log, not in lists.
    """

    first: int
    last: int
    name: str
    snapshots: NotRequired[list[Subscriber]]
    subscriptions: NotRequired[list[Subscriber]]


class LogAppend(TypedDict):
    """
    LogAppend appends events to a log, which is made if it is not there, also for a transaction that is refused.
    """

    after: NotRequired[int | None]
    events: list[NewEvent]
    log: str


class Nodes(TypedDict):
    """
    Nodes is what one of several processes sees of all.
    """

    clusters: list[Cluster]
    nodes: list[Node]
    seenMs: int
    self: str
    spaces: list[Space]


class Operation(TypedDict):
    """
    Operation is one of a transaction: it has one of the fields beside Namespace.
    """

    append: NotRequired[LogAppend]
    complete: NotRequired[CompleteTask]
    enqueue: NotRequired[Enqueue]
    namespace: str
    write: NotRequired[Write]


class OperationResult(TypedDict):
    """
    OperationResult is what became of one operation of a transaction.
    """

    appended: NotRequired[Appended]
    enqueued: NotRequired[list[Enqueued]]
    written: NotRequired[Written]


class QueryInfo(TypedDict):
    """
    QueryInfo is what queries may read, and their limits. A limit of 0 is none.
    """

    at_once: int
    memory_bytes: int
    rows: int
    tables: list[QueryTable]
    time_ms: int


class Queue(TypedDict):
    """
    Queue is a queue and how it is doing.
    """

    counts: dict[str, int]
    name: str
    options: QueueOptions
    paused: bool


class Server(TypedDict):
    """
    Server describes a server.
    """

    backup: NotRequired[Backup]
    caveats: NotRequired[list[str]]
    counters: Counters
    engine: str
    level: str
    loss_window_ms: int
    namespaces: int
    ready: bool
    settings: list[Setting]
    started: str
    trouble: NotRequired[str]
    unsynced: bool
    version: str


class Task(TypedDict):
    """
    Task is what is known of a task.
    """

    after: NotRequired[list[str]]
    at: NotRequired[str]
    attempt: int
    backoff_first_ms: NotRequired[int]
    backoff_max_ms: NotRequired[int]
    created: str
    delay_ms: NotRequired[int]
    due: NotRequired[str]
    failures: NotRequired[list[TaskFailure]]
    finished: NotRequired[str]
    id: NotRequired[str]
    keep_ms: NotRequired[int]
    key: NotRequired[str]
    kind: str
    lease_until: NotRequired[str]
    max_attempts: NotRequired[int]
    output: NotRequired[bytes]
    payload: NotRequired[bytes]
    priority: NotRequired[int]
    queue: NotRequired[str]
    sequence: NotRequired[str]
    started: NotRequired[str]
    state: str
    unique: NotRequired[str]
    unique_for_ms: NotRequired[int]
    worker: NotRequired[str]


class Tasks(TypedDict):
    """
    Tasks is a page of tasks.
    """

    next: NotRequired[str]
    tasks: list[Task]


class Transaction(TypedDict):
    """
    Transaction is a list of operations that are done in their order, all or none. Each sees what those before it have done.
    """

    operations: list[Operation]


class TransactionResult(TypedDict):
    """
    TransactionResult is the answer to a Transaction, in the same order.
    """

    repeated: NotRequired[bool]
    results: list[OperationResult]


class Lease(TypedDict):
    """
    Lease is the right to work on a task.
    """

    task: Task
    token: int
    until: str


class Leases(TypedDict):
    """
    Leases are what was claimed.
    """

    leases: list[Lease]
