package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// openSpace opens a space named after the test, of the server behind host.
func openSpace(t *testing.T, host string) *engine {
	t.Helper()
	opened, err := Open(at(host, spaceOf(t)), holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })

	return opened.(*engine)
}

// query asks the server for one value, as nobody in particular.
func query(t *testing.T, host, sql string, args ...any) (value any) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), strings.Split(at(host, ""), "&space")[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}

	return value
}

func put(t *testing.T, e holdfast.Engine, level holdfast.Level, keysAndValues ...string) {
	t.Helper()
	var b holdfast.Batch
	for i := 0; i < len(keysAndValues); i += 2 {
		b.Set([]byte(keysAndValues[i]), []byte(keysAndValues[i+1]))
	}
	if err := holdfast.Commit(e, &b, level); err != nil {
		t.Fatal(err)
	}
}

// Snapshots of one state have one connection, of which a server has few.
func TestSnapshotsShareConnections(t *testing.T) {
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	for _, value := range []string{"1", "2"} {
		put(t, e, holdfast.Power, "k", value)
		var open []interface{ Close() error }
		for range 3 * connections {
			s, err := e.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, s.Scan(holdfast.Range{}), s)
			if got, err := s.Get(nil, []byte("k")); string(got) != value || err != nil {
				t.Fatalf("Get = %q, %v; want %q", got, err, value)
			}
			if e.begun.Load() == 1 { // no beat has come between
				put(t, e, holdfast.Power, "l", value) // another state
			}
		}
		if n := len(e.states); n > 5 {
			t.Errorf("%d snapshots of few states have %d connections", 3*connections, n)
		}
		for _, s := range open {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if e.newest != nil {
			t.Error("with all closed, a state is kept")
		}
		idle(t, e)
	}

	// Of different states only so many can be read, and the error says what to do.
	var states []holdfast.Snapshot
	for i := range maxStates {
		put(t, e, holdfast.Memory, "k", fmt.Sprint(i))
		s, err := e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	put(t, e, holdfast.Memory, "k", "last")
	e.patience = 50 * time.Millisecond
	if _, err := e.Snapshot(); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "close some") {
		t.Errorf("a snapshot more than there are connections for: %v", err)
	}
	e.patience = defaultPatience
	if got, err := e.Get(nil, []byte("k")); string(got) != "last" || err != nil {
		t.Errorf("Get beside as many snapshots as there can be = %q, %v", got, err)
	}
	for i, s := range states {
		if got, err := s.Get(nil, []byte("k")); string(got) != fmt.Sprint(i) || err != nil {
			t.Errorf("Get of snapshot %d = %q, %v", i, got, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Connections break before and after the server has got a commit: it is made once, and nobody sees an error.
func TestConnectionsThatBreak(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e := openSpace(t, p.dir)
	first := query(t, os.Getenv(variable), "SELECT seq FROM holdfast_space WHERE name = $1", spaceOf(t)).(int64)
	p.every.Store(13) // more than it takes to connect and commit
	const n = 80
	for i := range n {
		put(t, e, holdfast.Power, fmt.Sprintf("k%02d", i), fmt.Sprint(i))
		if got, err := e.Get(nil, fmt.Appendf(nil, "k%02d", i)); string(got) != fmt.Sprint(i) || err != nil {
			t.Fatalf("Get = %q, %v", got, err)
		}
	}
	p.every.Store(0)
	if lost := p.lost.Load(); lost < 10 {
		t.Errorf("%d connections broke, want many", lost)
	}
	state, err := commits.Contents(e, holdfast.Range{})
	if err != nil || len(state) != n {
		t.Errorf("%d keys are there, %v; want %d", len(state), err, n)
	}
	last := query(t, os.Getenv(variable), "SELECT seq FROM holdfast_space WHERE name = $1", spaceOf(t)).(int64)
	if made := last - first; made < n || made > n+30 { // a beat each second, too
		t.Errorf("%d transactions were made of %d commits", made, n)
	}

	// The process that has connected again still has the space.
	if _, err := Open(at(os.Getenv(variable), spaceOf(t)), holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("a second Open after the first one's connection broke: %v", err)
	}

	// A connection that ends at every statement is given up, and it is not known what became of the last commit.
	e.patience = time.Second
	p.every.Store(1)
	var b holdfast.Batch
	b.Set([]byte("k"), nil)
	err = holdfast.Commit(e, &b, holdfast.Power)
	if !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("a commit without a connection: %v", err)
	}
	if _, err := e.Get(nil, []byte("k")); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Get without a connection: %v", err)
	}
}

// A session that ends while nobody writes does not leave the space to others.
func TestIdleSessionEnds(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	put(t, e, holdfast.Power, "k", "v")
	holder := "SELECT holder FROM holdfast_space WHERE name = $1"
	before := query(t, os.Getenv(variable), holder, spaceOf(t))
	query(t, os.Getenv(variable), "SELECT pg_terminate_backend($1::int)", strings.Split(before.(string), "/")[1])
	testkit.Until(t, "the space has a session again", func() bool {
		return query(t, os.Getenv(variable), holder, spaceOf(t)) != before
	})
	if _, err := Open(at(os.Getenv(variable), spaceOf(t)), holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("a second Open: %v", err)
	}
}

// Who lost the space learns it without writing, and commits nothing.
func TestTakenByAnother(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	for _, how := range []string{"writing", "waiting"} {
		e := openSpace(t, os.Getenv(variable))
		put(t, e, holdfast.Power, "k", "v")
		query(t, os.Getenv(variable), "UPDATE holdfast_space SET epoch = epoch + 1 WHERE name = $1 RETURNING 1", spaceOf(t))
		if how == "writing" {
			var b holdfast.Batch
			b.Set([]byte("k"), []byte("w"))
			err := holdfast.Commit(e, &b, holdfast.Memory)
			if !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, holdfast.ErrFenced) {
				t.Errorf("a commit to a space that was taken: %v", err)
			}
		}
		testkit.Receive(t, "Done tells that the space was taken", e.Done())
		if err := e.Err(); !errors.Is(err, holdfast.ErrFenced) {
			t.Errorf("Err = %v", err)
		}
		if err := e.Close(); !errors.Is(err, holdfast.ErrFenced) {
			t.Errorf("Close = %v", err)
		}
	}
	e := openSpace(t, os.Getenv(variable))
	if got, err := e.Get(nil, []byte("k")); string(got) != "v" || err != nil {
		t.Errorf("Get = %q, %v", got, err)
	}
}

// A server that is killed and comes back is a pause. What was acknowledged at Memory may be lost, and that is told.
func TestServerRestarts(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	dir, err := os.MkdirTemp("", "holdfast-restart-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	// Memory is not written by itself, so that it is surely lost.
	server, err := startServer(data, "wal_writer_delay=10s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Kill() })
	restart := func() {
		server.Kill()
		if server, err = startServer(data); err != nil {
			t.Fatal(err)
		}
	}
	e := openSpace(t, data)
	put(t, e, holdfast.Power, "k", "1")
	s, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	restart()
	put(t, e, holdfast.Power, "l", "1")
	if got, err := e.Get(nil, []byte("k")); string(got) != "1" || err != nil {
		t.Errorf("Get = %q, %v", got, err)
	}
	if _, err := s.Get(nil, []byte("k")); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("Get of a snapshot whose connection has ended: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	// The server now writes every 200 ms; a thousand commits end in less.
	for i := range 100 {
		put(t, e, holdfast.Memory, "m", fmt.Sprint(i))
	}
	restart()
	var b holdfast.Batch
	b.Set([]byte("n"), nil)
	switch err := holdfast.Commit(e, &b, holdfast.Power); {
	case err == nil: // it had written all
	case !errors.Is(err, holdfast.ErrPoisoned) || errors.Is(err, holdfast.ErrCorrupt) ||
		!strings.Contains(err.Error(), "weaker levels"):
		t.Errorf("a commit after the server lost what was acknowledged at memory: %v", err)
	}
	_ = e.Close()
	e = openSpace(t, data)
	for _, key := range []string{"k", "l"} {
		if got, err := e.Get(nil, []byte(key)); string(got) != "1" || err != nil {
			t.Errorf("Get(%s) = %q, %v", key, got, err)
		}
	}

	// A server that is not the one that it was.
	put(t, e, holdfast.Power, "o", "1")
	query(t, data, "WITH older AS (UPDATE holdfast_space SET seq = seq - 1 RETURNING holder) "+
		"SELECT pg_terminate_backend(split_part(holder, '/', 2)::int) FROM older")
	if err := holdfast.Commit(e, &b, holdfast.Power); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("a commit to a server that lost what was acknowledged at power: %v", err)
	}
}

// A batch that is sent in several statements is one, in the order of its operations.
func TestLargeBatch(t *testing.T) {
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	var b holdfast.Batch
	large := bytes.Repeat([]byte("x"), 5<<20)
	b.Set([]byte("gone"), large)
	b.Set([]byte("k"), large)
	b.Set([]byte("other"), large)
	b.Delete([]byte("gone"))
	b.Set([]byte("k"), []byte("last"))
	b.DeleteRange([]byte("o"), []byte("p"))
	b.Set([]byte("other"), []byte("again"))
	if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	state, err := commits.Contents(e, holdfast.Range{})
	if got := fmt.Sprint(state); err != nil || got != `["k" = "last" "other" = "again"]` {
		t.Errorf("there are %.200s, %v", got, err)
	}
}

// Opening another space does not wait for the snapshots of this one.
func TestOpenBesideSnapshots(t *testing.T) {
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	s, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := Open(at(os.Getenv(variable), "other"), holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	needServer(t)
	data := os.Getenv(variable)
	openSpace(t, data) // so that the tables are there
	for _, sql := range []string{
		"CREATE ROLE nobody LOGIN", "CREATE DATABASE taken", "REVOKE CREATE ON SCHEMA public FROM public",
		"UPDATE holdfast_space SET name = name WHERE false",
		"INSERT INTO holdfast_space (name, format, epoch, seq, holder, beat) VALUES ('newer', 2, 0, 0, '', 0)",
	} {
		execute(t, data, "postgres", sql)
	}
	execute(t, data, "taken", "CREATE TABLE holdfast_kv (key text)")
	old := newProxy(t, data, func(answer []byte) []byte {
		return bytes.ReplaceAll(answer, []byte(query(t, data, "SHOW server_version_num").(string)), []byte("120000"))
	})
	pooler := newProxy(t, data, func(answer []byte) []byte {
		// BackendKeyData: a pooler has sessions of its own.
		if at := bytes.Index(answer, []byte{'K', 0, 0, 0, 12}); at >= 0 {
			binary.BigEndian.PutUint32(answer[at+5:], 1<<30)
		}

		return answer
	})
	for _, x := range []struct {
		name, address string
		o             holdfast.Options
		class         error
		says          string
	}{
		{"no scheme", "localhost/db", holdfast.Options{}, holdfast.ErrBadOption, "postgres://"},
		{"a file", "postgres:file", holdfast.Options{}, holdfast.ErrBadOption, "postgres://"},
		{"no number", "postgres://u:secret@h:port/db", holdfast.Options{}, holdfast.ErrBadOption, "%40"},
		{"an @ in a password", "postgres://u:1/secret@h/db", holdfast.Options{}, holdfast.ErrBadOption, "%40"},
		{"a bad setting", "postgres://u:secret@h/db?sslmode=none", holdfast.Options{}, holdfast.ErrBadOption, "write it"},
		{"a space", at(data, "a%20b"), holdfast.Options{}, holdfast.ErrBadOption, `"a b"`},
		{"no database", "postgres://postgres:secret@/none?host=" + data, holdfast.Options{}, holdfast.ErrUnavailable,
			"does not exist"},
		{"no server", "postgres://postgres:secret@/none?host=/none&password=secret", holdfast.Options{},
			holdfast.ErrUnavailable, "start the server"},
		{"reading only", at(data, "x"), holdfast.Options{ReadOnly: true}, holdfast.ErrUnavailable, "reading only"},
		{"an old server", at(old.dir, "x"), holdfast.Options{}, holdfast.ErrUnavailable, "use version 13"},
		{"a pooler", at(pooler.dir, "x"), holdfast.Options{}, holdfast.ErrUnavailable, "pooler"},
		{"a newer format", at(data, "newer"), holdfast.Options{}, holdfast.ErrVersion, "format 2"},
		{"others' tables", "postgres://postgres@/taken?host=" + data, holdfast.Options{}, holdfast.ErrForeign, "key text"},
		{"no rights", "postgres://nobody@/postgres?host=" + data, holdfast.Options{}, holdfast.ErrUnavailable,
			"let the role"},
		{"no right to create", "postgres://nobody@/template1?host=" + data, holdfast.Options{}, holdfast.ErrUnavailable,
			"CREATE TABLE"},
	} {
		e, err := Open(x.address, x.o)
		if err == nil {
			_ = e.Close()
		}
		if !errors.Is(err, x.class) || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v; want %v, and %q", x.name, err, x.class, x.says)
		}
		if strings.Contains(fmt.Sprintf("%+v", err), "secret") {
			t.Errorf("%s: the error has the password: %v", x.name, err)
		}
	}
}

func execute(t *testing.T, data, database, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), fmt.Sprintf("postgres://postgres@/%s?host=%s", database, data))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatal(err)
	}
}

