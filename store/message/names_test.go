package message_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ stream, category, id, cardinal string }{
		{"account", "account", "", ""},
		{"account-1", "account", "1", "1"},
		{"account-1+2", "account", "1+2", "1"},
		{"account:command-1+2+3", "account:command", "1+2+3", "1"},
		{"account-1-2", "account", "1-2", "1-2"},
		{"account-", "account", "", ""},
		{"-1", "", "1", "1"},
		{"a-b-c-d", "a", "b-c-d", "b-c-d"},
	} {
		got := [...]string{message.Category(c.stream), message.ID(c.stream), message.CardinalID(c.stream)}
		if got != [...]string{c.category, c.id, c.cardinal} {
			t.Errorf("%q: %q", c.stream, got)
		}
	}
}

// Who reads which stream is that of message-db, so that groups can move over.
func TestGroup(t *testing.T) {
	// The hashes that message-db has: -4266524885998034046 for "1", 2318431741638412123 for "123".
	for _, c := range []struct {
		id   string
		hash uint64
	}{{"1", 4266524885998034046}, {"123", 2318431741638412123}} {
		for size := 1; size < 100; size++ {
			for member := range size {
				has := message.Group{Member: member, Size: size}.Has("category-" + c.id + "+else")
				if want := c.hash%uint64(size) == uint64(member); has != want {
					t.Fatalf("id %q in member %d of %d: %v", c.id, member, size, has)
				}
			}
		}
	}
	for id, want := range map[string]int{"1": 0, "3": 0, "2": 1, "4": 1} {
		if !(message.Group{Member: want, Size: 2}).Has("a-" + id) {
			t.Errorf("id %q is not in member %d of 2", id, want)
		}
	}
	if (message.Group{Member: 0, Size: 1}).Has("a") || !(message.Group{}).Has("a") {
		t.Error("a stream without an id belongs to a member")
	}
}

// Bad input is an error of a class, and writes nothing.
func TestBadInput(t *testing.T) {
	s, n := memStore(t)
	bad := func(typ, data, metadata string) message.Message {
		return message.Message{Type: typ, Data: []byte(data), Metadata: []byte(metadata)}
	}
	ok := bad("t", "{}", "")
	large := `{"a":"` + strings.Repeat("a", holdfast.MaxValueSize) + `"}`
	for _, c := range []struct {
		want     error
		stream   string
		messages []message.Message
	}{
		{message.ErrBadName, "", []message.Message{ok}},
		{message.ErrBadName, "a\x00b", []message.Message{ok}},
		{message.ErrBadName, "a\xff", []message.Message{ok}},
		{message.ErrBadName, "a\n", []message.Message{ok}},
		{message.ErrBadName, strings.Repeat("a", message.MaxStreamSize+1), []message.Message{ok}},
		{message.ErrBadMessage, "a", nil},
		{message.ErrBadMessage, "a", []message.Message{ok, bad("", "{}", "")}},
		{message.ErrBadMessage, "a", []message.Message{bad("t", "", "")}},
		{message.ErrBadMessage, "a", []message.Message{bad("t", "[]", "")}},
		{message.ErrBadMessage, "a", []message.Message{bad("t", `{"a":}`, "")}},
		{message.ErrBadMessage, "a", []message.Message{bad("t", `{} {}`, "")}},
		{message.ErrBadMessage, "a", []message.Message{bad("t", `null`, "")}},
		{message.ErrBadMessage, "a", []message.Message{bad("t", `{}`, "1")}},
		{message.ErrBadMessage, "a", []message.Message{{ID: "1", Type: "t", Data: []byte("{}")}}},
		{message.ErrBadMessage, "a", []message.Message{{ID: strings.Repeat("g", 36), Type: "t", Data: []byte("{}")}}},
		{holdfast.ErrTooLarge, "a", []message.Message{bad("t", large, "")}},
	} {
		_, err := n.Write(ctx, c.stream, c.messages...)
		if !errors.Is(err, c.want) {
			t.Errorf("%.30q: %v, want %v", c.stream, err, c.want)
		}
	}
	_, err := n.Write(ctx, "a")
	storetest.WantError(t, err, message.ErrBadMessage)
	id := "00000000-0000-4000-8000-000000000001"
	_, err = n.Write(ctx, "a", message.Message{ID: id, Type: "t", Data: []byte("{}")},
		message.Message{ID: id, Type: "t", Data: []byte("{}")})
	storetest.WantError(t, err, message.ErrBadMessage)
	for _, v := range []int64{0, 5, -2} {
		_, err = n.WriteAfter(ctx, "a", v, ok)
		storetest.WantError(t, err, message.ErrConflict)
	}
	if n.Last() != 0 {
		t.Fatal(n.Last())
	}
	for _, q := range []message.Query{
		{Stream: "a", Category: "b"}, {Limit: -1}, {Group: message.Group{Member: 1}},
		{Group: message.Group{Member: 2, Size: 2}},
		{Group: message.Group{Member: -1, Size: 2}}, {Stream: "a", Group: message.Group{Size: 2}},
	} {
		for _, err := range n.Read(ctx, q) {
			storetest.WantError(t, err, holdfast.ErrBadOption)
		}
		for _, err := range n.Follow(ctx, q) {
			storetest.WantError(t, err, holdfast.ErrBadOption)
		}
	}
	sub := subscribe(t, n, "s", message.SubscriptionOptions{})
	_, err = n.Streams(ctx, "", "", -1)
	_, err2 := s.Namespaces(ctx, "", -1)
	_, err3 := n.Subscriptions(ctx, "", -1)
	_, err4 := sub.Parked(ctx, 0, -1)
	for _, err := range []error{err, err2, err3, err4} {
		storetest.WantError(t, err, holdfast.ErrBadOption)
	}
	// A category with a '-' has no messages, and is no error.
	if got := read(t, n, message.Query{Category: "a-b"}); got != nil {
		t.Fatal(got)
	}
	if _, ok, err := n.Version(ctx, "none"); ok || err != nil {
		t.Fatal(ok, err)
	}
	_, err = n.LastMessage(ctx, "none", "")
	storetest.WantError(t, err, holdfast.ErrNotFound)
	for _, id := range []string{"", "-a", "_", "a b", "a/b", "..", "ä", strings.Repeat("a", message.MaxNameSize+1)} {
		_, err := s.Create(ctx, message.NamespaceOptions{ID: id})
		storetest.WantError(t, err, message.ErrBadName)
		_, err = s.Namespace(ctx, id)
		storetest.WantError(t, err, message.ErrBadName)
	}
	_, err = s.Create(ctx, message.NamespaceOptions{ID: "a", Metadata: []byte("1")})
	storetest.WantError(t, err, holdfast.ErrBadOption)
	opaque := openStore(t, mem.New(), message.Options{Level: holdfast.Memory, Opaque: true})
	defer closeStore(t, opaque)
	write(t, namespace(t, opaque, message.Default), "a", bad("t", "\x00", "\xff"))
}

