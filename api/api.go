// Package api has the requests and answers of the server's /v1, as Go types: what package server/v1 serves and package
// client asks for.
//
//	curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v1/namespaces/default/messages?category=order
//	{"messages": [...], "next": 18, "history": "..."}    // api.Messages
//
// Bodies are JSON. Bytes that mean nothing to the server ([]byte) are in base64; the data and metadata of messages are
// JSON objects and stand there as they are. Durations are numbers of milliseconds (fields that end in _ms), times are
// RFC 3339. A field that is neither omitted when it is empty nor told in an answer alone is required, and null is no
// value; a field that is there twice, or in another case, is refused. No name that stands in a path is empty, ".", ".."
// or "/". An error is a [Problem].
package api

import (
	"encoding/json"
	"time"
)

// Headers.
const (
	// HeaderLevel names, in a request, the level that a write is to reach before it is answered, if that is stronger than
	// the server's, and in an answer what it was given: "memory", "process", "power" or "quorum".
	HeaderLevel = "Holdfast-Level"
	// HeaderRequestID identifies a request in the server's log. A client may choose it.
	HeaderRequestID = "X-Request-Id"
	// HeaderLastEventID is the id of the last event that a follower has seen, when it comes again.
	HeaderLastEventID = "Last-Event-ID"
	// HeaderHistory identifies, in the answer to a follower, what positions mean: see Messages.History.
	HeaderHistory = "Holdfast-History"
	// HeaderOwner is, in an answer of one of several processes, the address of the one that owns the data.
	HeaderOwner = "Holdfast-Owner"
)

// Problem is the body of an error (RFC 9457, application/problem+json).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Code is the class of the error: one of the codes of package api.
	Code string `json:"code"`
	// Expected and Actual are versions, or positions, of a conflict.
	Expected *int64 `json:"expected,omitempty"`
	Actual   *int64 `json:"actual,omitempty"`
	// Operation is the operation of a transaction that was refused, counted from 0.
	Operation *int `json:"operation,omitempty"`
	// Request is the id under which the server's log has more.
	Request string `json:"request,omitempty"`
}

// The codes of errors.
const (
	CodeBadRequest     = "bad_request"     // 400: malformed, or makes no sense
	CodeUnauthorized   = "unauthorized"    // 401: no token, or one that is not known, revoked or expired
	CodeForbidden      = "forbidden"       // 403: the token's role or namespace does not allow it
	CodeNotFound       = "not_found"       // 404: holdfast.ErrNotFound
	CodeNoNamespace    = "no_namespace"    // 404: message.ErrNoNamespace
	CodeMethod         = "method"          // 405
	CodeExists         = "exists"          // 409: message.ErrNamespaceExists, task.ErrExists
	CodeConflict       = "conflict"        // 409: message.ErrConflict, event.ErrConflict
	CodeIDTaken        = "id_taken"        // 409: message.ErrIDTaken, event.ErrIDTaken, event.ErrPartialRepeat
	CodePositionTaken  = "position_taken"  // 409: message.ErrPositionTaken
	CodeEnded          = "ended"           // 409: message.ErrEnded
	CodeState          = "state"           // 409: task.ErrState, task.ErrCycle
	CodeLocked         = "locked"          // 409: holdfast.ErrLocked: in use
	CodeLeaseLost      = "lease_lost"      // 409: task.ErrLeaseLost, message.ErrLeaseLost
	CodeCancelled      = "cancelled"       // 409: task.ErrCancelled
	CodeTruncated      = "truncated"       // 410: event.ErrTruncated
	CodeAhead          = "ahead"           // 409: event.ErrAhead
	CodeTooLarge       = "too_large"       // 413
	CodeEncoding       = "encoding"        // 415: bodies are not compressed
	CodeLevel          = "level"           // 400: holdfast.ErrLevel: the engine does not give it
	CodeTooMany        = "too_many"        // 429: with Retry-After
	CodeInternal       = "internal"        // 500
	CodeCorrupt        = "corrupt"         // 500: holdfast.ErrCorrupt
	CodeNotImplemented = "not_implemented" // 501: not with this engine
	CodeStopping       = "stopping"        // 503: with Retry-After
	CodeUnavailable    = "unavailable"     // 503: holdfast.ErrUnavailable: what the server needs is not there for now
	CodeFenced         = "fenced"          // 503: holdfast.ErrFenced: another process owns the data now
	CodePoisoned       = "poisoned"        // 503: holdfast.ErrPoisoned: outcome unknown, ask again with the same ids
	CodeFull           = "full"            // 507: holdfast.ErrFull: there is no room on the disk
)

