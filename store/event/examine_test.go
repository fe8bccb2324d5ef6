package event_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// TestExamine: events, single ones and packs, that are taken out of a log are found missing, and all numbers fit
// together.
func TestExamine(t *testing.T) {
	eng := mem.New()
	for _, name := range []string{"", "orders", "short"} {
		log, err := event.Open(kv.On(eng), event.Options{Name: name, Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			events := []event.Event{{Type: "a", ID: fmt.Sprint("a", i)}}
			if i%2 == 1 {
				more := event.Event{Type: "b", ID: fmt.Sprint("b", i)}
				last := event.Event{Type: "c", ID: fmt.Sprint("c", i)}
				events = append(events, more, last)
			}
			if _, err := log.Append(context.Background(), events...); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := log.TruncateBefore(context.Background(), 4); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// 1, [2 3 4], 5, [6 7 8], 9, ... [38 39 40]: the truncation is within the first pack.
	sound := event.Report{Name: "", First: 4, Last: 40, Events: 37}
	orders := format.NewPrefix("orders")
	var b holdfast.Batch
	b.Delete(orders.Event(nil, 5))
	b.Delete(orders.Event(nil, 8))
	b.Delete(orders.Event(nil, 13))
	b.Delete(orders.Event(nil, 40)) // the ids tell
	short := format.NewPrefix("short")
	b.DeleteRange(short.Event(nil, 17), short.Event(nil, 41))
	b.DeleteRange(short.ID(nil, 0, ""), short.Meta())
	b.Delete(short.Meta())
	b.Set([]byte("e"), []byte("nobody's"))
	b.Set([]byte("e\x09orders"), nil)
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	got, err := event.Examine(eng)
	if err != nil {
		t.Fatal(err)
	}
	want := []event.Report{sound,
		{Name: "short", First: 2, Last: 16, Events: 15, Undescribed: true},
		{Name: "orders", First: 4, Last: 40, Events: 29, Lost: []event.Gap{
			{Position: 5, Next: 9}, {Position: 13, Next: 14}, {Position: 38, Next: 41}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	for key, want := range map[string]string{
		string(orders.Event(nil, 8)):    `event 8 of log "orders"`,
		string(orders.ID(nil, 0, "a1")): `id "a1" of log "orders"`,
		string(orders.Meta()):           `the description of log "orders"`,
		string(orders.Offset("mail")):   `offset "mail" of log "orders"`,
		"e":                             "",
		"e\x09orders":                   "",
		"other":                         "",
	} {
		if got := event.KeyName([]byte(key)); got != want {
			t.Errorf("%q is %q, want %q", key, got, want)
		}
	}
}
