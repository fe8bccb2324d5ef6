package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
)

// Over a slow network a large value takes longer than the patience, and longer than the space may stand still: it is
// waited for as long as it moves, nobody takes the space meanwhile, and other reads wait for it.
func TestSlowNetwork(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e, err := openSlow(t, p, "patience=4s")
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, holdfast.Power, "small", "1")
	const rate, takes = 1 << 20, 6 // seconds
	p.rate.Store(rate)
	value := bytes.Repeat([]byte("0123456789abcdef"), takes*rate/16)
	var b holdfast.Batch
	b.Set([]byte("large"), value)
	r, err := e.Apply(&b, holdfast.Power)
	if err != nil {
		t.Fatal(err)
	}
	began, done := time.Now(), wait(r)
	for {
		select {
		case err := <-done:
			if took := time.Since(began); err != nil || took < takes*time.Second*3/4 {
				t.Errorf("a commit of %d bytes took %v: %v", len(value), took, err)
			}
		default:
			if got, err := e.Get(nil, []byte("small")); string(got) != "1" || err != nil {
				t.Fatalf("Get beside it = %q, %v", got, err)
			}
			other, err := Open(at(os.Getenv(variable), spaceOf(t)), holdfast.Options{})
			if err == nil {
				_ = other.Close()
			}
			// On a busy machine it may not learn in its time that the holder lives.
			if !errors.Is(err, holdfast.ErrLocked) && !errors.Is(err, holdfast.ErrUnavailable) {
				t.Fatalf("a second Open beside it: %v", err)
			}
			continue
		}
		break
	}
	e.cache.drop()
	if got, err := e.Get(nil, []byte("large")); !bytes.Equal(got, value) || err != nil {
		t.Errorf("Get = %d bytes, %v", len(got), err)
	}
	it := e.Scan(holdfast.Range{})
	n := 0
	for ; it.Next(); n++ {
	}
	if err := it.Close(); n != 2 || err != nil {
		t.Errorf("Scan = %d keys, %v", n, err)
	}
}

// openSlow opens the test's space through a proxy.
func openSlow(t *testing.T, p *proxy, parameters string) (*engine, error) {
	opened, err := Open(at(p.dir, spaceOf(t))+"&"+parameters, holdfast.Options{})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = opened.Close() })

	return opened.(*engine), nil
}

