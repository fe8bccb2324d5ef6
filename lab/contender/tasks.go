package contender

import (
	"context"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/store/task"
)

// Tasks is a task queue of a peer, as package task of this module has one. All methods may be called from many
// goroutines at once.
type Tasks interface {
	// Enqueue adds tasks that may be claimed at once, all of them or none, and returns their ids, in order, once they
	// survive what the queue's level names.
	Enqueue(ctx context.Context, specs ...TaskSpec) (ids []string, err error)
	// Work makes the queue ready for claims, of which that many are held at a time. It is called once, before them.
	Work(claims int) error
	// Claim takes the next task for the caller alone, and waits for one until ctx ends.
	Claim(ctx context.Context) (TaskClaim, error)
	// SetOutput replaces the output of a claimed task, which is UTF-8 text.
	SetOutput(ctx context.Context, c TaskClaim, output []byte) error
	// Complete ends a claim, and the task with it. The error wraps [task.ErrLeaseLost] if it is not held any more.
	Complete(ctx context.Context, c TaskClaim) error
	// List yields all tasks that are there, in any order. It ends with the error of yield, if that is one.
	List(ctx context.Context, yield func(Task) error) error
	// Close ends everything that uses the queue. All that was acknowledged survives. Tasks that are claimed then may
	// be claimed again.
	Close() error
}

// TaskSpec is a task to be enqueued.
type TaskSpec struct {
	Args    []byte // a JSON document
	Discard bool   // the task is removed when it is completed
}

// TaskClaim is a task that is claimed.
type TaskClaim struct {
	ID    string
	Args  []byte
	Lease any // what the queue knows the claim by
}

// Task is a task that is there.
type Task struct {
	ID           string
	Args, Output []byte
	State        task.State // Waiting, Running or Completed
}

// TasksEngine is an engine that is a task queue and nothing else.
type TasksEngine interface {
	holdfast.Engine
	Tasks
}

// TaskEngines returns the peers that are task queues, in the order in which they are shown. The engines that they
// open are each a [TasksEngine], which gives only the level that it was opened at. What each level really gets is in
// the peer's description; one that this machine cannot run refuses every level and says why, and its Open fails with
// ErrUnavailable.
func TaskEngines() []all.Entry { return slices.Clone(taskPeers) }

var taskPeers = []all.Entry{
	{Name: SQLiteSQL, Open: OpenSQLiteSQL, Describe: DescribeSQLiteSQL},
	{Name: SQLiteSQLMerged, Open: OpenSQLiteSQLMerged, Describe: DescribeSQLiteSQLMerged},
	{Name: River, Open: OpenRiver, Describe: DescribeRiver},
	{Name: RiverSQLite, Open: OpenRiverSQLite, Describe: DescribeRiverSQLite},
}
