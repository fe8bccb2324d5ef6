package format_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

const store, three = "t\x02st", "\x00\x00\x00\x00\x00\x00\x00\x03"

var record = format.Record{State: 4, Flags: format.Child | format.HasUnique, Priority: -2, Attempt: 1, MaxAttempts: 25,
	Created: 3, At: 4, Due: 5, Started: 6, Finished: 7, Removal: 8, Lease: 9, Until: 10, Token: 11, Turn: 12, First: 13,
	Max: 14, Keep: -1, UniqueFor: 16, ID: "id", Queue: "q", Kind: "k", Key: "key", Sequence: "s", Unique: "u",
	Worker:  "w",
	Payload: []byte("pay"), Output: []byte("out"), Failures: []format.Failure{{1, 2, "m", "st"}}}

// The format does not change by accident.
func TestGolden(t *testing.T) {
	s := format.New("st")
	place := format.Place{Queue: "q", State: 1, Key: "key", Order: format.Order{Rank: 129, Time: 258, Task: 3}}
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{s.Meta(), store + "m"},
		{s.Of(nil, format.TableTasks, 3), store + "t" + three},
		{s.Index(nil, &place), store + "i\x01q\x01\x03key\x81\x00\x00\x00\x00\x00\x00\x01\x02" + three},
		{s.Listed("q", 0), store + "i\x01q"},
		{s.Listed("q", 1), store + "i\x01q\x01"},
		{s.ListedBy("q", 1, "key"), store + "i\x01q\x01\x03key"},
		{s.Sequence(nil, "seq", 3), store + "s\x03seq" + three},
		{s.Child(nil, 3, 3), store + "c" + three + three},
		{s.Rate(nil, "q", ""), store + "r\x01q\x00"},
		{s.Rate(nil, "q", "k"), store + "r\x01q\x01k"},
		{s.Expiry(nil, 3, "text"), store + "x" + three + "text"},
		{format.AppendNumbers(nil, 3, 3), three + three},
		{format.AppendBefore(nil, []format.Before{{Task: 3}, {Task: 3, ID: "id"}}), three + "\x00" + three + "\x02id"},
		{format.Starts{{1, 2, 3}}.Append(nil), "\x02\x04\x06"},
		{record.Append(nil), "\x01\x04\x12\xfe\x02\x32\x06\x08\x0a\x0c\x0e\x10\x12\x14\x16\x18\x1a\x1c\x01\x20" +
			"\x02id\x01q\x01k\x03key\x01s\x01u\x01w\x03pay\x03out\x02\x04\x01m\x02st"},
	} {
		if string(c.got) != c.want {
			t.Errorf("\n got %q\nwant %q", c.got, c.want)
		}
	}
	if got, ok := s.Place(s.Rest(s.Index(nil, &place))); !ok || got != place {
		t.Error(got, ok)
	}
	var got format.Record
	if !got.Parse(record.Append(nil)) || !reflect.DeepEqual(got, record) {
		t.Errorf("%+v", got)
	}
}

// Places lie in the engine as Less says.
func TestOrder(t *testing.T) {
	s := format.New("st")
	rapid.Check(t, func(t *rapid.T) {
		place := func(name string) format.Place {
			small := rapid.Int64Range(0, 2)
			return format.Place{Queue: "q", State: 1, Order: format.Order{Rank: byte(small.Draw(t, name) * 127),
				Time: small.Draw(t, name) << 60, Task: uint64(small.Draw(t, name)) << 62}}
		}
		a, b := place("a"), place("b")
		if a.Less(&b.Order) != (bytes.Compare(s.Index(nil, &a), s.Index(nil, &b)) < 0) {
			t.Fatal(a, b)
		}
	})
}

// FuzzDecode feeds anything to the decoders: what they accept is what is encoded, but for longer forms of varints.
func FuzzDecode(f *testing.F) {
	s := format.New("st")
	f.Add(record.Append(nil))
	f.Add(format.AppendBefore(nil, []format.Before{{Task: 3, ID: "id"}}))
	f.Add(format.Starts{{1, 2, 3}}.Append(nil))
	f.Add(s.Rest(s.Index(nil, &format.Place{Queue: "q", Key: "k"})))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := s.Place(b); ok && !bytes.Equal(s.Rest(s.Index(nil, &p)), b) {
			t.Errorf("%q is %+v", b, p)
		}
		if n, ok := format.Numbers(b); ok && !bytes.Equal(format.AppendNumbers(nil, n...), b) {
			t.Errorf("%q is %v", b, n)
		}
		if before, ok := format.ParseBefore(b); ok && !bytes.Equal(format.AppendBefore(nil, before), b) {
			t.Errorf("%q is %v", b, before)
		}
		if starts, ok := format.ParseStarts(b); ok {
			if again, ok := format.ParseStarts(starts.Append(nil)); !ok || !slices.Equal(again, starts) {
				t.Errorf("%q is %v", b, starts)
			}
		}
		var r, again format.Record
		if r.Parse(b) && (!again.Parse(r.Append(nil)) || !reflect.DeepEqual(r, again)) {
			t.Errorf("%q is %+v", b, r)
		}
	})
}