// Keys, values and batches at the limit are kept, and those above are refused whole, with the limit named.
func TestLimits(t *testing.T) {
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	refused := func(what string, b *holdfast.Batch, class error, limit string) {
		t.Helper()
		err := holdfast.Commit(e, b, holdfast.Power)
		if !errors.Is(err, class) || !strings.Contains(err.Error(), limit) {
			t.Errorf("%s: %v, want %v and %q", what, err, class, limit)
		}
	}
	var b holdfast.Batch
	b.Set(bytes.Repeat([]byte("k"), maxKeySize), []byte("v"))
	if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
		t.Error(err)
	}
	b.Reset()
	b.Set([]byte("beside"), nil)
	b.Set(bytes.Repeat([]byte("k"), 2700), []byte("v"))
	refused("a key of 2,700 bytes", &b, holdfast.ErrBadKey, "2600")
	db, err := kv.Open(e, kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(t.Context(), func(tx *kv.Tx) error {
		bucket := tx.Bucket("own")
		return errors.Join(bucket.Put([]byte("beside"), nil), bucket.Put(bytes.Repeat([]byte("k"), 2700), []byte("v")))
	})
	if !errors.Is(err, holdfast.ErrBadKey) || !strings.Contains(err.Error(), "2591") { // less the bucket's part
		t.Errorf("a key of 2,700 bytes in a transaction: %v", err)
	}
	err = db.View(t.Context(), func(tx *kv.Tx) error {
		if _, err := tx.Bucket("own").Get([]byte("beside")); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("of a transaction that was refused there is a part: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	b.Reset()
	b.Set([]byte("beside"), make([]byte, holdfast.MaxValueSize+1))
	refused("a value of 64 MiB and a byte", &b, holdfast.ErrTooLarge, "67108864")
	if _, err := e.Get(nil, []byte("beside")); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("of a batch that was refused there is a part: %v", err)
	}
}

// The same with what takes long, and memory that is bounded.
func TestLargeLimits(t *testing.T) {
	night.Only(t, "TestLimits, TestLargeBatch and TestSlowNetwork")
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e, err := openSlow(t, p, "patience=2s")
	if err != nil {
		t.Fatal(err)
	}
	p.rate.Store(8 << 20)
	var b holdfast.Batch
	value := bytes.Repeat([]byte("0123456789abcdef"), holdfast.MaxValueSize/16)
	for _, key := range []string{"a", "b", "c"} {
		b.Set([]byte(key), value)
	}
	var one holdfast.Batch
	one.Set([]byte("d"), value[:16<<20])
	b.Set([]byte("d"), value[:maxBatchSize-b.Size()-(one.Size()-16<<20)])
	if b.Size() != maxBatchSize {
		t.Fatalf("a batch of %d bytes", b.Size())
	}
	runtime.GC()
	before, most := inUse(), uint64(0)
	done := make(chan error, 1)
	go func() { done <- holdfast.Commit(e, &b, holdfast.Power) }()
	for done != nil {
		most = max(most, inUse())
		select {
		case err := <-done:
			if done = nil; err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Millisecond):
		}
	}
	if most -= before; most > 6*maxBatchSize { // as its caveat says
		t.Errorf("a batch of %d MiB takes %d MiB more", maxBatchSize>>20, most>>20)
	}
	it, n := e.Scan(holdfast.Range{}), 0
	for ; it.Next(); n++ {
		if got := it.Value(); !bytes.Equal(got, value[:len(got)]) {
			t.Errorf("%s is not what was written", it.Key())
		}
	}
	if err := it.Close(); n != 4 || err != nil {
		t.Errorf("Scan = %d keys, %v", n, err)
	}
	b.Set([]byte("f"), nil)
	if err := holdfast.Commit(e, &b, holdfast.Power); !errors.Is(err, holdfast.ErrTooLarge) ||
		!strings.Contains(err.Error(), "268435456") {
		t.Errorf("a batch above the limit: %v", err)
	}
	if _, err := e.Get(nil, []byte("f")); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("a part of it is there: %v", err)
	}
}

// inUse is how much memory the program has.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	return m.HeapInuse
}

// PgBouncer is told from a server, whatever it lets through.
func TestPgBouncer(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	bouncer, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bouncer, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Skip("Debian's package pgbouncer is not installed; by TestOpenRefuses: an address whose sessions are others")
		}
	}
	as, err := pgserver.User()
	if err != nil {
		t.Fatal(err)
	}
	const ours = "ignore_startup_parameters = extra_float_digits, application_name, synchronous_commit, " +
		"statement_timeout, lock_timeout, idle_in_transaction_session_timeout, default_transaction_isolation, " +
		"client_min_messages, enable_seqscan, jit, tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count\n"
	for _, mode := range []string{"transaction", "session"} {
		for _, lets := range []string{"", ours} {
			dir, err := os.MkdirTemp("", "hf-pgb-") // a socket's path must be short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			settings := filepath.Join(dir, "settings")
			text := fmt.Appendf(nil, "[databases]\n* = host=%s user=postgres\n[pgbouncer]\nlisten_addr =\n"+
				"unix_socket_dir = %s\nlisten_port = 5432\nauth_type = any\npool_mode = %s\n%s",
				os.Getenv(variable), dir, mode, lets)
			if err := os.WriteFile(settings, text, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o777); err != nil { // as another user
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), bouncer, settings)
			if as != nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, AmbientCaps: []uintptr{1}} // to reach the server
			}
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testkit.Until(t, "PgBouncer", func() bool {
				conn, err := net.Dial("unix", filepath.Join(dir, pgserver.Socket))
				if err == nil {
					_ = conn.Close()
				}
				return err == nil
			})
			e, err := Open(at(dir, spaceOf(t)), holdfast.Options{})
			if err == nil {
				_ = e.Close()
			}
			says := "pooler"
			if lets == "" {
				says = "unsupported startup parameter"
			}
			if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), says) {
				t.Errorf("in %s mode, letting through %q: %v", mode, lets, err)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				t.Log(out.String())
			}
		}
	}
}
