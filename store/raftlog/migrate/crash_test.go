package migrate

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestInterrupted ends an import in every phase; it leaves nothing, and its source as it was.
func TestInterrupted(t *testing.T) {
	sources(t, func(t *testing.T, kind string, make func(func(both)) string) {
		rnd := rand.New(rand.NewPCG(9, 9))
		list := logs(rnd, 1, 400)
		for _, l := range list {
			l.Data = bytesOf(rnd, 3000)
		}
		path := make(func(to both) {
			store(t, rnd, to, list)
			votes(t, to, 20)
		})
		before := contentsOf(t, path)
		e := memory(t, vfs.NewMem())
		small(t, 50_000)
		for _, phase := range []string{"copy the source", "copy", "verify"} {
			cause := errors.New("no more of " + phase)
			ctx, cancel := context.WithCancelCause(t.Context())
			calls := 0
			scratch := filepath.Join(t.TempDir(), "scratch")
			_, err := Import(ctx, path, e, Options{Scratch: scratch, Progress: func(at string, done, of int64) {
				if ctx.Err() != nil || done == 0 || (of == 0) != (at == "copy the source") {
					t.Errorf("%s: %d of %d, %v", at, done, of, ctx.Err())
				}
				if at == phase {
					if calls++; calls == 2 {
						cancel(cause)
					}
				}
			}})
			if !errors.Is(err, cause) {
				t.Fatalf("%s: %v", phase, err)
			}
			wantNothing(t, e)
			if _, err := os.Stat(scratch); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the copy of the source is left: %v", err)
			}
			if names, err := raftlog.Stores(e); err != nil || len(names) != 0 {
				t.Errorf("stores: %q, %v", names, err)
			}
		}
		wantUnchanged(t, path, before)
		_, err := Import(t.Context(), path, e, Options{})
		ok(t, err)
		want(t, e, "", list, map[string]any{currentTerm: uint64(20), lastVoteTerm: uint64(19), lastVoteCand: "10.0.0.7"})
	})
}

// TestCrash cuts the power at every step of an import. What is left is no store or an empty one, or an unfinished one
// that cannot be opened, or the whole one; and a new import makes the whole one of it.
func TestCrash(t *testing.T) {
	small(t, 2000)
	for name, entries := range map[string]uint64{"a log": 120, "only keys": 0} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(7, entries))
			list := logs(rnd, 1, entries)
			keys := map[string]any{currentTerm: uint64(20), lastVoteTerm: uint64(19), lastVoteCand: "10.0.0.7"}
			path := makeWAL(t, 64<<10, func(to both) {
				store(t, rnd, to, list)
				votes(t, to, 20)
			})
			outcomes := map[string]int{}
			for steps := int64(1); ; steps++ {
				fsys := vfs.NewMem()
				fsys.Seed(rnd.Uint64())
				e := openOn(t, fsys)
				fsys.HaltAfter(steps)
				_, err := Import(t.Context(), path, e, Options{})
				done := err == nil
				fsys.Halt()
				_ = e.Close() // the disk is gone
				for _, image := range []*vfs.Mem{fsys.Crash(rnd), fsys.CrashNothing(), fsys.CrashAll()} {
					e := openOn(t, image)
					names, err := raftlog.Stores(e)
					ok(t, err)
					s, err := raftlog.Open(e, raftlog.Options{})
					var last uint64
					var found [][]byte
					if err == nil {
						last, err = s.LastIndex()
						ok(t, err)
						found, err = s.Keys()
						ok(t, err)
					}
					switch {
					case len(names) <= 1 && err == nil && last == 0 && len(found) == 0 && !done:
						outcomes["nothing"]++
						ok(t, s.Close())
					case len(names) == 1 && errors.Is(err, holdfast.ErrCorrupt) && !done:
						outcomes["unfinished"]++
						_, err := raftlog.Inspect(e, "", false)
						wantError(t, err, holdfast.ErrCorrupt, "not finished")
					case len(names) == 1 && err == nil:
						outcomes["whole"]++
						ok(t, s.Close())
						want(t, e, "", list, keys)
						_, err := Import(t.Context(), path, e, Options{})
						wantError(t, err, holdfast.ErrBadOption, "not empty")
						ok(t, e.Close())
						continue
					default:
						t.Fatalf("after %d steps, done %v: stores %q, %v", steps, done, names, err)
					}
					_, err = Import(t.Context(), path, e, Options{})
					ok(t, err)
					want(t, e, "", list, keys)
					ok(t, e.Close())
				}
				if done {
					break
				}
			}
			t.Log(outcomes)
			if outcomes["unfinished"] == 0 || outcomes["whole"] == 0 {
				t.Error("this cannot be")
			}
		})
	}
}

