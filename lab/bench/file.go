package bench

import (
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// The inserts of the fifth study, which compared SQLite with one file for each record.
const (
	fileValueSize = 100
	fileWriters   = 100
)

func fileWorkloads() []Workload { return fileStudy(1_000_000) }

// fileStudy is the table of workloads, with new keys up to that many. Then they are overwritten.
func fileStudy(keys int) []Workload {
	insert := func(name, about, sqlite, plain string) Workload {
		p := kvPut{batch: 1, value: fileValueSize, ring: keys, ascending: true}

		return Workload{
			Name: name, About: about, Unit: "records", Items: 1, Store: Files, OneKey: true,
			KeyOrder: p.keyOrder(), Overhead: 500 * time.Millisecond,
			Study: study(map[figure]string{
				{"sqlite", holdfast.Process}: sqlite, {contender.FilesPlain, holdfast.Memory}: plain,
			}),
			Engine: p.engine, Floor: p.floor, Null: p.null,
		}
	}
	linear := insert("file/linear", "insert a record of 100 bytes, each a commit", "12k-15k/s: 10,000 in 647-809 ms",
		"25k-27k/s: 10,000 in 371-393 ms")
	linear.OneClient = true
	linear.StudyNote = "The study inserted 10,000 records, in files without syncs; here it goes on."
	concurrent := insert("file/concurrent", "100 writers insert records of 100 bytes, each a commit",
		"12k/s: 100,000 in 8.1-8.5 s", "29k-32k/s: 100,000 in 3.1-3.4 s")
	concurrent.Clients, concurrent.StudyClients = []int{fileWriters}, fileWriters
	concurrent.StudyNote = "The study's 100 writers inserted 1,000 records each, in files without syncs; here they go on."

	return []Workload{linear, concurrent}
}
