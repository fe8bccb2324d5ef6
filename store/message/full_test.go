package message_test

import (
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
