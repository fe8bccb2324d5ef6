package chunks_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// bad is a reader whose iterators end with an error at one key.
type bad struct {
	holdfast.Reader
	key   string
	value bool // the key can be read, its value cannot
}

var errBad = errors.New("cannot be read")

func (b bad) Scan(r holdfast.Range) holdfast.Iterator {
	return &badIterator{Iterator: b.Reader.Scan(r), bad: b}
}

type badIterator struct {
	holdfast.Iterator
	bad bad
	err error
}

func (it *badIterator) Next() bool {
	if it.err != nil || !it.Iterator.Next() {
		return false
	}
	if string(it.Key()) == it.bad.key {
		it.err = errBad
		return it.bad.value
	}
	return true
}

func (it *badIterator) Err() error { return it.err }

func TestCut(t *testing.T) {
	eng := mem.New()
	var b holdfast.Batch
	for i := range 10 {
		b.Set(fmt.Appendf(nil, "k%d", i), make([]byte, 100*i))
	}
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lo, hi  string
		reverse bool
		keys    int
		bytes   int64
		bad     string
		last    string
		more    bool
	}{
		{lo: "k0", keys: 100, bytes: 1 << 20, last: "k9"},
		{lo: "k0", keys: 10, bytes: 1 << 20, last: "k9"},
		{lo: "k0", keys: 9, bytes: 1 << 20, last: "k8", more: true},
		{lo: "k3", hi: "k5", keys: 9, bytes: 1 << 20, last: "k4"},
		{lo: "k3", hi: "k5", keys: 1, bytes: 1 << 20, last: "k3", more: true},
		{lo: "k3", hi: "k5", keys: 0, bytes: 0, last: "k3", more: true},
		{lo: "k3", hi: "k3", keys: 9, bytes: 1 << 20},
		{lo: "l", keys: 9, bytes: 1 << 20},
		{lo: "k0", reverse: true, keys: 9, bytes: 1 << 20, last: "k1", more: true},
		{lo: "k0", reverse: true, keys: 10, bytes: 1 << 20, last: "k0"},
		{lo: "k0", keys: 100, bytes: 600, last: "k3", more: true},
		{lo: "k0", keys: 100, bytes: 601, last: "k4", more: true},
		{lo: "k9", keys: 100, bytes: 1, last: "k9"},
		{lo: "k0", keys: 100, bytes: 1 << 20, bad: "k5", last: "k4", more: true},
	} {
		var reader holdfast.Reader = eng
		if c.bad != "" {
			reader = bad{Reader: eng, key: c.bad}
		}
		var deleted holdfast.Batch
		last, more, err := chunks.Cut(&deleted, reader, holdfast.Range{Lo: []byte(c.lo), Hi: []byte(c.hi),
			Reverse: c.reverse}, c.keys, c.bytes)
		if err != nil || string(last) != c.last || more != c.more {
			t.Errorf("%+v: got %q, %v, %v", c, last, more, err)
		}
		end := ""
		for op := range deleted.Ops() {
			end = string(op.Key)
			if op.Kind != holdfast.KindDelete {
				t.Errorf("%+v: %v", c, op.Kind)
			}
		}
		if end != c.last {
			t.Errorf("%+v: deletes up to %q", c, end)
		}
	}
	// A key whose value cannot be read is a chunk, one that cannot be read itself an error.
	r := holdfast.Range{Lo: []byte("k5")}
	if last, more, err := chunks.Cut(nil, bad{eng, "k5", true}, r, 9, 1); err != nil || string(last) != "k5" || !more {
		t.Errorf("got %q, %v, %v", last, more, err)
	}
	if _, _, err := chunks.Cut(nil, bad{eng, "k5", false}, r, 9, 1); !errors.Is(err, errBad) {
		t.Errorf("got %v", err)
	}
	if m := eng.Metrics(); m.OpenIterators != 0 {
		t.Errorf("%d iterators are open", m.OpenIterators)
	}
}