// Namespace describes a namespace.
type Namespace struct {
	ID          string          `json:"id"`
	Description string          `json:"description"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Created     time.Time       `json:"created"`
	Messages    int64           `json:"messages"`
	Streams     int64           `json:"streams"`
	Last        int64           `json:"last"` // the highest global position, 0 if there is none
	// Space is where it lies, of several; lists tell it.
	Space int `json:"space,omitempty"`
	// Token is that of a namespace that has just been created, and never told again.
	Token string `json:"token,omitempty"`
}

// NewNamespace is how a namespace is created.
type NewNamespace struct {
	ID          string          `json:"id" is:"namespace" segment:"true"`
	Description string          `json:"description,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// Token describes a token.
type Token struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"` // "*" for all
	// Role is "admin", which may do everything, "write" or "query", or "read", whose rights all have.
	Role        string     `json:"role"`
	Description string     `json:"description,omitempty"`
	Created     time.Time  `json:"created"`
	Expires     *time.Time `json:"expires,omitempty"`
	// Secret is what clients send; it is told once, when the token is created.
	Secret string `json:"secret,omitempty"`
}

// Nodes is what one of several processes sees of all.
type Nodes struct {
	Self   string  `json:"self"` // the address of the process that says it; "" if it is the only one
	Nodes  []Node  `json:"nodes"`
	Spaces []Space `json:"spaces"`
	SeenMS int64   `json:"seenMs"` // how long ago it has seen it, or the cluster that it has not seen for longest
	// Clusters are those of PostgreSQL, in which the spaces are.
	Clusters []Cluster `json:"clusters"`
}

// Cluster is a database of PostgreSQL with spaces in it.
type Cluster struct {
	Cluster int    `json:"cluster"` // 0 for the first one, which has the list of namespaces
	Address string `json:"address"` // without a password
	SeenMS  int64  `json:"seenMs"`  // how long ago it was seen, or for how long it has never been
	Alive   int    `json:"alive"`   // how many processes give signs of life in it
	Spaces  int    `json:"spaces"`  // how many are in it; 0 while not all processes that live have been given it
	Trouble string `json:"trouble,omitempty"`
}

// Move is the request to move a namespace to another space.
type Move struct {
	Namespace string `json:"namespace"`
	Space     int    `json:"space"`
}

// Node is one of several processes.
type Node struct {
	Address  string `json:"address"`
	Version  string `json:"version"`
	Protocol int    `json:"protocol"` // of what processes say to each other
	Alive    bool   `json:"alive"`
	Spaces   int    `json:"spaces"` // how many it owns
	// Clusters are those in which it gives signs of life, as far as they are seen.
	Clusters []int `json:"clusters"`
}

// Space is a part of the data that one process owns at a time.
type Space struct {
	Space        int    `json:"space"`
	Cluster      int    `json:"cluster"` // in which it is
	Owner        string `json:"owner"`   // the address of a process; "" if it has none
	Host         string `json:"host"`    // the owner's machine
	Epoch        int64  `json:"epoch"`   // how often it was taken
	Transactions int64  `json:"transactions"`
	Free         bool   `json:"free"` // nobody owns it
	// StillMS is for how long nothing was heard of its owner, if that is long.
	StillMS int64 `json:"stillMs,omitempty"`
	// Standbys keep up with it, a commit at Quorum waits for StandbysNeeded of them, and the one that is furthest behind
	// has StandbyLag bytes of the log not on its disk. Each is -1 if its owner does not count them, or does not answer.
	Standbys       int64 `json:"standbys"`
	StandbysNeeded int64 `json:"standbysNeeded"`
	StandbyLag     int64 `json:"standbyLag"`
}

