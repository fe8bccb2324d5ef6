package message_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// Whatever keys of a store are lost, after Rebuild what is left is found by stream and category, counted, and written
// behind. A rebuild that ended early can be done again.
func TestRebuild(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		st := storetest.NewFakeEngine()
		o := message.Options{Name: "st", Level: holdfast.Memory}
		s := openStore(t, st, o)
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: "other"}); err != nil {
			t.Fatal(err)
		}
		before := map[string]message.Message{}
		for _, id := range []string{message.Default, "other"} {
			n := namespace(t, s, id)
			for i := range 40 {
				stream := fmt.Sprintf("%c-%d", 'a'+r.IntN(2), r.IntN(3))
				switch r.IntN(8) {
				case 0:
					if _, err := n.Truncate(ctx, stream, r.Int64N(6)); err != nil {
						t.Fatal(err)
					}
				case 1:
					err := importLines(n, lineOf(1000+i, stream, 200*int64(i+1), n.Last()+r.Int64N(8)+1))
					if err != nil {
						t.Fatal(err)
					}
				default:
					write(t, n, stream, msg("t"), msg("u"))
				}
			}
			if err := n.SavePosition(ctx, "consumer", n.Last()); err != nil {
				t.Fatal(err)
			}
			for _, m := range read(t, n, message.Query{}) {
				before[id+m.ID] = m
			}
		}
		closeStore(t, s)
		var b holdfast.Batch
		it := st.Scan(holdfast.Range{})
		for it.Next() {
			if r.IntN(4) == 0 && !strings.HasPrefix(event.KeyName(it.Key()), "offset") {
				b.Delete(it.Key())
			}
		}
		if err := errors.Join(it.Close(), holdfast.Commit(st, &b, holdfast.Memory)); err != nil {
			t.Fatal(err)
		}
		var broken holdfast.Batch
		it = st.Scan(holdfast.Range{})
		for it.Next() {
			broken.Set(it.Key(), it.Value())
		}
		it.Close()
		st.Record = true
		list, err := message.Rebuild(ctx, st, o)
		if err != nil || len(list) != 2 {
			t.Fatalf("seed %d: %+v, %v", seed, list, err)
		}
		checkRebuilt(t, seed, st, o, list, before)
		again := mem.New() // as if killed in between, and done again
		for _, b := range append([]*holdfast.Batch{&broken}, st.Batches[:r.IntN(len(st.Batches))]...) {
			if err := holdfast.Commit(again, b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
		}
		if list, err = message.Rebuild(ctx, again, o); err != nil || len(list) != 2 {
			t.Fatalf("seed %d: %+v, %v", seed, list, err)
		}
		checkRebuilt(t, seed, again, o, list, before)
	}
}

func checkRebuilt(t *testing.T, seed uint64, eng holdfast.Engine, o message.Options, list []message.Rebuilt,
	before map[string]message.Message) {
	t.Helper()
	s := openStore(t, eng, o)
	defer closeStore(t, s)
	for i, r := range list {
		n := namespace(t, s, r.ID)
		was := []string{message.Default, "other"}[i]
		if r.ID != was && r.ID != "recovered-2" || r.Found && r.ID == "other" {
			t.Errorf("seed %d: %q is found as %+v", seed, was, r)
		}
		streams, categories := map[string][]message.Message{}, map[string][]message.Message{}
		all := read(t, n, message.Query{})
		for _, m := range all {
			if old, ok := before[was+m.ID]; ok && !reflect.DeepEqual(old, m) { // else it was removed, and is there again
				t.Fatalf("seed %d: %+v was %+v", seed, m, old)
			}
			category := message.Category(m.Stream)
			streams[m.Stream], categories[category] = append(streams[m.Stream], m), append(categories[category], m)
		}
		want := message.Counts{Messages: int64(len(all)), Streams: int64(len(streams))}
		if c, err := n.Count(ctx, ""); c != want || err != nil {
			t.Errorf("seed %d: counts %+v, want %+v, %v", seed, c, want, err)
		}
		if got, err := n.Categories(ctx); len(got) != len(categories) || err != nil {
			t.Errorf("seed %d: %+v, %v", seed, got, err)
		}
		if got, err := n.Streams(ctx, "", "", 0); len(got) != len(streams) || err != nil {
			t.Errorf("seed %d: %+v, %v", seed, got, err)
		}
		for category, want := range categories {
			if got := read(t, n, message.Query{Category: category}); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: category %s is\n%+v, want\n%+v", seed, category, got, want)
			}
		}
		for stream, want := range streams {
			got := read(t, n, message.Query{Stream: stream})
			if len(got) != len(want) {
				t.Fatalf("seed %d: stream %s is\n%+v, want\n%+v", seed, stream, got, want)
			}
			at := write(t, n, stream, msg("t"))
			if at.Position <= got[len(got)-1].Position || at.Global <= int64(r.Log.Last) {
				t.Fatalf("seed %d: written at %+v behind %+v", seed, at, got[len(got)-1])
			}
		}
		for _, m := range all { // its id is known
			again := message.Message{ID: m.ID, Type: m.Type, Data: m.Data}
			if at, err := n.Write(ctx, m.Stream, again); !at.Repeated || at.Position != m.Position || err != nil {
				t.Fatalf("seed %d: %+v again: %+v, %v", seed, m, at, err)
			}
		}
	}
}

// A store without its description is not taken for a new one, and an engine without a store gets none.
func TestRebuildOfNothing(t *testing.T) {
	eng := mem.New()
	o := message.Options{Level: holdfast.Memory}
	if list, err := message.Rebuild(ctx, eng, o); len(list) != 0 || err != nil {
		t.Error(list, err)
	}
	if k := storetest.Keys(eng, holdfast.Range{}); k != 0 {
		t.Errorf("%d keys", k)
	}
	s := openStore(t, eng, o)
	_, err := message.Rebuild(ctx, eng, o)
	storetest.WantError(t, err, holdfast.ErrLocked)
	closeStore(t, s)
	var b holdfast.Batch
	b.Delete([]byte("m\x00m"))
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	_, err = message.Open(kv.On(eng), o)
	storetest.WantError(t, err, holdfast.ErrCorrupt)
	if names, err := message.Stores(eng); len(names) != 1 || names[0] != "" || err != nil {
		t.Error(names, err)
	}
	if _, err := message.Rebuild(ctx, eng, o); err != nil {
		t.Fatal(err)
	}
	closeStore(t, openStore(t, eng, o))
}
