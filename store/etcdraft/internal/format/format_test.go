package format_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/etcdraft/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/sealed"
)

var (
	prefix = format.NewPrefix("n")
	meta   = prefix.Meta()
)

func number(n uint64) *uint64 { return &n }

// These bytes are in stores: they do not change.
func TestBytes(t *testing.T) {
	for want, key := range map[string][]byte{
		"g\x01nm": meta,
		"g\x01nc": prefix.Conf(),
		"g\x01nl\x00\x00\x00\x00\x00\x00\x01\x02": prefix.Entry(nil, 258),
		"g\x01np\x00\x00\x00\x00\x00\x00\x01\x02": prefix.Snapshot(258),
	} {
		if string(key) != want {
			t.Errorf("key %q, want %q", key, want)
		}
	}
	entry := &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: number(2), Index: number(258), Data: []byte("data")}
	value, err := format.AppendMessage(nil, prefix.Entry(nil, 258), entry)
	if got := hex.EncodeToString(value); err != nil || got != "8ff0ca9a1008011002188202220464617461" {
		t.Error(got, err)
	}
	value, err = format.AppendState(nil, meta, format.State{Low: 1, Index: 2, Term: 3, Last: 4, High: 5, HasSnapshot: true,
		Snapshot: 6, Hard: &raftpb.HardState{Term: number(7), Vote: number(8), Commit: number(9)}})
	zeros := "00000000000000"
	want := "13" + zeros + "01" + zeros + "02" + zeros + "03" + zeros + "04" + zeros + "05" + zeros + "06" + "080710081809"
	if got := hex.EncodeToString(value[4:]); err != nil || got != want {
		t.Error(got, err)
	}
}

// sealedState is the value of that head and body, with a right sum.
func sealedState(head byte, body []byte) []byte {
	return sealed.Seal(append(sealed.Begin(nil, head), body...), meta, 0)
}

func TestVersion(t *testing.T) {
	for head, want := range map[byte]error{0x20: holdfast.ErrVersion, 0x00: holdfast.ErrCorrupt, 0x14: holdfast.ErrCorrupt,
		0x10: nil, 0x11: nil, 0x12: holdfast.ErrCorrupt} {
		if _, err := format.DecodeState(meta, sealedState(head, make([]byte, 40))); !errors.Is(err, want) {
			t.Errorf("head %x: %v, want %v", head, err, want)
		}
	}
}

// What is read is either refused or written back as it was: nothing is two states, and no state has two forms, but for
// the forms that protobuf has of one hard state.
func FuzzState(f *testing.F) {
	whole := make([]byte, 48)
	whole[7] = 1
	f.Add(byte(0x12), whole)
	f.Add(byte(0x10), whole[:40])
	f.Add(byte(0x11), append(bytes.Clone(whole[:40]), 8, 7, 16, 8, 24, 9))
	f.Add(byte(0x20), []byte{})
	f.Fuzz(func(t *testing.T, head byte, body []byte) {
		value := sealedState(head, body)
		s, err := format.DecodeState(meta, value)
		if err != nil {
			if !errors.Is(err, holdfast.ErrCorrupt) && !errors.Is(err, holdfast.ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		again, err := format.AppendState(nil, meta, s)
		if err != nil || s.Hard == nil && !bytes.Equal(again, value) {
			t.Fatalf("%x is %+v, and that %x, %v", value, s, again, err)
		}
		back, err := format.DecodeState(meta, again)
		if err != nil || !proto.Equal(back.Hard, s.Hard) {
			t.Fatal(back, err)
		}
		if back.Hard, s.Hard = nil, nil; back != s {
			t.Fatal(back, s)
		}
		value[len(value)/2] ^= 1
		if _, err := format.DecodeState(meta, value); err == nil {
			t.Fatal("damage is not seen")
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte{8, 1, 16, 2, 24, 3, 34, 0})
	f.Add([]byte{})
	f.Add([]byte{24})
	f.Fuzz(func(t *testing.T, body []byte) {
		key := prefix.Entry(nil, 3)
		value := sealed.Seal(append(sealed.Begin(nil, 0x10), body...), key, 0)
		e := new(raftpb.Entry)
		if !format.DecodeMessage(key, value, e) {
			return
		}
		again, err := format.AppendMessage(nil, key, e)
		if err != nil {
			t.Fatal(err)
		}
		back := new(raftpb.Entry)
		if !format.DecodeMessage(key, again, back) || !proto.Equal(e, back) {
			t.Fatalf("%v, and then %v", e, back)
		}
		if format.DecodeMessage(prefix.Entry(nil, 4), value, back) {
			t.Fatal("the entry of another key is taken for one")
		}
	})
}