// NewToken is how a token is created.
type NewToken struct {
	Namespace   string     `json:"namespace" is:"namespace or *"`
	Role        string     `json:"role" enum:"admin,write,query,read"`
	Description string     `json:"description,omitempty"`
	Expires     *time.Time `json:"expires,omitempty" is:"moment"` // absent for never
}

// Message is a message that is there.
type Message struct {
	ID       string          `json:"id"`
	Stream   string          `json:"stream"`
	Position int64           `json:"position"` // in its stream, from 0
	Global   int64           `json:"global"`   // in its namespace, from 1
	Type     string          `json:"type"`
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Time     time.Time       `json:"time"`
}

// NewMessage is a message to be written.
type NewMessage struct {
	// ID is a UUID, 32 hexadecimal digits as 8-4-4-4-12, in which capital letters are the same as small ones. A write with
	// it that is repeated is done once, as long as the message is there; with another type or data it is refused
	// (id_taken). Absent for a new one.
	ID       string          `json:"id,omitempty" is:"uuid"`
	Type     string          `json:"type" is:"type"` // at most 64 KiB
	Data     json.RawMessage `json:"data"`           // an object, at most 1,000 deep
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// When it happened; absent for the present. Retention does not go by it.
	Time time.Time `json:"time,omitzero" is:"time"`
}

// Write writes messages to a stream.
type Write struct {
	Stream string `json:"stream" is:"stream" segment:"true"`
	// Expected is the version that the stream must have, -1 if it must not be there; absent for any.
	Expected *int64       `json:"expected,omitempty"`
	Messages []NewMessage `json:"messages" is:"some"`
}

// Written is where the messages of a Write are, in a row.
type Written struct {
	Stream   string `json:"stream"`
	Position int64  `json:"position"` // of the first
	Global   int64  `json:"global"`   // of the first
	Repeated bool   `json:"repeated,omitempty"`
}

// Messages is a page of messages.
type Messages struct {
	Messages []Message `json:"messages"`
	// Next is the position to read on from. There are no more for now if Messages is empty.
	Next int64 `json:"next"`
	// History identifies what positions mean. Who reads on from Next names it, and gets the problem "ahead" if the
	// namespace was put back to a copy meanwhile, has lost its end, or was made anew.
	History string `json:"history"`
}

// Stream describes a stream.
type Stream struct {
	Stream  string    `json:"stream"`
	Version int64     `json:"version"`       // the highest position that a message of it has had
	Last    time.Time `json:"last,omitzero"` // when the last one was written; absent if all were removed
}

// Category describes a category.
type Category struct {
	Category string `json:"category"`
	Messages int64  `json:"messages"`
	Streams  int64  `json:"streams"`
}

// Retention says which messages of a stream are kept; 0 is no limit.
type Retention struct {
	MaxAgeMS int64 `json:"max_age_ms,omitempty" is:"natural"`
	MaxCount int64 `json:"max_count,omitempty" is:"natural"`
}

// Removed tells how many messages or events were removed.
type Removed struct {
	Removed int64 `json:"removed"`
}

// Imported is how an import of messages ended.
type Imported struct {
	Imported int64 `json:"imported"`
	Known    int64 `json:"known"`
	Last     int64 `json:"last"`
}

// Position is a consumer's position, or that of a subscription of a log.
type Position struct {
	Position int64 `json:"position" is:"natural"`
}

// Subscription is a consumer group whose members acknowledge messages.
type Subscription struct {
	Name        string   `json:"name" required:"false"` // told in answers; ignored in a request, whose path has it
	Category    string   `json:"category,omitempty" is:"category"`
	Types       []string `json:"types,omitempty"`
	Prefix      string   `json:"prefix,omitempty"`
	From        int64    `json:"from,omitempty"`
	LeaseMS     int64    `json:"lease_ms,omitempty" is:"natural"`
	MaxAttempts int      `json:"max_attempts,omitempty" is:"natural"`
	Window      int      `json:"window,omitempty" is:"natural"`
	// Embedded: a program has made it that embeds the stores. It alone knows its options, and none are told here.
	Embedded bool `json:"embedded,omitempty"`
	// Done, Behind, Pending and Parked are how it is doing; ignored in a request.
	Done    int64 `json:"done" required:"false"`
	Behind  int64 `json:"behind" required:"false"`
	Pending int   `json:"pending" required:"false"`
	Parked  int   `json:"parked" required:"false"`
}

