package all_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

func TestAddressesOfServers(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:p@h:1,h2/db?space=a&level=process&memory=64MiB&sslmode=no": "postgres://u:p@h:1,h2/db?space=a&" +
			"sslmode=no",
		"postgresql://h/db?level=process&memory=64MiB": "postgresql://h/db",
	} {
		name, dir, o, err := all.ParseURL(address)
		if name != "postgres" || dir != want || o != (holdfast.Options{Level: holdfast.Process, MemoryBytes: 64 << 20}) ||
			err != nil {
			t.Errorf("%s: %q %q %+v %v; want %q", address, name, dir, o, err, want)
		}
	}
	for address, say := range map[string]string{
		"postgres:data":                       "postgres://USER",
		"postgres://u:secret@h/db?level=1":    "memory, process, power",
		"postgres://u:secret@h/db?memory=1MB": "memory",
		"postgres://u:1/secret@h/db":          "%40",
	} {
		_, err := all.OpenURL(address)
		if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want an error with %q and no password", address, err, say)
		}
	}
	if got := all.Shown("postgres://u:secret@h/db"); got != "postgres://u@h/db" {
		t.Errorf("Shown = %q", got)
	}
	if slices.Contains(all.Names(), "postgres") {
		t.Error("the table of engines in directories has postgres")
	}
}

