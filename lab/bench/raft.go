package bench

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfastdb/holdfast"
)

// The second study: stores for hashicorp/raft, by Set and Get of a StableStore. Only its Badger did not sync, and it
// was that which it found fastest. The log itself, and what ten minutes of it do to a store, are ours.
const (
	raftKeySize = 26  // bytes of a stable key, as the study had it
	raftValue   = 256 // bytes of its value
	raftData    = 128 // bytes of an entry's data
	raftBatch   = 64  // entries of one append, where the log is truncated

	raftSteadyData = 1024 // bytes of an entry's data where it is appended alone, for long
)

// raftStudyNote explains the study's figures.
const raftStudyNote = "Those of raft/stable-set and raft/stable-get are of 1,000 calls and, in brackets, of a run of " +
	"1 s; for bbolt and raft-boltdb it had the old Bolt."

// raftSizes are the numbers that the workloads work on.
type raftSizes struct {
	keys    int // stable keys of the study
	many    int // where more are wanted
	entries int // of a log that is read
	keep    int // entries of a log from which its front is deleted
	cut     int // how many are, half of keep or less

	steady raftTruncate // one entry at a time
}

func raftWorkloads() []Workload {
	return raftStudy(raftSizes{keys: 11, many: 1000, entries: 1_000_000, keep: 20_000, cut: 10_000,
		steady: raftTruncate{keep: 20_000, cut: 10_000, batch: 1, data: raftSteadyData, votes: 100}})
}

// raftStudy is the table of workloads on so much.
func raftStudy(n raftSizes) []Workload {
	set := func(name, about string, keys int) Workload {
		s := raftStable{keys}

		return Workload{
			Name: name, About: about, Unit: "sets", Items: 1, Store: RaftLogs, OneClient: true, Overhead: 30 * time.Millisecond,
			Engine: s.setEngine, Floor: s.setFloor, Null: s.setNull,
		}
	}
	get := func(name, about string, keys int) Workload {
		s := raftStable{keys}

		return Workload{
			Name: name, About: about, Unit: "gets", Items: 1, Store: RaftLogs, Reads: true, Overhead: 100 * time.Millisecond,
			Engine: s.getEngine, Floor: s.getFloor, Null: s.getNull,
		}
	}
	store := func(name, about string, batch int) Workload {
		s := raftAppend{batch}

		return Workload{
			Name: name, About: about, Unit: "entries", Items: batch, Store: RaftLogs, OneClient: true,
			Overhead: 100 * time.Millisecond,
			Engine:   s.engine, Floor: s.floor, Null: s.null,
		}
	}
	studySet := set("raft/stable-set", "set one of 11 stable keys to a value of 256 bytes", n.keys)
	studySet.Study = study(map[figure]string{
		{"badger", holdfast.Process}:    "104.9 us (353.3 us)",
		{"bbolt", holdfast.Power}:       "39,334 us (39,137 us)",
		{"raft-boltdb", holdfast.Power}: "39,334 us (39,137 us)",
		{"pebble", holdfast.Power}:      "19,035 us (18,795 us)",
	})
	studyGet := get("raft/stable-get", "get one of 11 stable keys", n.keys)
	studyGet.Study = study(map[figure]string{
		{"badger", 0}:      "3.83 us (2.73 us)",
		{"bbolt", 0}:       "3.35 us (1.58 us)",
		{"raft-boltdb", 0}: "3.35 us (1.58 us)",
		{"pebble", 0}:      "2.70 us (1.44 us)",
	})
	studySet.StudyNote, studyGet.StudyNote = raftStudyNote, raftStudyNote
	getLog, truncate := raftGetLog{n.entries}, raftTruncate{keep: n.keep, cut: n.cut, batch: raftBatch, data: raftData}
	truncating := Workload{
		Name: "raft/truncate", About: "append 64 entries to a log of 10,000 to 20,000, while the first 10,000 are deleted " +
			"again and again",
		Unit: "entries", Items: raftBatch, ItemBytes: raftIndexSize + raftData, Store: RaftLogs, OneClient: true,
		Overhead: 150 * time.Millisecond,
		Engine:   truncate.engine, Floor: truncate.floor, Null: truncate.null,
	}
	long := truncating
	long.Name, long.About, long.Samples = "raft/long",
		"raft/truncate for long, with what it does to the disk and to the slowest appends", true

	steady := Workload{
		Name: "raft/steady", About: "append entries of 1 KiB one at a time to a log of 10,000 to 20,000, and set a stable " +
			"key in one of 100 operations, while the first 10,000 are deleted again and again",
		Unit: "operations", Items: 1, Stored: "entries", ItemBytes: raftIndexSize + raftSteadyData, Store: RaftLogs,
		OneClient: true, Samples: true, Overhead: 500 * time.Millisecond,
		Engine: n.steady.engine, Null: n.steady.null,
	}

	return []Workload{
		studySet,
		set("raft/stable-set-1k", "set one of 1,000 stable keys to a value of 256 bytes", n.many),
		studyGet,
		get("raft/stable-get-1k", "get one of 1,000 stable keys", n.many),
		store("raft/store-1", "append one entry of 128 bytes", 1),
		store("raft/store-16", "append 16 entries of 128 bytes in one batch", 16),
		store("raft/store-128", "append 128 entries of 128 bytes in one batch", 128),
		{
			Name: "raft/get-log", About: "get random entries of a log of 1,000,000", Unit: "entries", Items: 1, Store: RaftLogs,
			Reads: true, Overhead: 2 * time.Second,
			Engine: getLog.engine, Floor: getLog.floor, Null: getLog.null,
		},
		truncating,
		long,
		steady,
	}
}

// raftKeys makes n keys that look like ULIDs: ten digits of a time that ascends, sixteen that are random.
func raftKeys(n int, seed uint64) [][]byte {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	keys := make([][]byte, n)
	for i := range keys {
		key := make([]byte, raftKeySize)
		now := uint64(raftEpoch.UnixMilli()) + uint64(i)

		for at := 9; at >= 0; at-- {
			key[at] = digits[now%32]
			now /= 32
		}

		for at := 10; at < raftKeySize; at++ {
			key[at] = digits[random.IntN(32)]
		}
		keys[i] = key
	}

	return keys
}

// oneClient refuses more: Raft appends, votes and deletes from one place.
func oneClient(t Task) error {
	if t.Clients > 1 {
		return op.BadOption(fmt.Sprintf("%d clients", t.Clients), "Raft has one writer")
	}

	return nil
}