// ClaimMessages claims messages of a subscription.
type ClaimMessages struct {
	Max    int   `json:"max,omitempty"`                  // 0 means 1; at most 1000, and about 8 MiB, are given
	WaitMS int64 `json:"wait_ms,omitempty" is:"natural"` // how long to wait for the first, at most a minute
}

// Delivery is a message that a consumer has for the time of its lease.
type Delivery struct {
	Message
	Attempt int    `json:"attempt"`
	Token   uint64 `json:"token"`
}

// Deliveries are what was claimed.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
}

// Settle says which deliveries are acknowledged, extended, failed or parked.
type Settle struct {
	Deliveries []DeliveryRef `json:"deliveries"`
	Reason     string        `json:"reason,omitempty"` // of a failure or of parking
}

// DeliveryRef names a delivery.
type DeliveryRef struct {
	Global int64  `json:"global"`
	Token  uint64 `json:"token"`
}

// ParkedMessage is a message that is not delivered any more.
type ParkedMessage struct {
	Message
	Attempts int       `json:"attempts"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
}

// Globals name parked messages.
type Globals struct {
	Globals []int64 `json:"globals"`
}

// Counted tells how many something was done with.
type Counted struct {
	Count int `json:"count"`
}

// Log describes a log of events. Subscriptions and Snapshots are told by GET of the one log, not in lists.
type Log struct {
	Name          string       `json:"name"`
	First         uint64       `json:"first"`
	Last          uint64       `json:"last"`
	Subscriptions []Subscriber `json:"subscriptions,omitempty"`
	Snapshots     []Subscriber `json:"snapshots,omitempty"`
}

// Subscriber is a subscription or a snapshot of a log.
type Subscriber struct {
	Name     string `json:"name"`
	Position uint64 `json:"position"`
	Lag      uint64 `json:"lag"`
	Missed   uint64 `json:"missed,omitempty"`
}

// Event is an event of a log.
type Event struct {
	Position uint64    `json:"position"` // from 1
	Time     time.Time `json:"time"`
	Type     string    `json:"type,omitempty"`
	ID       string    `json:"id,omitempty"`
	Origin   string    `json:"origin,omitempty"`
	Metadata []byte    `json:"metadata,omitempty"`
	Data     []byte    `json:"data,omitempty"`
}

// NewEvent is an event to be appended, or a line of an import.
type NewEvent struct {
	Position uint64    `json:"position,omitempty"`      // from 1, in an import; ignored in an append
	Time     time.Time `json:"time,omitzero" is:"time"` // when it happened; absent for the present
	Type     string    `json:"type,omitempty"`
	// ID is any text of at most 1,024 bytes. An append with it that is repeated is done once, as long as the log remembers
	// it; with another type or data it is refused (id_taken).
	ID       string `json:"id,omitempty" is:"event"`
	Origin   string `json:"origin,omitempty"`
	Metadata []byte `json:"metadata,omitempty"`
	Data     []byte `json:"data,omitempty"`
}

// Append appends events, all or none.
type Append struct {
	Events []NewEvent `json:"events" is:"some"`
	// After is the position that the log must be at; absent for any.
	After *uint64 `json:"after,omitempty"`
}

// Appended is where the events of an append are.
type Appended struct {
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Repeated bool   `json:"repeated,omitempty"`
}

// Events is a page of events.
type Events struct {
	Events []Event `json:"events"`
	Next   uint64  `json:"next"` // the position to read on from
	// History identifies what positions mean, as in Messages.
	History string `json:"history"`
}

// Truncate removes events below a position.
type Truncate struct {
	Before uint64 `json:"before"`
}

// NewTask is a task to be enqueued. What is absent has its default.
type NewTask struct {
	// ID names the task; without one the server makes an id.
	ID       string `json:"id,omitempty" is:"task" segment:"true"`
	Queue    string `json:"queue,omitempty" is:"queue" segment:"true"` // "default" if it is absent
	Kind     string `json:"kind" is:"kind"`                            // which worker runs it
	Payload  []byte `json:"payload,omitempty"`                         // at most 1 MiB
	Priority int8   `json:"priority,omitempty" is:"small"`             // higher comes first

	// At is the earliest time at which it may run, DelayMS the same from now on; not both.
	At      time.Time `json:"at,omitzero" is:"moment"`
	DelayMS int64     `json:"delay_ms,omitempty" is:"natural"` // how long to wait before it may run

	Key      string `json:"key,omitempty" is:"text"`      // what the limits by key of its queue count by: a customer
	Sequence string `json:"sequence,omitempty" is:"text"` // its tasks run one after the other, in the order of enqueueing

	// Unique lets there be one task at most with this text, in all queues: until it is finished, or for UniqueForMS from
	// now on. As long as there is one, enqueueing changes nothing and tells its id.
	Unique      string `json:"unique,omitempty" is:"text"`
	UniqueForMS int64  `json:"unique_for_ms,omitempty" is:"natural"` // how long there may be no other; needs Unique

	After []string `json:"after,omitempty"` // ids of tasks that must be completed first

	// MaxAttempts is how often it is tried before it is dead; 0 means 25.
	MaxAttempts int `json:"max_attempts,omitempty" is:"natural"`
	// BackoffFirstMS is how long it waits after the first attempt that fails; twice as long after each further one, and
	// BackoffMaxMS at most.
	BackoffFirstMS int64 `json:"backoff_first_ms,omitempty" is:"natural"`
	BackoffMaxMS   int64 `json:"backoff_max_ms,omitempty" is:"natural"` // the longest wait between attempts

	// KeepMS is how long it is kept once it is completed or cancelled: as long as its queue says if it is 0, not at all if
	// it is less.
	KeepMS int64 `json:"keep_ms,omitempty"`
}

// Task is what is known of a task.
type Task struct {
	NewTask
	State      string        `json:"state"`
	Attempt    int           `json:"attempt"`
	Created    time.Time     `json:"created"`
	Due        time.Time     `json:"due,omitzero"`
	Started    time.Time     `json:"started,omitzero"`
	Finished   time.Time     `json:"finished,omitzero"`
	Worker     string        `json:"worker,omitempty"`
	LeaseUntil time.Time     `json:"lease_until,omitzero"`
	Output     []byte        `json:"output,omitempty"`
	Failures   []TaskFailure `json:"failures,omitempty"`
}

// TaskFailure is why an attempt failed.
type TaskFailure struct {
	Attempt int       `json:"attempt,omitempty"`
	Time    time.Time `json:"time,omitzero"`
	Message string    `json:"message"`
	Stack   string    `json:"stack,omitempty"`
}

// Enqueue adds tasks, all or none.
type Enqueue struct {
	Tasks []NewTask `json:"tasks"`
}

// Enqueued is what became of one task of an Enqueue.
type Enqueued struct {
	ID       string `json:"id"`
	Existing bool   `json:"existing,omitempty"`
}

// EnqueueResult is the answer to an Enqueue, in the same order.
type EnqueueResult struct {
	Results []Enqueued `json:"results"`
}

// ClaimTasks claims tasks.
type ClaimTasks struct {
	Queues  []string `json:"queues,omitempty" is:"queue"`
	N       int      `json:"n,omitempty" is:"natural"` // 0 means 1; at most 1000, and about 8 MiB, are given
	LeaseMS int64    `json:"lease_ms,omitempty" is:"natural"`
	Worker  string   `json:"worker,omitempty" is:"worker"`
	WaitMS  int64    `json:"wait_ms,omitempty" is:"natural"` // how long to wait for the first, at most a minute
}

// Lease is the right to work on a task.
type Lease struct {
	Task  Task      `json:"task"`
	Token uint64    `json:"token"`
	Until time.Time `json:"until"`
}

// Leases are what was claimed.
type Leases struct {
	Leases []Lease `json:"leases"`
}

// LeaseRef names a lease.
type LeaseRef struct {
	ID    string `json:"id"` // the task's
	Token uint64 `json:"token"`
}

// LeaseRefs name leases.
type LeaseRefs struct {
	Leases []LeaseRef `json:"leases"`
}

// LeaseResult is what became of one lease of several. Code is "" if all is well.
type LeaseResult struct {
	Code   string    `json:"code,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Until  time.Time `json:"until,omitzero"`
}