// Keys go to a space of a server and come back, whole or not at all.
func TestCopyServer(t *testing.T) {
	if _, err := pgserver.Find(); err != nil {
		t.Skip(err)
	}
	ctx := context.Background()
	root, err := os.MkdirTemp("", "holdfast-copy-test-") // a socket's path must be short
	try(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	try(t, os.Chmod(root, 0o711))
	data := filepath.Join(root, "data")
	server, err := pgserver.Open(data, pgserver.Config{New: true, Settings: []string{"shared_buffers=32MB"}})
	try(t, err)
	t.Cleanup(server.Kill)
	try(t, server.Ready(ctx))
	at := func(space string) string {
		return fmt.Sprintf("postgres://postgres@/postgres?host=%s&space=%s", data, space)
	}

	source := filepath.Join(t.TempDir(), "source")
	e, err := all.Open("logtree", source, holdfast.Options{})
	try(t, err)
	var b holdfast.Batch
	for i := range 1000 {
		b.Set(fmt.Appendf(nil, "k%03d", i), fmt.Append(nil, i))
	}
	b.Set([]byte("large"), make([]byte, 3<<20))
	try(t, holdfast.Commit(e, &b, holdfast.Power))
	try(t, e.Close())

	to := all.CopyOptions{Engine: "postgres"}
	copied, err := all.Copy(ctx, source, at("one"), to)
	if err != nil || copied.Keys != 1001 || copied.Engine != "postgres" || copied.Source != "logtree" {
		t.Fatalf("%+v, %v", copied, err)
	}
	if _, err := all.Copy(ctx, source, at("one"), to); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("a copy into a space that has keys: %v", err)
	}
	copied, err = all.Copy(ctx, at("one"), at("two"), to)
	if err != nil || copied.Keys != 1001 || copied.Source != "postgres" {
		t.Fatalf("%+v, %v", copied, err)
	}
	back := filepath.Join(t.TempDir(), "back")
	copied, err = all.Copy(ctx, at("two")+"&memory=16MiB", back, all.CopyOptions{})
	if err != nil || copied.Keys != 1001 || copied.Engine != all.Default {
		t.Fatalf("%+v, %v", copied, err)
	}

	// A copy that fails leaves nothing, and is no hindrance for the next.
	e, err = all.Open("logtree", source, holdfast.Options{})
	try(t, err)
	b.Reset()
	b.Set([]byte("z"+strings.Repeat("long", 1000)), nil)
	try(t, holdfast.Commit(e, &b, holdfast.Power))
	try(t, e.Close())
	if _, err := all.Copy(ctx, source, at("three"), to); !errors.Is(err, holdfast.ErrBadKey) {
		t.Errorf("a copy of a long key: %v", err)
	}
	e, err = all.OpenURL(at("three"))
	try(t, err)
	it := e.Scan(holdfast.Range{})
	if it.Next() {
		t.Errorf("a copy that failed left the key %q", it.Key())
	}
	try(t, it.Close())
	if _, err := all.Copy(ctx, at("one"), at("three"), to); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("a copy into a space that is open: %v", err)
	}
	try(t, e.Close())
	_, err = all.Copy(ctx, at("one"), at("three"), to)
	try(t, err)

	// A backup is a directory of the default engine, on one machine.
	e, err = all.OpenURL(at("three") + "&quorum=declared")
	try(t, err)
	if got := e.Capabilities().Strongest(); got != holdfast.Quorum {
		t.Errorf("the strongest level is %v", got)
	}
	backup := filepath.Join(t.TempDir(), "backup")
	if keys, err := all.Backup(ctx, e, backup); keys != 1001 || err != nil {
		t.Errorf("Backup: %d keys, %v", keys, err)
	}
	try(t, e.Close())
	if v, err := all.Verify(backup); err != nil || v.Engine != all.Default || len(v.Damage) > 0 {
		t.Errorf("Verify of the backup: %+v, %v", v, err)
	}

	// A loss that a repair has recorded goes along, and so does that it was accepted.
	mark, err := os.OpenFile(filepath.Join(backup, "HOLDFAST"), os.O_WRONLY|os.O_APPEND, 0)
	try(t, err)
	_, err = mark.WriteString("lost two keys\n")
	try(t, errors.Join(err, mark.Close()))
	for _, accepted := range []bool{false, true} {
		name := at(fmt.Sprint("lost-", accepted))
		_, err = all.Copy(ctx, backup, name, to)
		try(t, err)
		for range 2 { // opened again
			e, err := postgres.Open(name, holdfast.Options{})
			try(t, err)
			if caps := e.Capabilities(); (caps.Lost == "two keys") == accepted || (caps.Accepted != "") != accepted {
				t.Errorf("a copy of what lost two keys, accepted %v: %+v", accepted, caps)
			}
			log, err := event.Open(kv.On(e), event.Options{})
			if err == nil {
				try(t, log.Close())
			}
			if errors.Is(err, holdfast.ErrCorrupt) == accepted {
				t.Errorf("a log in a copy of what lost two keys, accepted %v: %v", accepted, err)
			}
			try(t, e.Close())
		}
		_, err = all.AcceptLoss(backup)
		try(t, err)
	}
	for _, want := range []string{"two keys", ""} {
		if lost, err := all.AcceptLoss(at("lost-false")); lost != want || err != nil {
			t.Errorf("accepted in the space: %q, %v, want %q", lost, err, want)
		}
	}
	e, err = postgres.Open(at("lost-false"), holdfast.Options{})
	try(t, err)
	if caps := e.Capabilities(); caps.Lost != "" || caps.Accepted == "" {
		t.Errorf("a space whose loss was accepted: %+v", caps)
	}
	try(t, e.Close())
	_, err = all.Copy(ctx, backup, at("four"), to)
	try(t, err)

	// The commands take a space where that has a meaning, and say what to do instead where it has none.
	secret := strings.Replace(at("four"), "postgres@", "postgres:secret@", 1)
	if v, err := all.Verify(secret); err != nil || v.Engine != "postgres" || v.Keys != 1001 || len(v.Damage) > 0 {
		t.Errorf("Verify of a space: %+v, %v", v, err)
	}
	into := filepath.Join(t.TempDir(), "into")
	if keys, err := all.BackupDir(ctx, secret, into); keys != 1001 || err != nil {
		t.Errorf("BackupDir of a space: %d keys, %v", keys, err)
	}
	for says, do := range map[string]func() error{
		"holdfast verify":        func() error { _, err := all.Inspect(secret); return err },
		"holdfast backup":        func() error { return all.CheckpointDir(ctx, secret, into+"2") },
		"into another space":     func() error { _, err := all.Repair(ctx, secret, into+"2"); return err },
		"name it as postgres://": func() error { _, err := all.OpenDir("", secret, holdfast.Options{}); return err },
	} {
		if err := do(); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
