package contender

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/store/message"
)

// TestMain is also the server of NATS, and a process that is killed with a store open.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case ServerArgument:
			os.Exit(Serve(os.Stdin, os.Stdout))
		case ownerArgument:
			own(os.Stdin, os.Stdout)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

// run runs the tests; the files of a server are made once for all of them.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-postgres-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	PostgresTemplate = dir
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // what runs beside others waits most of the time

	return m.Run()
}

// eachMessages runs a test on every peer that is a message store, at every level.
func eachMessages(t *testing.T, test func(t *testing.T, peer all.Entry, level holdfast.Level)) {
	for _, peer := range MessageEngines() {
		for _, level := range holdfast.Levels() {
			t.Run(peer.Name+"/"+level.String(), func(t *testing.T) {
				if p := peer.Describe().Promise(level); p.Given == 0 {
					t.Skip(p.Why)
				}
				defer goleak.VerifyNone(t)
				test(t, peer, level)
			})
		}
	}
}

func openMessages(t *testing.T, peer all.Entry, dir string, level holdfast.Level) MessagesEngine {
	t.Helper()
	e, err := peer.Open(dir, holdfast.Options{Level: level})
	if err != nil {
		t.Fatal(err)
	}
	return e.(MessagesEngine)
}

// uuid follows from n.
func uuid(n int) string { return fmt.Sprintf("01890a5d-0000-7000-8000-%012x", n) }

// body is the data of message n, whose bytes a store that parses it would change.
func body(n int) string { return fmt.Sprintf(`{ "n":%d, "b":1.50,"a":"é" }`, n) }

func write(t *testing.T, m Messages, stream string, n int, expected ...int64) (int64, error) {
	t.Helper()
	var version *int64
	if len(expected) > 0 {
		version = &expected[0]
	}
	return m.Write(t.Context(), stream, uuid(n), "Happened", []byte(body(n)), []byte(`{"by": "test"}`), version)
}

func mustWrite(t *testing.T, m Messages, stream string, n int, want int64, expected ...int64) {
	t.Helper()
	if got, err := write(t, m, stream, n, expected...); err != nil || got != want {
		t.Fatalf("message %d in %s: position %d, %v, want %d", n, stream, got, err, want)
	}
}