// LeaseResults are in the order of the leases.
type LeaseResults struct {
	Results []LeaseResult `json:"results"`
}

// CompleteTask completes one task, and enqueues those that come next in the same commit.
type CompleteTask struct {
	LeaseRef
	Then []NewTask `json:"then,omitempty"`
}

// FailTask says that an attempt has failed.
type FailTask struct {
	LeaseRef
	Failure   TaskFailure `json:"failure"`
	RetryInMS int64       `json:"retry_in_ms,omitempty"`
	Dead      bool        `json:"dead,omitempty"`
}

// SnoozeTask puts a task back for a while.
type SnoozeTask struct {
	LeaseRef
	ForMS int64 `json:"for_ms"`
}

// TaskOutput sets the output of a task in hand.
type TaskOutput struct {
	LeaseRef
	Output []byte `json:"output"`
}

// Tasks is a page of tasks.
type Tasks struct {
	Tasks []Task `json:"tasks"`
	Next  string `json:"next,omitempty"` // the cursor of the next page, "" if there is none
}

// Queue is a queue and how it is doing.
type Queue struct {
	Name    string         `json:"name"`
	Options QueueOptions   `json:"options"`
	Paused  bool           `json:"paused"`
	Counts  map[string]int `json:"counts"` // by state
}

// Periodic is a periodic task that a program has added to the store.
type Periodic struct {
	Name    string    `json:"name"`
	Added   bool      `json:"added"` // since the store was opened; else by a program that ran before
	Last    time.Time `json:"last"`  // the last tick, or when it was first added
	Next    time.Time `json:"next,omitzero"`
	Refused uint64    `json:"refused"` // ticks whose tasks were refused
}

