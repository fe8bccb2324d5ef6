package format_test

import (
	"bytes"
	"testing"

	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// The format does not change by accident.
func TestGolden(t *testing.T) {
	s := format.New("st")
	n := s.Of(258)
	const store, number = "m\x02st", "\x00\x00\x00\x00\x00\x00\x01\x02"
	const three = "\x00\x00\x00\x00\x00\x00\x00\x03"
	lo, hi := n.Bounds(format.TableStreams)
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{s.Meta(), store + "m"},
		{s.Namespace("default"), store + "ndefault"},
		{s.Deleted(258), store + "d" + number},
		{n.Stream(nil, "a-1", 3), store + "s" + number + "a-1\x00" + three},
		{n.AfterStream(nil, "a-1"), store + "s" + number + "a-1\x01"},
		{n.FromStream(nil, "a"), store + "s" + number + "a"},
		{n.Category(nil, "a", 3), store + "c" + number + "a\x00" + three},
		{n.AfterCategory(nil, "a"), store + "c" + number + "a\x01"},
		{n.Head("a-1"), store + "h" + number + "a-1"},
		{n.Count("a"), store + "k" + number + "a"},
		{n.Counted(), store + "p" + number},
		{lo, store + "s" + number},
		{hi, store + "s\x00\x00\x00\x00\x00\x00\x01\x03"},
		{[]byte(format.LogName("st", 258)), "message\x00st" + number},
		{format.AppendNumber(nil, 3), three},
		{format.AppendCounts(nil, 3, 258), three + number},
		{format.AppendPlace(nil, "a-1", 3, true), three + "\x01a-1"},
		{format.AppendPlace(nil, "a", 3, false), three + "\x00a"},
	} {
		if string(c.got) != c.want {
			t.Errorf("\n got %q\nwant %q", c.got, c.want)
		}
	}
	if len(format.LogName("st", 258)) != len("st")+format.LogNameOverhead || format.PlaceSize("a-1") != 12 {
		t.Error("sizes")
	}
	if name, at, ok := n.Placed(n.Stream(nil, "a-1", 3)); string(name) != "a-1" || at != 3 || !ok {
		t.Error(name, at, ok)
	}
	if store, number, ok := format.SplitLogName(format.LogName("st", 258)); store != "st" || number != 258 || !ok {
		t.Error(store, number, ok)
	}
	if name := n.Named(n.Head("a-1")); name != "a-1" {
		t.Error(name)
	}
}

// FuzzDecode feeds anything to the decoders: what they accept is what is encoded.
func FuzzDecode(f *testing.F) {
	n := format.New("st").Of(1)
	f.Add(format.AppendPlace(nil, "a", 1, true))
	f.Add(format.AppendCounts(nil, 1, 2))
	f.Add(n.Stream(nil, "a", 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if stream, at, first, ok := format.Place(b); ok && !bytes.Equal(format.AppendPlace(nil, string(stream), at, first),
			b) {
			t.Errorf("%q means %q at %d", b, stream, at)
		}
		if messages, streams, ok := format.Counts(b); ok && !bytes.Equal(format.AppendCounts(nil, messages, streams), b) {
			t.Errorf("%q means %d and %d", b, messages, streams)
		}
		key := append(n.FromStream(nil, ""), b...)
		if name, at, ok := n.Placed(key); ok && !bytes.Equal(n.Stream(nil, string(name), at), key) {
			t.Errorf("%q means %q at %d", key, name, at)
		}
	})
}