// A server that may lose what it has committed gives no Power, and says why.
func TestWithoutFsync(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	for _, setting := range []string{"fsync", "full_page_writes"} {
		t.Run(setting, func(t *testing.T) { without(t, setting) })
	}
}

func without(t *testing.T, setting string) {
	dir, err := os.MkdirTemp("", "holdfast-fsync-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	server, err := startServer(data, setting+"=off")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	_, err = Open(at(data, "without"), holdfast.Options{})
	if !errors.Is(err, holdfast.ErrLevel) || !strings.Contains(err.Error(), setting+" is off") {
		t.Errorf("Open for Power: %v", err)
	}
	e, err := Open(at(data, "without"), holdfast.Options{Level: holdfast.Process})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	put(t, e, holdfast.Process, "k", "v")
	var b holdfast.Batch
	for what, err := range map[string]error{"a commit": holdfast.Commit(e, &b, holdfast.Power), "Sync": e.Sync()} {
		if !errors.Is(err, holdfast.ErrLevel) || !strings.Contains(err.Error(), setting+" is off") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if c := e.Capabilities(); c.Process.Given != holdfast.Process || !c.Process.CutMayCorrupt || c.Power.Given != 0 {
		t.Errorf("Process %+v, Power %+v", c.Process, c.Power)
	}
}

func TestWithoutPassword(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:secret@h/db?space=a":                      "postgres://u@h/db?space=a",
		"postgres://u@h1:1,h2:2/db?host=/tmp&password=secret&a": "postgres://u@h1:1,h2:2/db?host=/tmp&a",
		"postgres://h/db?PASSWORD=secret":                       "postgres://h/db?",
		"postgres://h/db?p%61ssword=secret&sslpassword=secret":  "postgres://h/db?",
		"postgres://u:se%40cret@h/db":                           "postgres://u@h/db",
		"postgres://u:secret@more@h/db":                         "postgres://u@h/db",
		"postgres://u:sec#ret@h/db":                             "",
		"postgres://u:1?secret@h/db":                            "",
	} {
		if got := WithoutPassword(address); strings.TrimSuffix(got, "?") != strings.TrimSuffix(want, "?") {
			t.Errorf("WithoutPassword(%q) = %q, want %q", address, got, want)
		}
	}
}

// A server that was killed leaves nothing that only a restart of the machine would remove.
func TestKillLeavesNoSegment(t *testing.T) {
	needServer(t)
	t.Parallel() // it waits
	dir, err := os.MkdirTemp("", "holdfast-kill-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	server, err := startServer(data)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	segment := strings.Fields(strings.Split(string(text), "\n")[6])
	there := func() bool {
		all, err := os.ReadFile("/proc/sysvipc/shm")
		if err != nil {
			t.Skip("no segments are listed here: ", err)
		}
		return slices.ContainsFunc(strings.Split(string(all), "\n"), func(line string) bool {
			f := strings.Fields(line)
			return len(f) > 1 && f[1] == segment[1]
		})
	}
	if !there() {
		t.Fatalf("segment %q is not there while the server runs", segment)
	}
	server.Kill()
	if there() {
		t.Errorf("segment %q is there", segment)
	}
}
