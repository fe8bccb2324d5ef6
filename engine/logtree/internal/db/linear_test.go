package db

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/vfs"
)

// linearKeys is how many keys there are: "a" and those that follow it.
const linearKeys = 5

// linearState is what is stored under each key, 0 for nothing.
type linearState [linearKeys]int

// linearInput is one call; its output is the linearState that was seen, of which a get has one key.
type linearInput struct {
	writes []linearWrite // of a batch, nil for a read
	key    int           // of a get, -1: all
}

// linearWrite is one operation of a batch on the keys from lo to hi-1; a value of 0 deletes.
type linearWrite struct{ lo, hi, value int }

var linearModel = porcupine.Model{
	Init: func() any { return linearState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in := state.(linearState), input.(linearInput)
		if in.writes == nil {
			seen := output.(linearState)
			if in.key >= 0 {
				return seen[in.key] == s[in.key], s
			}
			return seen == s, s
		}
		for _, w := range in.writes {
			for k := w.lo; k < w.hi; k++ {
				s[k] = w.value
			}
		}
		return true, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " ", output) },
}

func linearKey(k int) []byte { return []byte{'a' + byte(k)} }

// TestLinearizable lets several goroutines commit, get, scan and take snapshots at once while memtables are
// rotated, flushed and merged all the time. There must be one order of all calls, each at some moment between
// its beginning and its end, that explains everything that was seen.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	rounds := night.Or(12, 6)
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		seed := *seed + uint64(round)
		c := Config{New: true, ID: [16]byte{1}, Memory: 64 << 10, Logger: slog.New(slog.DiscardHandler),
			SyncEvery: time.Millisecond,
			Sizes:     Sizes{Memtable: []int64{1, 140 << 10}[round%2], Segment: 2 << 10, Table: 1 << 10}}
		c.FS, c.Dir = vfs.OS(), t.TempDir()
		if round%4 < 2 {
			c.FS, c.Dir = vfs.NewMem(), "/"
		}
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		history := linearHistory(t, d, seed)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("-db.seed=%d", seed)
		}
		switch porcupine.CheckOperationsTimeout(linearModel, history, time.Minute) {
		case porcupine.Illegal:
			t.Fatalf("-db.seed=%d: no order of these calls explains what was seen: %v", seed, history)
		case porcupine.Unknown:
			t.Logf("-db.seed=%d: not decided within a minute", seed)
		}
	}
}

// linearHistory runs some clients and returns what they did and saw.
func linearHistory(t *testing.T, d *DB, seed uint64) []porcupine.Operation {
	var clock, values atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	var clients sync.WaitGroup
	for client := range 5 {
		rnd := rand.New(rand.NewPCG(seed, uint64(client)))
		clients.Go(func() {
			var b holdfast.Batch
			for range 40 {
				in := linearInput{key: -1}
				var seen linearState
				var err error
				var call, back int64
				begin, end := func() { call = clock.Add(1) }, func() { back = clock.Add(1) }
				switch rnd.IntN(6) {
				case 0, 1, 2:
					in.writes = linearBatch(rnd, &b, &values)
					level := holdfast.Levels()[rnd.IntN(3)]
					begin()
					var r holdfast.Receipt
					r, err = d.Apply(&b, level)
					end() // it is visible now, whatever its level
					if err == nil {
						err = r.Wait()
					}
				case 3:
					in.key = rnd.IntN(linearKeys)
					begin()
					var v []byte
					v, err = d.Get(nil, linearKey(in.key))
					end()
					seen[in.key], err = linearValue(v, err)
				case 4:
					begin()
					it := d.Scan(holdfast.Range{Reverse: rnd.IntN(2) == 0})
					end() // it sees one state, fixed by now
					seen, err = linearScan(it)
				case 5:
					begin()
					var s holdfast.Snapshot
					s, err = d.Snapshot()
					end()
					if err == nil {
						for k := range linearKeys {
							if v, e := s.Get(nil, linearKey(k)); err == nil {
								seen[k], err = linearValue(v, e)
							}
						}
						again, e := linearScan(s.Scan(holdfast.Range{}))
						if err == nil && e == nil && again != seen {
							e = fmt.Errorf("a snapshot's scan shows %v, its gets %v", again, seen)
						}
						if err == nil {
							err = e
						}
						s.Close()
					}
				}
				if err != nil {
					t.Errorf("-db.seed=%d: %v", seed, err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: seen, Return: back})
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return history
}

// linearBatch fills b with sets, deletes and range deletes.
func linearBatch(rnd *rand.Rand, b *holdfast.Batch, values *atomic.Int64) []linearWrite {
	b.Reset()
	var list []linearWrite
	for range 1 + rnd.IntN(3) {
		k := rnd.IntN(linearKeys)
		switch rnd.IntN(5) {
		case 0:
			b.Delete(linearKey(k))
			list = append(list, linearWrite{k, k + 1, 0})
		case 1:
			hi := k + rnd.IntN(linearKeys-k+1)
			b.DeleteRange(linearKey(k), linearKey(hi))
			list = append(list, linearWrite{k, hi, 0})
		default:
			n := int(values.Add(1))
			b.Set(linearKey(k), []byte(strconv.Itoa(n)+strings.Repeat(" ", rnd.IntN(300))))
			list = append(list, linearWrite{k, k + 1, n})
		}
	}
	return list
}

func linearValue(v []byte, err error) (int, error) {
	if err == holdfast.ErrNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimRight(string(v), " "))
}

func linearScan(it holdfast.Iterator) (seen linearState, err error) {
	for it.Next() {
		if seen[it.Key()[0]-'a'], err = linearValue(it.Value(), nil); err != nil {
			break
		}
	}
	if e := it.Close(); err == nil {
		err = e
	}
	return seen, err
}

// TestLinearModel: what must not happen is told from what may.
func TestLinearModel(t *testing.T) {
	set := linearInput{writes: []linearWrite{{0, 1, 1}, {1, 2, 1}}, key: -1}
	clear := linearInput{writes: []linearWrite{{0, 2, 0}}, key: -1}
	all := linearInput{key: -1}
	for what, c := range map[string]struct {
		want    bool
		history []porcupine.Operation
	}{
		"in order": {true, []porcupine.Operation{{Input: set, Call: 1, Return: 2},
			{Input: all, Call: 3, Output: linearState{1, 1}, Return: 4}}},
		"at once": {true, []porcupine.Operation{{Input: set, Call: 1, Return: 4},
			{Input: all, Call: 2, Output: linearState{}, Return: 3}}},
		"stale": {false, []porcupine.Operation{{Input: set, Call: 1, Return: 2},
			{Input: all, Call: 3, Output: linearState{}, Return: 4}}},
		"torn": {false, []porcupine.Operation{{Input: set, Call: 1, Return: 4},
			{Input: all, Call: 2, Output: linearState{1}, Return: 3}}},
		"undone": {false, []porcupine.Operation{{Input: set, Call: 1, Return: 2}, {Input: clear, Call: 3, Return: 8},
			{ClientId: 1, Input: all, Call: 4, Output: linearState{}, Return: 5}, {ClientId: 1, Input: all, Call: 6,
				Output: linearState{1, 1}, Return: 7}}},
	} {
		if got := porcupine.CheckOperations(linearModel, c.history); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