// QueueOptions are the limits of a queue.
type QueueOptions struct {
	Concurrency    int   `json:"concurrency,omitempty" is:"natural"`
	RateN          int   `json:"rate_n,omitempty" is:"natural"`
	RatePerMS      int64 `json:"rate_per_ms,omitempty" is:"natural"`
	KeyConcurrency int   `json:"key_concurrency,omitempty" is:"natural"`
	KeyRateN       int   `json:"key_rate_n,omitempty" is:"natural"`
	KeyRatePerMS   int64 `json:"key_rate_per_ms,omitempty" is:"natural"`
	KeepMS         int64 `json:"keep_ms,omitempty"`
	KeepDeadMS     int64 `json:"keep_dead_ms,omitempty"`
}

// Transaction is a list of operations that are done in their order, all or none. Each sees what those before it have
// done.
type Transaction struct {
	Operations []Operation `json:"operations" is:"some"` // at most 1,000
}

// Operation is one of a transaction: it has one of the fields beside Namespace.
type Operation struct {
	Namespace string `json:"namespace" is:"namespace"`
	// Write writes messages to a stream.
	Write *Write `json:"write,omitempty"`
	// Append appends events to a log.
	Append *LogAppend `json:"append,omitempty"`
	// Enqueue enqueues tasks.
	Enqueue *Enqueue `json:"enqueue,omitempty"`
	// Complete completes a task, and enqueues those that come next. If the lease is lost, nothing is done.
	Complete *CompleteTask `json:"complete,omitempty"`
}

// LogAppend appends events to a log, which is made if it is not there, also for a transaction that is refused.
type LogAppend struct {
	Log string `json:"log" is:"log" segment:"true"`
	Append
}

// OperationResult is what became of one operation of a transaction.
type OperationResult struct {
	Written  *Written   `json:"written,omitempty"`
	Appended *Appended  `json:"appended,omitempty"`
	Enqueued []Enqueued `json:"enqueued,omitempty"` // of the tasks of enqueue, or of then in complete
}

// TransactionResult is the answer to a Transaction, in the same order.
type TransactionResult struct {
	Results []OperationResult `json:"results"`
	// Repeated says that the transaction was done before: nothing was done now, and the results are those of the first
	// time.
	Repeated bool `json:"repeated,omitempty"`
}

