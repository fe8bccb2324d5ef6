package main

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/examples/internal/replicas"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/etcdraft"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

func TestRaftgroup(t *testing.T) {
	said := replicas.Test(t, [3]string{"1", "2", "3"}, func(_, _ string) []string { return nil })
	// Each begins with the one of entry 1. Later the logs of the others do not reach back to what the first node has.
	if !regexp.MustCompile(`restored a snapshot of entry ([2-9]|\d\d)`).MatchString(said) {
		t.Error("nobody was sent a snapshot:", said)
	}
}

// TestKilledBeforeItCompacts: a node that was killed between a snapshot and the compaction goes on.
func TestKilledBeforeItCompacts(t *testing.T) {
	dir, addr := t.TempDir(), "1="+replicas.Addresses(t, 1)[0]
	engine := must(logtree.Open(dir, holdfast.Options{}))
	store := must(etcdraft.Open(engine, etcdraft.Options{Name: "lines"}))
	const last = 2 + every + keep
	check(store.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: &raftpb.ConfState{Voters: []uint64{1}}, Index: new(uint64(1)), Term: new(uint64(1))}}))
	rd := raft.Ready{HardState: &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(last))}}
	m := &machine{engine: engine}
	for i := uint64(2); i <= last; i++ {
		rd.Entries = append(rd.Entries, &raftpb.Entry{Term: new(uint64(1)), Index: &i, Data: []byte("line")})
	}
	check(store.Save(rd))
	m.apply(rd.Entries)
	must(store.CreateSnapshot(last, nil, []byte(strings.Repeat("line\n", len(m.lines)))))
	check(errors.Join(store.Close(), engine.Close()))

	n := replicas.Start(t, "--id", "1", "--dir", dir, "--peers", addr)
	testkit.Until(t, "a line", func() bool {
		if _, err := io.WriteString(n.Stdin, "more\n"); err != nil {
			t.Fatal(err, n.Stderr.String())
		}
		return slices.Contains(n.Lines(), "14 more")
	}, &n.Stderr)
}