// testNamespaces makes, lists and deletes namespaces.
func testNamespaces(t *testing.T, tg *target, o message.Options) {
	s := openStore(t, tg.Engine, o)
	defer func() { closeStore(t, s) }()
	info, err := s.Create(ctx, message.NamespaceOptions{ID: "tenant-1", Description: "the first",
		Metadata: []byte(`{"plan":"small"}`)})
	if err != nil || info.Created.IsZero() {
		t.Fatalf("%+v %v", info, err)
	}
	_, err = s.Create(ctx, message.NamespaceOptions{ID: "tenant-1"})
	storetest.WantError(t, err, message.ErrNamespaceExists)
	_, err = s.Namespace(ctx, "tenant-2")
	storetest.WantError(t, err, message.ErrNoNamespace)
	list := func(want ...string) {
		t.Helper()
		var got []string
		for after := ""; ; {
			page, err := s.Namespaces(ctx, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range page {
				got = append(got, i.ID)
			}
			if len(page) < 2 {
				break
			}
			after = page[1].ID
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	list(message.Default, "tenant-1")
	first, other := namespace(t, s, "tenant-1"), namespace(t, s, message.Default)
	const messages = 1500 // more than one chunk of a deletion
	for i := range messages / 100 {
		var all []message.Message
		for range 100 {
			all = append(all, msg("t"))
		}
		write(t, first, fmt.Sprint("a-", i%7), all...)
	}
	write(t, other, "a-1", msg("other"))
	follower := storetest.Async(func() error {
		for _, err := range first.Follow(ctx, message.Query{Category: "a", From: messages + 1}) {
			return err
		}
		return nil
	})
	if n, err := s.Delete(ctx, "tenant-1"); n != messages || err != nil {
		t.Fatal(n, err)
	}
	storetest.Finished(t, message.ErrNoNamespace, follower)
	_, err = first.Write(ctx, "a-1", msg("t"))
	storetest.WantError(t, err, message.ErrNoNamespace)
	_, err = s.Delete(ctx, "tenant-1")
	storetest.WantError(t, err, message.ErrNoNamespace)
	list(message.Default)
	// Made again it is empty, and what is left of the first one is nowhere.
	if _, err := s.Create(ctx, message.NamespaceOptions{ID: "tenant-1"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again := namespace(t, s, "tenant-1")
		if got := read(t, again, message.Query{}); got != nil || again.Last() != 0 {
			t.Fatal(got)
		}
		closeStore(t, s)
		s = openStore(t, tg.Engine, o)
		list(message.Default, "tenant-1")
	}
	if got := read(t, namespace(t, s, message.Default), message.Query{}); len(got) != 1 || got[0].Type != "other" {
		t.Fatal(got)
	}
}

// A namespace that is cleared is empty and counts from the start; it keeps its description, also when the
// clearing is interrupted, and whoever had it open has to ask again.
func TestClear(t *testing.T) {
	for asked := range int64(10) {
		const first = 2 // how often the context is asked before the namespace is cleared
		engine := mem.New()
		o := message.Options{Level: holdfast.Memory}
		s := openStore(t, engine, o)
		info, err := s.Create(ctx, message.NamespaceOptions{ID: "a", Description: "d"})
		if err != nil {
			t.Fatal(err)
		}
		n := namespace(t, s, "a")
		write(t, n, "x", msg("one"), msg("two"))
		var left atomic.Int64
		left.Store(asked)
		_, cleared := s.Clear(endsAfter{ctx, &left}, "a")
		again := namespace(t, s, "a")
		if got := len(read(t, again, message.Query{})); asked > first && got != 0 || asked <= first && got != 2 {
			t.Fatalf("asked %d: %v, %d messages", asked, cleared, got)
		}
		if asked > first {
			_, err = n.Write(ctx, "x", msg("three"))
			storetest.WantError(t, err, message.ErrNoNamespace)
			if r := write(t, again, "x", msg("one")); r.Position != 0 || r.Global != 1 {
				t.Fatalf("%+v", r)
			}
		}
		closeStore(t, s)
		s = openStore(t, engine, o)
		if got, err := s.Info(ctx, "a"); err != nil || !reflect.DeepEqual(got, info) {
			t.Fatalf("%+v, %v", got, err)
		}
		if got, err := s.Clear(ctx, "a"); err != nil || asked > first && got != 1 {
			t.Fatal(got, err)
		}
		if _, err := s.Clear(ctx, "none"); !errors.Is(err, message.ErrNoNamespace) {
			t.Fatal(err)
		}
		if got, err := namespace(t, s, "a").Count(ctx, ""); err != nil || got != (message.Counts{}) {
			t.Fatal(got, err)
		}
		closeStore(t, s)
	}
}

// endsAfter is a context that has ended once it was asked so often.
type endsAfter struct {
	context.Context
	left *atomic.Int64
}

func (c endsAfter) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Whenever the context of a deletion ends, a write to a namespace that is gone is refused.
func TestDeleteInterrupted(t *testing.T) {
	for asked := range int64(6) {
		s := openStore(t, mem.New(), message.Options{Level: holdfast.Memory})
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		n := namespace(t, s, "a")
		write(t, n, "x", msg("one"))
		var left atomic.Int64
		left.Store(asked)
		_, err := s.Delete(endsAfter{ctx, &left}, "a")
		_, gone := s.Info(ctx, "a")
		if _, wrote := n.Write(ctx, "x", msg("two")); errors.Is(gone, message.ErrNoNamespace) && wrote == nil {
			t.Errorf("asked %d (%v): a write to a deleted namespace was acknowledged", asked, err)
		}
		closeStore(t, s)
	}
}

// Totals are those of open namespaces, and open none, but after a crash.
func TestTotals(t *testing.T) {
	eng := mem.New()
	s := openStore(t, eng, message.Options{Level: holdfast.Memory})
	ids := []string{"empty", "removed", "written"}
	for _, id := range ids {
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids[1:] {
		for i := range 20 {
			write(t, namespace(t, s, id), fmt.Sprint("a-", i%3), msg("t"))
		}
	}
	if _, err := namespace(t, s, "removed").Delete(ctx, "a-1"); err != nil {
		t.Fatal(err)
	}
	totals := func(s *message.Store) (list []string) {
		t.Helper()
		for _, id := range ids {
			c, last, err := s.Totals(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, fmt.Sprint(c.Messages, c.Streams, last))
		}
		return list
	}
	want := []string{"0 0 0", "13 2 20", "20 3 20"}
	killed := mem.New()
	var b holdfast.Batch
	it := eng.Scan(holdfast.Range{})
	for it.Next() {
		b.Set(it.Key(), it.Value())
	}
	if err := errors.Join(it.Close(), holdfast.Commit(killed, &b, holdfast.Memory)); err != nil {
		t.Fatal(err)
	}
	if got := totals(s); !slices.Equal(got, want) {
		t.Errorf("open: %q", got)
	}
	closeStore(t, s)
	s = openStore(t, eng, message.Options{Level: holdfast.Memory})
	if got := totals(s); !slices.Equal(got, want) || len(s.Used()) > 0 {
		t.Errorf("closed: %q, used %v", got, s.Used())
	}
	if _, _, err := s.Totals(ctx, "none"); !errors.Is(err, message.ErrNoNamespace) {
		t.Error(err)
	}
	closeStore(t, s)
	s = openStore(t, killed, message.Options{Level: holdfast.Memory})
	if got := totals(s); !slices.Equal(got, want) {
		t.Errorf("killed: %q", got)
	}
	closeStore(t, s)
}