// streamOf reads a stream as lines of position and data.
func streamOf(t *testing.T, m Messages, stream string, from int64, limit int) (list []string) {
	t.Helper()
	err := m.ReadStream(t.Context(), stream, from, limit, func(position int64, data []byte) error {
		list = append(list, fmt.Sprint(position, " ", string(data)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// categoryOf reads a category as lines of stream and data, in ascending global order.
func categoryOf(t *testing.T, m Messages, category string, from int64, limit, member, size int) (
	list []string, last int64) {
	t.Helper()
	last = from - 1
	err := m.ReadCategory(t.Context(), category, from, limit, member, size,
		func(global int64, stream string, data []byte) error {
			if global <= last {
				t.Errorf("global position %d comes after %d", global, last)
			}
			last = global
			list = append(list, stream+" "+string(data))
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return list, last
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestMessages: what both peers do, over a close.
func TestMessages(t *testing.T) {
	eachMessages(t, func(t *testing.T, peer all.Entry, level holdfast.Level) {
		if level != peer.Describe().Strongest() {
			night.Only(t, "at the strongest level: the calls are the same")
		}
		dir := t.TempDir()
		m := openMessages(t, peer, dir, level)
		defer func() { _ = m.Close() }()

		mustWrite(t, m, "account-1", 0, 0)
		mustWrite(t, m, "account-1", 1, 1, 0)
		mustWrite(t, m, "account-1", 2, 2)
		mustWrite(t, m, "account-2+part", 3, 0, message.NoStream)
		mustWrite(t, m, "account", 4, 0)
		mustWrite(t, m, "account-", 5, 0)
		mustWrite(t, m, "other-1", 6, 0)
		mustWrite(t, m, "a.b *>%-x y.é%", 7, 0)
		if got, err := m.Write(t.Context(), "other-1", "", "Happened", []byte(`[]`), nil, nil); err != nil || got != 1 {
			t.Errorf("without an id: %d, %v", got, err)
		}

		t.Run("conflicts", func(t *testing.T) {
			for expected, stream := range map[int64]string{1: "account-1", 3: "account-1", -1: "account-2+part", 0: "new-1"} {
				_, err := write(t, m, stream, 99, expected)
				var conflict *message.Conflict
				if !errors.Is(err, message.ErrConflict) || !errors.As(err, &conflict) || conflict.Expected != expected ||
					conflict.Stream != stream || conflict.Actual != map[string]int64{"account-1": 2, "new-1": -1}[stream] {
					t.Errorf("expected %d of %s: %v", expected, stream, err)
				}
			}
		})
		t.Run("ids", func(t *testing.T) {
			mustWrite(t, m, "account-1", 1, 1)    // again
			mustWrite(t, m, "account-1", 1, 1, 0) // again, with the version that it had expected
			mustWrite(t, m, "account-1", 2, 2, 1)
			if _, err := write(t, m, "other-1", 1); !errors.Is(err, message.ErrIDTaken) {
				t.Errorf("the id of another stream's message: %v", err)
			}
		})
		t.Run("bad messages", func(t *testing.T) {
			for name, err := range map[string]error{
				"data":     second(m.Write(t.Context(), "a", "", "T", []byte(`{`), nil, nil)),
				"metadata": second(m.Write(t.Context(), "a", "", "T", []byte(`{}`), []byte("x"), nil)),
				"stream":   second(m.Write(t.Context(), "", "", "T", []byte(`{}`), nil, nil)),
				"type":     second(m.Write(t.Context(), "a", "", "T\r\n", []byte(`{}`), nil, nil)),
			} {
				if !errors.Is(err, message.ErrBadMessage) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
		check := func(t *testing.T) {
			t.Helper()
			account := []string{"0 " + body(0), "1 " + body(1), "2 " + body(2)}
			same(t, "stream", streamOf(t, m, "account-1", 0, 0), account...)
			same(t, "from 1", streamOf(t, m, "account-1", 1, 0), account[1:]...)
			same(t, "from 1, limit 1", streamOf(t, m, "account-1", 1, 1), account[1:2]...)
			same(t, "behind the end", streamOf(t, m, "account-1", 3, 0))
			same(t, "no stream", streamOf(t, m, "new-1", 0, 0))
			same(t, "odd name", streamOf(t, m, "a.b *>%-x y.é%", 0, 0), "0 "+body(7))
			category := []string{
				"account-1 " + body(0), "account-1 " + body(1), "account-1 " + body(2), "account-2+part " + body(3),
				"account " + body(4), "account- " + body(5),
			}
			list, last := categoryOf(t, m, "account", 1, 0, 0, 0)
			same(t, "category", list, category...)
			same(t, "behind the category", first(categoryOf(t, m, "account", last+1, 0, 0, 0)))
			list, last = categoryOf(t, m, "account", 1, 2, 0, 0)
			same(t, "limit 2", list, category[:2]...)
			same(t, "after that", first(categoryOf(t, m, "account", last+1, 0, 0, 0)), category[2:]...)
			same(t, "no category", first(categoryOf(t, m, "acc", 1, 0, 0, 0)))
			same(t, "all", first(categoryOf(t, m, "", 1, 0, 0, 0)), append(slices.Clone(category),
				"other-1 "+body(6), "a.b *>%-x y.é% "+body(7), "other-1 []")...)
		}
		check(t)
		if c := m.Capabilities(); c.Promise(level).Given < level || len(c.Settings) == 0 {
			t.Errorf("%+v", c)
		}
		if got := m.Metrics(); got.Commits < 9 || got.Groups > got.Commits || got.DiskBytes < 1000 {
			t.Errorf("%+v", got)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := write(t, m, "account-1", 90); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("written after Close: %v", err)
		}
		if err := m.ReadStream(t.Context(), "account-1", 0, 0, nil); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
		m = openMessages(t, peer, dir, level)
		check(t)
		mustWrite(t, m, "account-1", 8, 3, 2)
		mustWrite(t, m, "account-2+part", 9, 1)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func second[A, B any](_ A, b B) B { return b }
func first[A, B any](a A, _ B) A  { return a }

// memberOf is what the definition of consumer groups says, written out.
func memberOf(id string, size int) int {
	sum := md5.Sum([]byte(id))
	n := int64(binary.BigEndian.Uint64(sum[:8]))
	return int(max(n, -n) % int64(size))
}

// TestMessagesByManyWriters: of those that expect the same version one wins, and positions have no gaps; groups share
// the category; a page of a read is not its end.
func TestMessagesByManyWriters(t *testing.T) {
	eachMessages(t, func(t *testing.T, peer all.Entry, level holdfast.Level) {
		if level != holdfast.Process {
			night.Only(t, "at process: the calls are the same")
		}
		m := openMessages(t, peer, t.TempDir(), level)
		const writers, streams, size = 8, 10, 3
		each := night.Or(150, 40)
		late := writers*each/streams - 20 // a position that all streams have, with five behind it
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range each {
					n := w*each + i
					if _, err := write(t, m, fmt.Sprintf("busy-%d", n%streams), n); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		var list []string
		for stream := range streams {
			name := fmt.Sprintf("busy-%d", stream)
			for position, line := range streamOf(t, m, name, 0, 0) {
				if !strings.HasPrefix(line, fmt.Sprint(position, " ")) {
					t.Fatalf("%s: %d is %s", name, position, line)
				}
			}
			list = append(list, streamOf(t, m, name, int64(late), 5)...)
		}
		if len(list) != 5*streams || !strings.HasPrefix(list[0], fmt.Sprint(late, " ")) {
			t.Errorf("%q", list)
		}
		whole, _ := categoryOf(t, m, "busy", 1, 0, 0, 0)
		if len(whole) != writers*each {
			t.Errorf("%d messages", len(whole))
		}
		found := 0
		for member := range size {
			list, _ := categoryOf(t, m, "busy", 1, 0, member, size)
			found += len(list)
			for _, line := range list {
				stream, _, _ := strings.Cut(line, " ")
				if memberOf(strings.TrimPrefix(stream, "busy-"), size) != member {
					t.Fatalf("%s is not member %d's", stream, member)
				}
			}
			page, _ := categoryOf(t, m, "busy", 1, 7, member, size)
			same(t, "a page of the member's", page, list[:7]...)
		}
		if found != len(whole) {
			t.Errorf("the members have %d of %d", found, len(whole))
		}

		var won sync.Map
		for w := range writers {
			all.Go(func() {
				for version := int64(-1); version < 19; version++ {
					position, err := write(t, m, "race-1", 10_000+w*1000+int(version), version)
					switch {
					case err == nil:
						if position != version+1 {
							t.Errorf("after version %d comes %d", version, position)
						}
						if other, taken := won.LoadOrStore(version, w); taken {
							t.Errorf("version %d is that of writers %d and %d", version, other, w)
						}
					case !errors.Is(err, message.ErrConflict):
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if got := streamOf(t, m, "race-1", 0, 0); len(got) != 20 {
			t.Errorf("%q", got)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMessagesFollow: what was there and what comes, each once and in order.
func TestMessagesFollow(t *testing.T) {
	eachMessages(t, func(t *testing.T, peer all.Entry, level holdfast.Level) {
		if level != holdfast.Process {
			night.Only(t, "at process: the calls are the same")
		}
		m := openMessages(t, peer, t.TempDir(), level)
		const before, writers, each = 20, 4, 30
		for n := range before {
			mustWrite(t, m, "busy-0", n, int64(n))
			mustWrite(t, m, "quiet-0", 1000+n, int64(n))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var followers, writing sync.WaitGroup
		started := make(chan struct{}, 2)
		for _, category := range []string{"busy", ""} {
			followers.Go(func() {
				seen, last, want := map[string]bool{}, int64(0), before+writers*each
				if category == "" {
					want += before
				}
				err := m.Follow(ctx, category, 1, func(global int64, data []byte) bool {
					if global <= last || seen[string(data)] {
						t.Errorf("%d %s after %d", global, data, last)
					}
					last, seen[string(data)] = global, true
					if len(seen) == 1 {
						started <- struct{}{}
					}
					return len(seen) < want
				})
				if err != nil || len(seen) != want {
					t.Errorf("%q: %d of %d, %v", category, len(seen), want, err)
				}
			})
		}
		<-started
		<-started
		for w := range writers {
			writing.Go(func() {
				for i := range each {
					mustWrite(t, m, fmt.Sprintf("busy-%d", w+1), 2000+w*each+i, int64(i))
				}
			})
		}
		writing.Wait()
		followers.Wait()
		ended, end := context.WithCancel(t.Context())
		err := m.Follow(ended, "busy", 1, func(int64, []byte) bool {
			end()
			return true
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("followed until the context ends: %v", err)
		}
		followers.Go(func() {
			err := m.Follow(ctx, "busy", 1, func(global int64, _ []byte) bool {
				if global == 1 {
					started <- struct{}{}
				}
				return true
			})
			if !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("followed until the store is closed: %v", err)
			}
		})
		<-started
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		followers.Wait()
	})
}

// TestMessagesSurviveKill: what was acknowledged at Process or Power is there when the server was killed, and the
// store opens at any level.
func TestMessagesSurviveKill(t *testing.T) {
	eachMessages(t, func(t *testing.T, peer all.Entry, level holdfast.Level) {
		if level == holdfast.Memory {
			night.Only(t, "at process and power: at memory, a kill may take all")
		}
		dir := t.TempDir()
		m := openMessages(t, peer, dir, level)
		const writers, enough = 6, 200
		acked := make([]int64, writers) // positions that were acknowledged in each stream, -1 for none
		reached := make(chan struct{})
		var all, ready sync.WaitGroup
		ready.Add(writers)
		for w := range writers {
			all.Go(func() {
				acked[w] = -1
				for i := int64(0); ; i++ {
					position, err := write(t, m, fmt.Sprintf("busy-%d", w), w*1_000_000+int(i))
					if err != nil {
						if i < enough/writers {
							ready.Done()
							t.Error(err)
						}
						return
					}
					if acked[w] = position; position != i {
						t.Errorf("position %d, want %d", position, i)
					}
					if i == enough/writers {
						ready.Done()
					}
				}
			})
		}
		go func() {
			ready.Wait()
			close(reached)
		}()
		<-reached
		all.Go(func() {
			if err := m.Follow(t.Context(), "busy", 1, func(int64, []byte) bool { return true }); err == nil {
				t.Error("a follower does not notice the end of the server")
			}
		})
		m.(interface{ kill() }).kill()
		all.Wait()
		if _, err := write(t, m, "busy-0", 99); !errors.Is(err, holdfast.ErrPoisoned) {
			t.Errorf("written without a server: %v", err)
		}
		_ = m.Close()
		m = openMessages(t, peer, dir, level)
		if lost := lostOf(t, m, acked); lost > 0 && level > holdfast.Memory {
			t.Errorf("%d acknowledged messages are lost", lost)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// lostOf counts the messages of the streams busy-N that were acknowledged up to a position and are not there. It checks
// those that are, and that one more can be written.
func lostOf(t *testing.T, m Messages, acked []int64) (lost int64) {
	t.Helper()
	total := int64(0)
	for w := range acked {
		stream := fmt.Sprintf("busy-%d", w)
		list := streamOf(t, m, stream, 0, 0)
		for i, line := range list {
			if want := fmt.Sprint(i, " ", body(w*1_000_000+i)); line != want {
				t.Errorf("%s: message %d is %q, want %q", stream, i, line, want)
			}
		}
		total += acked[w] + 1
		lost += max(0, acked[w]+1-int64(len(list)))
		mustWrite(t, m, stream, w*1_000_000+999_999, int64(len(list)))
	}
	t.Logf("%d acknowledged messages of %d are lost", lost, total)
	return lost
}

// kill ends the server at once, as a crash does.
func (m *natsMessages) kill() { m.server.kill() }

func (p *postgresMessages) kill() { p.server.Kill() }

func (q *riverOrders) kill() { q.server.Kill() }

// ownerArgument makes this program open a store, write to it, and tell each position, until it is killed.
const ownerArgument = "messages-owner"

type ownerRequest struct {
	Peer, Dir, Template string
	Level               holdfast.Level
}

func own(stdin io.Reader, stdout io.Writer) {
	var q ownerRequest
	if err := child.Serve("test", stdin, &q); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	PostgresTemplate = q.Template
	peers := MessageEngines()
	i := slices.IndexFunc(peers, func(e all.Entry) bool { return e.Name == q.Peer })
	e, err := peers[i].Open(q.Dir, holdfast.Options{Level: q.Level})
	ctx := context.Background()
	for n := 0; err == nil; n++ {
		var position int64
		position, err = e.(Messages).Write(ctx, "busy-0", uuid(n), "T", []byte(body(n)), nil, nil)
		if err == nil {
			fmt.Fprintln(stdout, position)
		}
	}
	fmt.Fprintln(os.Stderr, err)
}

// TestMessagesOwnerIsKilled: the server ends with the process that opened it, so that the directory can be opened
// again at once, and nothing that the process was told is lost.
func TestMessagesOwnerIsKilled(t *testing.T) {
	eachMessages(t, func(t *testing.T, peer all.Entry, level holdfast.Level) {
		if level < holdfast.Power {
			night.Only(t, "at power")
		}
		dir := t.TempDir()
		command, err := child.Command(nil, ownerArgument)
		if err != nil {
			t.Fatal(err)
		}
		owner, err := child.Start(command, ownerRequest{peer.Name, dir, PostgresTemplate, level})
		if err != nil {
			t.Fatal(err)
		}
		acked := []int64{-1}
		for lines := bufio.NewScanner(owner.Out); lines.Scan(); acked[0]++ {
			if lines.Text() != fmt.Sprint(acked[0]+1) {
				t.Errorf("position %s after %d", lines.Text(), acked[0])
			}
			if acked[0] == 50 {
				owner.Kill()
			}
		}
		if _, err := owner.Wait(); acked[0] < 50 {
			t.Fatal(err)
		}
		owner.CloseInput()
		m := openMessages(t, peer, dir, level)
		if lost := lostOf(t, m, acked); lost > 0 && level > holdfast.Memory {
			t.Errorf("%d acknowledged messages are lost", lost)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNATSWritersOfOtherProcesses: what is remembered of a stream can be out of date, and then the server says so.
func TestNATSWritersOfOtherProcesses(t *testing.T) {
	defer goleak.VerifyNone(t)
	e, err := OpenNATS(t.TempDir(), holdfast.Options{Level: holdfast.Process})
	if err != nil {
		t.Fatal(err)
	}
	m := e.(*natsMessages)
	mustWrite(t, m, "account-1", 0, 0)
	old := m.tails[natsSubject("account-1")].last
	mustWrite(t, m, "account-1", 1, 1)
	forget := func() { m.tails[natsSubject("account-1")].last = old }
	forget()
	mustWrite(t, m, "account-1", 2, 2)
	forget()
	var conflict *message.Conflict
	if _, err := write(t, m, "account-1", 3, 0); !errors.As(err, &conflict) || conflict.Actual != 2 {
		t.Error(err)
	}
	forget()
	mustWrite(t, m, "account-1", 1, 1, 0) // again
	forget()
	mustWrite(t, m, "account-1", 5, 3, 2)
	same(t, "stream", streamOf(t, m, "account-1", 0, 0), "0 "+body(0), "1 "+body(1), "2 "+body(2), "3 "+body(5))
	big := append(append([]byte(`"`), bytes.Repeat([]byte("x"), natsMaxPayload)...), '"')
	if _, err := m.Write(t.Context(), "account-1", "", "T", big, nil, nil); !errors.Is(err, holdfast.ErrTooLarge) {
		t.Error(err)
	}
	mustWrite(t, m, "account-1", 4, 4)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNATSSubjects: every name of a stream has a subject of three parts of its own, which leads back to it.
func TestNATSSubjects(t *testing.T) {
	seen := map[string]string{}
	for _, stream := range []string{
		"a", "a-", "a-1", "a-%", "a-%%", "a%25", "a-1-2", "a:command-1+2", "a.b-c.d", "*->", "é-ü", "-", "-1", "%", "a b- ",
	} {
		subject := natsSubject(stream)
		if other, taken := seen[subject]; taken || strings.Count(subject, ".") != 2 || strings.ContainsAny(subject, " *>") {
			t.Errorf("%q has the subject %q, as has %q", stream, subject, other)
		}
		seen[subject] = stream
		if back, err := natsName(subject); err != nil || back != stream {
			t.Errorf("%q: %q is %q, %v", stream, subject, back, err)
		}
	}
}

func TestMessagesAreLocked(t *testing.T) {
	t.Parallel() // it waits
	for _, peer := range MessageEngines() {
		t.Run(peer.Name, func(t *testing.T) {
			if why := peer.Describe().Process.Why; peer.Describe().Process.Given == 0 {
				t.Skip(why)
			}
			dir := t.TempDir()
			m := openMessages(t, peer, dir, holdfast.Process)
			if _, err := peer.Open(dir, holdfast.Options{Level: holdfast.Process}); !errors.Is(err, holdfast.ErrLocked) {
				t.Error(err)
			}
			if _, err := peer.Open(dir, holdfast.Options{Level: 9}); !errors.Is(err, holdfast.ErrLevel) {
				t.Error(err)
			}
			if _, err := m.Get(nil, []byte("key")); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Error(err)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
