package message_test

import (
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// TestOpenOnFullDisk: where there is no room, a store is opened for reading, also if a namespace was being deleted.
// That goes on when there is some.
func TestOpenOnFullDisk(t *testing.T) {
	disk := storetest.NewDisk(t)
	s := openStore(t, disk.Engine, message.Options{})
	write(t, namespace(t, s, message.Default), "a-1", msg("T"))
	_, err := s.Create(ctx, message.NamespaceOptions{ID: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	write(t, namespace(t, s, "gone"), "a-1", msg("T"))
	if err := message.MarkDeleted(s, "gone"); err != nil {
		t.Fatal(err)
	}
	var n *message.Namespace
	for range 2 {
		disk.Restart(true)
		_, err := message.Open(kv.On(disk.Engine), message.Options{Name: "new"})
		storetest.WantError(t, err, holdfast.ErrFull)
		s = openStore(t, disk.Engine, message.Options{})
		n = namespace(t, s, message.Default)
		read := 0
		for m, err := range n.Read(ctx, message.Query{}) {
			if read++; err != nil || m.Type != "T" {
				t.Fatal(m, err)
			}
		}
		if read != 1 {
			t.Errorf("%d messages", read)
		}
		_, err = s.Namespace(ctx, "gone")
		storetest.WantError(t, err, message.ErrNoNamespace)
		_, err = n.Write(ctx, "a-1", msg("T"))
		storetest.WantError(t, err, holdfast.ErrFull)
	}
	disk.MakeRoom()
	if r := write(t, n, "a-1", msg("T")); r.Position != 1 {
		t.Errorf("%+v", r)
	}
	disk.Restart(false)
	s = openStore(t, disk.Engine, message.Options{})
	if left := storetest.Keys(disk.Engine, message.Deleted(s)); left != 0 {
		t.Errorf("%d namespaces are being deleted", left)
	}
	closeStore(t, s)
}

// TestRemoveOnFullDisk: on a full disk of an engine that goes on, messages can be removed, a part of them too, and the
// namespace; and then there is room again.
func TestRemoveOnFullDisk(t *testing.T) {
	const size = 24 << 20
	data := []byte(`{"x":"` + strings.Repeat("x", 10_000) + `"}`)
	for name, remove := range map[string]func(s *message.Store, n *message.Namespace) (int64, error){
		"Delete":    func(_ *message.Store, n *message.Namespace) (int64, error) { return n.Delete(ctx, "a-1") },
		"Truncate":  func(_ *message.Store, n *message.Namespace) (int64, error) { return n.Truncate(ctx, "a-1", 900) },
		"Tombstone": func(_ *message.Store, n *message.Namespace) (int64, error) { return n.Tombstone(ctx, "a-1") },
		"Retain": func(_ *message.Store, n *message.Namespace) (int64, error) {
			if err := n.SetRetention(ctx, "a-1", message.Retention{MaxCount: 100}); err != nil {
				return 0, err
			}
			return n.Retain(ctx)
		},
		"Clear":        func(s *message.Store, _ *message.Namespace) (int64, error) { return s.Clear(ctx, "full") },
		"Store.Delete": func(s *message.Store, _ *message.Namespace) (int64, error) { return s.Delete(ctx, "full") },
	} {
		if testing.Short() && name != "Retain" {
			continue // one goroutine calls, and the race detector sees no more in the others
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := storetest.NewSmallDisk(t, size)
			s := openStore(t, disk.Engine, message.Options{})
			_, err := s.Create(ctx, message.NamespaceOptions{ID: "full"})
			if err != nil {
				t.Fatal(err)
			}
			n := namespace(t, s, "full")
			for range 1000 { // the messages of two streams are mixed, so that each leaves a hole of its own
				write(t, n, "a-1", message.Message{Type: "T", Data: data})
				write(t, n, "b-1", msg("T"))
			}
			disk.Fill()
			_, err = n.Write(ctx, "b-1", message.Message{Type: "T", Data: data})
			storetest.WantError(t, err, holdfast.ErrFull)
			removed, err := remove(s, n)
			if err != nil || removed < 900 {
				t.Fatalf("removed %d: %v", removed, err)
			}
			n = namespace(t, s, message.Default)
			for range 500 {
				disk.Freed(func() error {
					_, err := n.Write(ctx, "c-1", message.Message{Type: "T", Data: data})
					return err
				})
			}
			closeStore(t, s)
		})
	}
}