// TestFailingEngine: an engine that stops in the middle leaves an unfinished import, and the error says so.
func TestFailingEngine(t *testing.T) {
	path := makeBolt(t, false, func(to both) { ok(t, to.StoreLog(&raft.Log{Index: 1, Term: 1})) })
	e := memory(t, vfs.NewMem())
	broken := &failing{Engine: e, after: 3}
	_, err := Import(t.Context(), path, broken, Options{})
	wantError(t, err, errBroken, "still there")
	_, err = raftlog.Open(e, raftlog.Options{})
	wantError(t, err, holdfast.ErrCorrupt)
	_, err = Import(t.Context(), path, e, Options{})
	ok(t, err)
	want(t, e, "", []*raft.Log{{Index: 1, Term: 1}}, nil)
}

var errBroken = errors.New("broken")

// failing refuses batches after some.
type failing struct {
	holdfast.Engine
	after int
}

func (f *failing) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if f.after--; f.after < 0 {
		return holdfast.Receipt{}, &holdfast.Error{Op: "apply", Class: holdfast.ErrPoisoned, Cause: errBroken}
	}
	return f.Engine.Apply(b, level)
}

// TestWrongCopies: an engine that stores something else is found out, and nothing of it stays.
func TestWrongCopies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(10, 10))
	path := makeBolt(t, false, func(to both) {
		store(t, rnd, to, logs(rnd, 1, 50))
		votes(t, to, 3)
	})
	for name, change := range map[string]func(op holdfast.Op, n int, b *holdfast.Batch){
		"lost": func(op holdfast.Op, n int, b *holdfast.Batch) {
			if n != 30 {
				b.Set(op.Key, op.Value)
			}
		},
		"flipped": func(op holdfast.Op, n int, b *holdfast.Batch) {
			if n == 30 {
				op.Value[len(op.Value)-1] ^= 1
			}
			b.Set(op.Key, op.Value)
		},
		"twice": func(op holdfast.Op, n int, b *holdfast.Batch) {
			b.Set(op.Key, op.Value)
			if n == 30 {
				key := append([]byte(nil), op.Key...)
				key[len(key)-2]++
				b.Set(key, op.Value)
			}
		},
		"other key": func(op holdfast.Op, n int, b *holdfast.Batch) {
			if n > 50 {
				op.Value[len(op.Value)-1] ^= 1
			}
			b.Set(op.Key, op.Value)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := memory(t, vfs.NewMem())
			small(t, 1000)
			m := &mutant{Engine: e, change: change}
			_, err := Import(t.Context(), path, m, Options{})
			wantError(t, err, holdfast.ErrCorrupt)
			if m.published {
				t.Error("it could be opened before it was compared")
			}
			wantNothing(t, e)
		})
	}
}

// mutant changes what is set.
type mutant struct {
	holdfast.Engine
	n         int
	change    func(op holdfast.Op, n int, b *holdfast.Batch)
	published bool // the mark of an unfinished import was removed
}

func (l *mutant) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	var other holdfast.Batch
	for op := range b.Ops() {
		switch op.Kind {
		case holdfast.KindSet:
			l.n++
			op.Key, op.Value = append([]byte(nil), op.Key...), append([]byte(nil), op.Value...)
			l.change(op, l.n, &other)
		case holdfast.KindDelete:
			l.published = true // nothing else is deleted singly
			other.Delete(op.Key)
		case holdfast.KindDeleteRange:
			other.DeleteRange(op.Key, op.Value)
		}
	}
	return l.Engine.Apply(&other, level)
}
