package bench

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast/internal/child"
)

// kvKilled opens an engine, once, whose process was killed when it had been given so many keys, in random order and in
// transactions of kvBatch. What else it has to do then than after Close is what the opening costs.
type kvKilled struct{ keys int }

func kvKilledWorkloads(few, many int) []Workload {
	var list []Workload
	for _, w := range []struct {
		name, size string
		keys       int
		overhead   time.Duration
	}{{"kv/open-killed", "64 MB", few, 4 * time.Second}, {"kv/open-killed-1g", "1 GB", many, time.Minute}} {
		work := kvKilled{w.keys}
		list = append(list, Workload{Name: w.name, About: "open, once, what was killed with " + w.size + " of keys and " +
			"values put", Unit: "opens", Items: 1, Stored: "keys", ItemBytes: kvKeySize + kvMoreValue, Killed: true,
			OneClient: true, KeyOrder: Random, Overhead: w.overhead, Engine: work.engine, Floor: work.floor, Null: work.null})
	}

	return list
}

// table is what there should be: all keys, once.
func (k kvKilled) table(t Task) *kvTable {
	table := &kvTable{kvStore: kvStore{task: t}, values: newKVValues(kvMoreValue, t.Seed),
		versions: make(kvVersions, k.keys)}
	for key := range table.versions {
		table.versions.put(uint32(key))
	}

	return table
}

func (k kvKilled) engine(t Task) (Load, error) {
	if err := t.Killed(k.keys); err != nil {
		return Load{}, err
	}
	table := k.table(t)
	load := table.load(func(int) func() error { return table.open })
	load.Once = true

	return load, nil
}

func (k kvKilled) null(t Task) (Load, error) {
	load := k.table(t).load(func(int) func() error { return func() error { return nil } })
	load.Once = true

	return load, nil
}

// floor reads the same keys and values from a file.
func (k kvKilled) floor(t Task) (Load, error) {
	load, err := floorReads(t, k.keys, kvMoreValue, func(_ int, f *kvFloorReader) func() error {
		return func() error { return f.scan(0, k.keys) }
	})
	load.Once = true

	return load, err
}

// diskRefused is what that process says in the place of the number of keys if the disk is full, or takes no writes.
const diskRefused = -1

// killed has a process of its own put so many keys into the engine of a measurement, and kills it.
func killed(q request, keys int) error {
	command, err := child.Command(nil, "bench-child")
	if err != nil {
		return err
	}
	q.Put = keys
	p, err := child.Start(command, q)
	if err != nil {
		return err
	}
	var done int
	_, answer := fmt.Fscan(p.Out, &done)
	p.Kill()

	_, _ = io.Copy(io.Discard, p.Out)
	switch _, err := p.Wait(); {
	case done == diskRefused:
		return fmt.Errorf("before the kill: %w: %w", syscall.ENOSPC, p.Said(errors.New("the disk takes no writes")))
	case err != nil && answer != nil:
		return fmt.Errorf("the process that was to be killed failed: %w", err)
	}
	if answer != nil || done != keys {
		return fmt.Errorf("the process that was to be killed put %d keys of %d", done, keys)
	}

	return nil
}

// putAndWait is what that process does. It returns on an error only.
func (l Lab) putAndWait(q request, stdout io.Writer) (err error) {
	defer func() {
		if diskRefuses(err) {
			fmt.Fprintln(stdout, diskRefused)
		}
	}()
	entry, err := l.engine(q.Cell.Engine)
	if err != nil {
		return err
	}
	table, err := newKVTable(l.task(entry, q, &contended{}, &outcome{}), q.Put, kvMoreValue)
	if err != nil {
		return err
	}

	w := table.writer()
	for i, key := range kvOrderOf(q.Put, q.Seed) {
		w.put(key)
		if (i+1)%kvBatch == 0 || i == q.Put-1 {
			if err := w.commit(); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(stdout, q.Put)

	select {}
}