// Query is a statement of SQL that reads.
type Query struct {
	SQL string `json:"sql"`
	// Args are the values of the statement's parameters: a list of them in order, or an object by the names of the
	// parameters. A value is null, true or false (1 or 0), a number, a text, or bytes as {"base64": "AQID"}.
	Args json.RawMessage `json:"args,omitempty" is:"arguments"`
	// Explain asks how the statement would be run, instead of its rows.
	Explain bool `json:"explain,omitempty"`
	// Format is "json" (absent means that) or "csv", a line of names and one for each row.
	Format string `json:"format,omitempty" enum:"json,csv"`
	// TimeMS is how long it may take. If a limit is absent, or more than the server allows, that of the server holds.
	TimeMS int64 `json:"time_ms,omitempty" is:"natural"`
	// Rows is how many rows it may have.
	Rows int64 `json:"rows,omitempty" is:"natural"`
	// MemoryBytes is how much memory SQLite may take for it, to sort, group and join.
	MemoryBytes int64 `json:"memory_bytes,omitempty" is:"natural"`
}

// QueryInfo is what queries may read, and their limits. A limit of 0 is none.
type QueryInfo struct {
	Tables      []QueryTable `json:"tables"`
	TimeMS      int64        `json:"time_ms"`
	Rows        int64        `json:"rows"`
	MemoryBytes int64        `json:"memory_bytes"` // of SQLite, for one query
	AtOnce      int          `json:"at_once"`      // how many run at once; more wait
}

// QueryTable is a table.
type QueryTable struct {
	Name string `json:"name"`
	SQL  string `json:"sql"` // of the statement that would create it
}

// QueryLine is a line of the answer to a query that is no row: the first one has columns, the last one rows or
// problem. Between them, each row is a list of its values: null, a number, a text, or bytes as {"base64": "AQID"}. A
// number with a point or an exponent is a float, another one an integer; 9e999 is infinite. An answer without a last
// line broke off.
type QueryLine struct {
	Columns []string `json:"columns,omitempty"`
	// Rows is how many there were.
	Rows *int64 `json:"rows,omitempty"`
	// Problem is why there are no more.
	Problem *Problem `json:"problem,omitempty"`
}

// Server describes a server.
type Server struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Engine  string    `json:"engine"`
	Level   string    `json:"level"` // of writes that name none
	Ready   bool      `json:"ready"`
	Trouble string    `json:"trouble,omitempty"` // what an operator should look at
	LossMS  int64     `json:"loss_window_ms"`
	// Unsynced: a power cut may take the last LossMS of acknowledged writes, but for those that named power.
	Unsynced   bool      `json:"unsynced"`
	Settings   []Setting `json:"settings"`
	Caveats    []string  `json:"caveats,omitempty"`
	Counters   Counters  `json:"counters"`
	Namespaces int       `json:"namespaces"`       // -1 while the data cannot be read
	Backup     *Backup   `json:"backup,omitempty"` // where there is a continuous one
}

// Backup says how far a continuous backup is.
type Backup struct {
	LagMS   int64  `json:"lag_ms"`            // what the loss of the machine would cost now
	Trouble string `json:"trouble,omitempty"` // why the last upload failed
	Objects int64  `json:"objects"`           // uploaded since the start
	Bytes   int64  `json:"bytes"`
}

// Setting is one of an engine's settings, as it was read back.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Counters are an engine's; -1 is what it cannot tell.
type Counters struct {
	Commits      int64 `json:"commits"`
	Groups       int64 `json:"groups"`
	Syncs        int64 `json:"syncs"`
	BytesWritten int64 `json:"bytes_written"`
	DiskBytes    int64 `json:"disk_bytes"`
	Files        int64 `json:"files"`
	MemoryBytes  int64 `json:"memory_bytes"`
	Stalls       int64 `json:"stalls"`
	// Standbys keep up with the engine's data, and a commit at Quorum waits for StandbysNeeded of them.
	Standbys       int64 `json:"standbys"`
	StandbysNeeded int64 `json:"standbys_needed"`
}

// Verified is what a verification has found.
type Verified struct {
	Keys     int64    `json:"keys"`
	Bytes    int64    `json:"bytes"`
	Problems []string `json:"problems"`
}
