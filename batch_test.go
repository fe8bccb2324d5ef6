package holdfast_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"pgregory.net/rapid"
)

// A batch yields what was put in, in order, also after it was appended to another and
// reused.
func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b, all holdfast.Batch
		var want []holdfast.Op
		text := rapid.SliceOfN(rapid.Byte(), 0, 300)
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			b.Reset()
			for range rapid.IntRange(0, 10).Draw(t, "ops") {
				op := holdfast.Op{
					Kind: rapid.SampledFrom([]holdfast.Kind{holdfast.KindSet, holdfast.KindDelete, holdfast.KindDeleteRange}).Draw(t,
						"kind"),
					Key: text.Draw(t, "key"), Value: text.Draw(t, "value"),
				}
				switch {
				case op.Kind == holdfast.KindDeleteRange:
					b.DeleteRange(op.Key, op.Value)
				case len(op.Key) == 0:
					continue
				case op.Kind == holdfast.KindSet:
					b.Set(op.Key, op.Value)
				default:
					op.Value = nil
					b.Delete(op.Key)
				}
				want = append(want, op)
			}
			all.Append(&b)
		}
		if all.Len() != len(want) || all.Err() != nil {
			t.Fatalf("%d operations, error %v; want %d", all.Len(), all.Err(), len(want))
		}
		ranged := false
		for _, op := range want {
			ranged = ranged || op.Kind == holdfast.KindDeleteRange
		}
		if all.HasRange() != ranged {
			t.Fatalf("HasRange is %v", all.HasRange())
		}
		i := 0
		for op := range all.Ops() {
			if w := want[i]; op.Kind != w.Kind || !bytes.Equal(op.Key, w.Key) || !bytes.Equal(op.Value, w.Value) {
				t.Fatalf("operation %d is %v, want %v", i, op, w)
			}
			i++
		}
		if i != len(want) {
			t.Fatalf("%d operations yielded, want %d", i, len(want))
		}
	})
}

func TestBatchLimits(t *testing.T) {
	longest := bytes.Repeat([]byte{'k'}, holdfast.MaxKeySize)
	tooLong := append(longest, 'k')
	for _, c := range []struct {
		name string
		do   func(b *holdfast.Batch)
		want error
		say  string
	}{
		{"longest key", func(b *holdfast.Batch) { b.Set(longest, nil) }, nil, ""},
		{"empty key", func(b *holdfast.Batch) { b.Set(nil, nil) }, holdfast.ErrBadKey, "index 0 of the batch: it is empty"},
		{"long key", func(b *holdfast.Batch) { b.Set(tooLong, nil) }, holdfast.ErrBadKey, "16385 bytes"},
		{"delete empty key", func(b *holdfast.Batch) { b.Delete(nil) }, holdfast.ErrBadKey, "empty"},
		{"long bound", func(b *holdfast.Batch) { b.DeleteRange(nil, tooLong) }, holdfast.ErrBadKey, "16385 bytes"},
		{"no bounds", func(b *holdfast.Batch) { b.DeleteRange(nil, nil) }, nil, ""},
		{"long value", func(b *holdfast.Batch) {
			b.Set(longest, make([]byte, holdfast.MaxValueSize+1))
		}, holdfast.ErrTooLarge, "67108865 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b holdfast.Batch
			c.do(&b)
			if err := b.Err(); !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.say) {
				t.Errorf("error %v; want %v with %q", err, c.want, c.say)
			}
			if b.Err() == nil {
				return
			}
			b.Set([]byte("k"), nil)
			var other holdfast.Batch
			other.Append(&b)
			if b.Len() != 0 || !errors.Is(other.Err(), c.want) {
				t.Errorf("after the error the batch has %d operations, and one it was appended to has error %v", b.Len(),
					other.Err())
			}
			b.Reset()
			if b.Set([]byte("k"), nil); b.Err() != nil || b.Len() != 1 {
				t.Errorf("after Reset: %d operations, %v", b.Len(), b.Err())
			}
		})
	}
}

func TestBatchReuseDoesNotAllocate(t *testing.T) {
	var b holdfast.Batch
	key, value := []byte("key"), make([]byte, 100)
	n := 0
	allocs := testing.AllocsPerRun(100, func() {
		b.Reset()
		for range 100 {
			b.Set(key, value)
		}
		for op := range b.Ops() {
			n += len(op.Value)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations a run", allocs)
	}
}

func TestLevels(t *testing.T) {
	for _, l := range holdfast.Levels() {
		text, err := l.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back holdfast.Level
		if err := back.UnmarshalText([]byte(strings.ToUpper(string(text)))); err != nil || back != l {
			t.Errorf("%v was read back as %v: %v", l, back, err)
		}
	}
	if holdfast.Memory >= holdfast.Process || holdfast.Process >= holdfast.Power ||
		holdfast.Power >= holdfast.Quorum {
		t.Error("levels are not ordered by strength")
	}
	if _, err := holdfast.ParseLevel("fsync"); !errors.Is(err, holdfast.ErrLevel) ||
		!strings.Contains(err.Error(), "memory, process, power, quorum") {
		t.Errorf("unknown level: %v", err)
	}
	if _, err := holdfast.Level(9).MarshalText(); !errors.Is(err, holdfast.ErrLevel) {
		t.Errorf("level 9 was encoded: %v", err)
	}
}

func TestErrorSaysWhereAndWhat(t *testing.T) {
	cause := errors.New("device gone")
	err := error(&holdfast.Error{Op: "open", Engine: "bbolt", Path: "/data", Class: holdfast.ErrCorrupt, Offset: 4096,
		Detail: "page 1", Cause: cause, Remedy: "restore a backup"})
	if want := "bbolt open /data at byte 4096: corrupt: page 1: device gone; restore a backup"; err.Error() != want {
		t.Errorf("got  %q\nwant %q", err, want)
	}
	var e *holdfast.Error
	if !errors.Is(err, cause) || !errors.Is(err, holdfast.ErrCorrupt) || !errors.As(err, &e) || e.Offset != 4096 {
		t.Error("class, cause or fields are lost")
	}
}

func TestOptions(t *testing.T) {
	o, err := holdfast.Options{}.WithDefaults()
	if err != nil || o.Level != holdfast.Power || o.SyncEvery != holdfast.DefaultSyncEvery || o.Logger == nil {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	for _, bad := range []holdfast.Options{{Level: 7}, {SyncEvery: 1}, {MemoryBytes: -1}, {MemoryBytes: 1},
		{MemoryBytes: holdfast.MinMemoryBytes - 1}} {
		if _, err := bad.WithDefaults(); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// The error says which operation it was, also in a batch to which another is appended.
func TestBatchErrorIndex(t *testing.T) {
	var b, other holdfast.Batch
	b.Set([]byte("a"), nil)
	b.Delete([]byte("b"))
	b.Set(nil, nil)
	b.Delete(nil)
	other.Set([]byte("a"), nil)
	other.Append(&b)
	for _, err := range []error{b.Err(), other.Err()} {
		if !errors.Is(err, holdfast.ErrBadKey) || strings.Count(err.Error(), "index") != 1 ||
			!strings.Contains(err.Error(), "at index 2 of the batch: it is empty") {
			t.Errorf("got %v", err)
		}
	}
}
