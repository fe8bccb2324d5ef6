package message_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// repaired is an engine in which a loss was accepted.
type repaired struct {
	holdfast.Engine
	accepted string
}

func (r *repaired) Capabilities() holdfast.Capabilities {
	c := r.Engine.Capabilities()
	c.Accepted = r.accepted
	return c
}

// losing returns an engine that has the keys of another which lost keeps.
func losing(t testing.TB, from holdfast.Engine, lost func(key []byte) bool) holdfast.Engine {
	to := mem.New()
	var b holdfast.Batch
	it := from.Scan(holdfast.Range{})
	for it.Next() {
		if !lost(it.Key()) {
			b.Set(it.Key(), it.Value())
		}
	}
	if err := errors.Join(it.Close(), holdfast.Commit(to, &b, holdfast.Memory)); err != nil {
		t.Fatal(err)
	}
	return &repaired{to, "a loss"}
}

// table is what kind of key a key of the store is, 0 for one of none.
func table(key []byte) string {
	if len(key) < 3 || len(key) < 3+int(key[1]) {
		return ""
	}
	return string([]byte{key[0], key[2+int(key[1])]})
}

// TestAccepted: whatever kind of keys is lost, all of them or some, once the loss was accepted every read gives what is
// there, by whichever index it is read, or an error.
func TestAccepted(t *testing.T) {
	o := message.Options{Level: holdfast.Memory}
	eng := mem.New()
	s := openStore(t, eng, o)
	n := namespace(t, s, message.Default)
	var before []message.Message
	for i := range 60 {
		write(t, n, fmt.Sprintf("%c-%d", 'a'+i%3, i%7), msg(fmt.Sprint(i)))
	}
	if _, err := n.Truncate(ctx, "a-0", 2); err != nil {
		t.Fatal(err)
	}
	if err := n.SavePosition(ctx, "consumer", n.Last()); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, n, "s", message.SubscriptionOptions{})
	got, err := sub.Claim(ctx, 6)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sub.Ack(ctx, got[1:3]...), sub.Park(ctx, "bad", got[3]), sub.Close()); err != nil {
		t.Fatal(err)
	}
	before = read(t, n, message.Query{})
	closeStore(t, s)

	tables := map[string]int{}
	it := eng.Scan(holdfast.Range{})
	for it.Next() {
		tables[table(it.Key())]++
	}
	it.Close()
	if len(tables) < 12 {
		t.Fatalf("the keys are of %d kinds: %v", len(tables), tables)
	}
	for kind := range tables {
		for some := range 4 {
			r := rand.New(rand.NewPCG(uint64(some), 1))
			left := losing(t, eng, func(key []byte) bool { return table(key) == kind && (some == 0 || r.IntN(2) == 0) })
			checkAccepted(t, fmt.Sprintf("kind %q, %d", kind, some), left, o, before, kind == "ee")
		}
	}
	r := rand.New(rand.NewPCG(9, 9))
	for round := range 30 { // of all kinds
		left := losing(t, eng, func([]byte) bool { return r.IntN(5) == 0 })
		checkAccepted(t, fmt.Sprint("round ", round), left, o, before, true)
	}
}

// checkAccepted opens a store and compares all ways to read it. Of the messages some may be lost if that is said.
func checkAccepted(t *testing.T, what string, eng holdfast.Engine, o message.Options, before []message.Message,
	lossy bool) {
	t.Helper()
	s, err := message.Open(kv.On(eng), o)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer closeStore(t, s)
	list, err := s.Namespaces(ctx, "", 0)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", what, list, err)
	}
	n := namespace(t, s, list[0].ID)
	all := read(t, n, message.Query{})
	if !lossy && len(all) < len(before) { // what was removed may be there again
		t.Fatalf("%s: %d messages, %d before", what, len(all), len(before))
	}
	streams, categories := map[string][]int64{}, map[string][]int64{}
	for _, m := range all {
		streams[m.Stream] = append(streams[m.Stream], m.Position)
		c := message.Category(m.Stream)
		categories[c] = append(categories[c], m.Global)
		if again, err := n.Write(ctx, m.Stream, m); err != nil || !again.Repeated || again.Global != m.Global {
			t.Errorf("%s: message %d written again: %+v, %v", what, m.Global, again, err)
		}
	}
	seen := int64(0)
	for category, want := range categories {
		got := read(t, n, message.Query{Category: category})
		c, err := n.Count(ctx, category)
		if len(got) != len(want) || err != nil || c.Messages != int64(len(want)) {
			t.Errorf("%s: category %s: %d read, counted %+v, %v; there are %d", what, category, len(got), c, err, len(want))
		}
		seen += int64(len(want))
	}
	if c, err := n.Count(ctx, ""); err != nil || c.Messages != seen || c.Streams != int64(len(streams)) {
		t.Errorf("%s: counted %+v, %v; there are %d", what, c, err, seen)
	}
	for stream, want := range streams {
		if got := read(t, n, message.Query{Stream: stream}); len(got) != len(want) {
			t.Errorf("%s: stream %s: %d read of %d", what, stream, len(got), len(want))
		}
		version, ok, err := n.Version(ctx, stream)
		if err != nil || !ok || version < want[len(want)-1] {
			t.Errorf("%s: version %d, %v, %v of a stream up to %d", what, version, ok, err, want[len(want)-1])
		}
	}
	if at, err := n.LoadPosition(ctx, "consumer"); err == nil && at > n.Last() {
		t.Errorf("%s: the consumer is at %d, the last message at %d", what, at, n.Last())
	}
	r, err := n.Write(ctx, "new-1", msg("new"))
	if err != nil || len(all) > 0 && r.Global <= all[len(all)-1].Global {
		t.Errorf("%s: the next message is %+v, %v", what, r, err)
	}
}

// A store is made anew once for a loss, and one that is made after it was accepted never.
func TestAcceptedOnce(t *testing.T) {
	o := message.Options{Level: holdfast.Memory}
	eng := &repaired{mem.New(), "one"}
	s := openStore(t, eng, o)
	write(t, namespace(t, s, message.Default), "a-1", msg("t"))
	closeStore(t, s)
	// Without its entry in the index the message is found only once the store is made anew.
	for _, c := range []struct {
		accepted string
		want     int
	}{{"one", 0}, {"two", 1}, {"two", 0}} {
		var b holdfast.Batch
		it := eng.Scan(holdfast.Range{})
		for it.Next() {
			if table(it.Key()) == "mc" {
				b.Delete(it.Key())
			}
		}
		if err := errors.Join(it.Close(), holdfast.Commit(eng, &b, holdfast.Memory)); err != nil {
			t.Fatal(err)
		}
		eng.accepted = c.accepted
		s = openStore(t, eng, o)
		if got := len(read(t, namespace(t, s, message.Default), message.Query{Category: "a"})); got != c.want {
			t.Errorf("after loss %q: %d are found, want %d", c.accepted, got, c.want)
		}
		closeStore(t, s)
	}
}
