package message_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/message"
)

// nest is a JSON object that is so deep.
func nest(depth int) []byte {
	return []byte(strings.Repeat(`{"a":`, depth-1) + `{}` + strings.Repeat(`}`, depth-1))
}

// nestArrays is one that has arrays in it.
func nestArrays(depth int) []byte {
	return []byte(`{"a":` + strings.Repeat(`[`, depth-1) + strings.Repeat(`]`, depth-1) + `}`)
}

// moved exports a namespace, imports what that gives into another one, and compares all messages. It returns the size
// of the export.
func moved(t testing.TB, n *message.Namespace) int {
	t.Helper()
	var lines bytes.Buffer
	exported, err := n.Export(ctx, &lines, message.ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	size := lines.Len()
	_, to := memStore(t)
	r, err := to.Import(ctx, &lines, nil)
	if err != nil || r.Imported != exported {
		t.Fatalf("of %d messages %+v: %v", exported, r, err)
	}
	want := read(t, n, message.Query{})
	got := read(t, to, message.Query{})
	if len(got) != len(want) {
		t.Fatalf("%d messages of %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.ID != w.ID || g.Type != w.Type || g.Stream != w.Stream || g.Global != w.Global || !g.Time.Equal(w.Time) ||
			!bytes.Equal(g.Data, w.Data) || !bytes.Equal(g.Metadata, w.Metadata) {
			t.Fatalf("message %d is another: %.200s, %.200s", w.Global, fmt.Sprint(g), fmt.Sprint(w))
		}
	}
	return size
}

// What is accepted can be moved to another store, up to each limit, and what is above one is refused.
func TestAcceptedCanBeMoved(t *testing.T) {
	with := func(change func(m *message.Message)) message.Message {
		m := message.Message{Type: "t", Data: []byte("{}")}
		change(&m)
		return m
	}
	for name, test := range map[string]struct {
		limit int
		make  func(size int) message.Message
		class error
	}{
		"depth of data": {message.MaxDepth, func(n int) message.Message {
			return with(func(m *message.Message) { m.Data = nest(n) })
		}, message.ErrBadMessage},
		"depth of arrays": {message.MaxDepth, func(n int) message.Message {
			return with(func(m *message.Message) { m.Data = nestArrays(n) })
		}, message.ErrBadMessage},
		"depth of metadata": {message.MaxDepth, func(n int) message.Message {
			return with(func(m *message.Message) { m.Metadata = nest(n) })
		}, message.ErrBadMessage},
		"type of <": {message.MaxTypeSize, func(n int) message.Message {
			return with(func(m *message.Message) { m.Type = strings.Repeat("<", n) })
		}, message.ErrBadMessage},
		"type of control characters": {message.MaxTypeSize, func(n int) message.Message {
			return with(func(m *message.Message) { m.Type = strings.Repeat("\x01", n) })
		}, message.ErrBadMessage},
		"type of line separators": {message.MaxTypeSize, func(n int) message.Message {
			return with(func(m *message.Message) {
				m.Type = strings.Repeat("\u2028", n/3) + strings.Repeat("x", n%3)
			})
		}, message.ErrBadMessage},
		"size": {int(holdfast.MaxValueSize), func(n int) message.Message { // with all that the record has
			return with(func(m *message.Message) {
				m.ID = fmt.Sprintf("%08x-0001-4aaa-8bbb-00000000abcd", n)
				const rest = 1 + 8 + 4 + 1 + 36 + (8 + 1 + 3) // version, time, lengths, type, id, place
				m.Data = []byte(`{"":"` + strings.Repeat("<", n-rest-len(`{"":""}`)) + `"}`)
			})
		}, holdfast.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "size" && testing.Short() {
				t.Skip("-short: there is one goroutine, and the race detector makes JSON of 64 MiB slow")
			}
			_, n := memStore(t)
			accepted := 0
			for _, size := range []int{test.limit - 1, test.limit, test.limit + 1} {
				m := test.make(size)
				_, err := n.Write(ctx, fmt.Sprintf("s-%d", size-test.limit+2), m)
				if size > test.limit {
					if !errors.Is(err, test.class) {
						t.Fatalf("%d: %.200v", size, err)
					}
				} else if err != nil {
					t.Fatalf("%d: %.200v", size, err)
				} else {
					accepted++
				}
			}
			if size := moved(t, n); size > accepted*(96<<20) {
				t.Fatalf("%d bytes of %d messages", size, accepted)
			}
		})
	}
}

// What was written before there was a limit of depth is moved all the same, as JSON or as bytes.
func TestDeepOldData(t *testing.T) {
	eng := mem.New()
	s := openStore(t, eng, message.Options{Level: holdfast.Memory, Opaque: true}) // takes it
	n := namespace(t, s, message.Default)
	for _, depth := range []int{1_001, 9_899, 9_900, 9_901, 9_995, 9_999, 10_000} {
		write(t, n, "data-1", message.Message{Type: "t", Data: nest(depth)})
		write(t, n, "metadata-1", message.Message{Type: "t", Data: []byte("{}"), Metadata: nest(depth)})
	}
	closeStore(t, s)
	s = openStore(t, eng, message.Options{Level: holdfast.Memory})
	moved(t, namespace(t, s, message.Default))
	closeStore(t, s)

	// As JSON a line that is too deep is refused, with its number.
	_, n = memStore(t)
	line := `{"id":"c1d2e3f4-0001-4aaa-8bbb-00000000abcd","stream":"a","type":"t","pos":0,"gpos":1,"time":` +
		`"2026-01-01T00:00:00Z","data":` + string(nest(9_901)) + `}`
	_, err := n.Import(ctx, strings.NewReader(line), nil)
	var refused *message.ImportError
	if !errors.As(err, &refused) || refused.Line != 1 || !errors.Is(err, message.ErrBadMessage) {
		t.Fatalf("%.200v", err)
	}
}

// A line is not longer than it must be, so that it can be read elsewhere.
func TestExportEscapesLittle(t *testing.T) {
	_, n := memStore(t)
	write(t, n, "a<b>&-1", message.Message{Type: "<>&\u2028\"\\\x01", Data: []byte(`{"<>&":"<>&"}`)})
	var lines bytes.Buffer
	if _, err := n.Export(ctx, &lines, message.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"stream":"a<b>&-1"`, `"type":"<>&\u2028\"\\\u0001"`, `"data":{"<>&":"<>&"}`} {
		if !strings.Contains(lines.String(), part) {
			t.Errorf("no %s in %s", part, lines.String())
		}
	}
	moved(t, n)
}

const (
	upper = "C1D2E3F4-0001-4AAA-8BBB-00000000ABCD"
	lower = "c1d2e3f4-0001-4aaa-8bbb-00000000abcd"
	mixed = "c1D2e3F4-0001-4aAA-8bBB-00000000aBcD"
)

// oldDirectory makes a store as it was when ids were not folded: its one message has the id.
func oldDirectory(t testing.TB, id string) holdfast.Engine {
	t.Helper()
	eng := mem.New()
	s := openStore(t, eng, message.Options{Level: holdfast.Memory})
	m := msg("Paid")
	m.ID = id
	write(t, namespace(t, s, message.Default), "acc-1", m)
	closeStore(t, s)
	log := "e\x10message\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	about, err := eng.Get(nil, []byte(log+"m"))
	if err != nil || about[0] != 5 {
		t.Fatal(about, err)
	}
	var b holdfast.Batch
	// Version 3 has no flags.
	b.Set([]byte(log+"m"), slices.Concat([]byte{3}, about[1:25], about[26:]))
	at, err := eng.Get(nil, []byte(log+"i\x00\x00\x00\x00\x00\x00\x00\x00"+lower))
	if err != nil {
		t.Fatal(err)
	}
	b.Delete([]byte(log + "i\x00\x00\x00\x00\x00\x00\x00\x00" + lower))
	b.Set([]byte(log+"i\x00\x00\x00\x00\x00\x00\x00\x00"+id), at)
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	return eng
}

// One UUID is one message, whatever the case of its letters, also in a directory of old.
func TestOneUUID(t *testing.T) {
	fresh := func(t testing.TB, id string) holdfast.Engine {
		eng := mem.New()
		s := openStore(t, eng, message.Options{Level: holdfast.Memory})
		m := msg("Paid")
		m.ID = id
		write(t, namespace(t, s, message.Default), "acc-1", m)
		closeStore(t, s)
		return eng
	}
	type maker func(t testing.TB, id string) holdfast.Engine
	for name, directory := range map[string]maker{"new": fresh, "old": oldDirectory} {
		for _, first := range []string{upper, lower, mixed} {
			t.Run(name+" "+first, func(t *testing.T) {
				eng := directory(t, first)
				s := openStore(t, eng, message.Options{Level: holdfast.Memory})
				defer closeStore(t, s)
				n := namespace(t, s, message.Default)
				for _, id := range []string{upper, lower, mixed} {
					m := msg("Paid")
					m.ID = id
					for _, try := range []func() (message.Result, error){
						func() (message.Result, error) { return n.Write(ctx, "acc-1", m) },
						func() (message.Result, error) { return n.WriteAfter(ctx, "acc-1", 7, m) },
						func() (message.Result, error) {
							r, err := writeAll(ctx, n, streamWrite{Stream: "acc-1", Messages: []message.Message{m}})
							return append(r, message.Result{})[0], err
						},
					} {
						if r, err := try(); err != nil || !r.Repeated || r.Position != 0 || r.Global != 1 {
							t.Errorf("%s after %s: %+v, %v", id, first, r, err)
						}
					}
					_, err := n.Write(ctx, "acc-2", m)
					if !errors.Is(err, message.ErrIDTaken) {
						t.Errorf("in another stream: %v", err)
					}
					line := func(stream string, global int) string {
						at := read(t, n, message.Query{})[0].Time.Format(time.RFC3339Nano)
						return fmt.Sprintf(`{"id":%q,"stream":%q,"type":"Paid","pos":0,"gpos":%d,"data":%s,"time":%q}`, id, stream,
							global, m.Data, at)
					}
					if r, err := n.Import(ctx, strings.NewReader(line("acc-1", 1)), nil); err != nil || r.Known != 1 {
						t.Errorf("imported at its place: %+v, %v", r, err)
					}
					if _, err := n.Import(ctx, strings.NewReader(line("acc-3", 9)), nil); !errors.Is(err, message.ErrIDTaken) {
						t.Errorf("imported at another place: %v", err)
					}
				}
				all := read(t, n, message.Query{})
				if len(all) != 1 || all[0].ID != first {
					t.Fatalf("%+v", all)
				}
				// Once it is removed, its id is free, in any case.
				if _, err := n.Delete(ctx, "acc-1"); err != nil {
					t.Fatal(err)
				}
				m := msg("Paid again")
				m.ID = mixed
				if r := write(t, n, "acc-1", m); r.Repeated || r.Position != 1 {
					t.Fatal(r)
				}
			})
		}
	}
	_, n := memStore(t)
	one, two := msg("a"), msg("b")
	one.ID, two.ID = upper, lower
	if _, err := n.Write(ctx, "s-1", one, two); !errors.Is(err, message.ErrBadMessage) {
		t.Fatal(err)
	}
}

// A known id with another content is no repeat; the same JSON, written otherwise, is.
func TestRepeatWithOtherContent(t *testing.T) {
	_, n := memStore(t)
	first := message.Message{ID: lower, Type: "Paid", Data: []byte(`{"n":1,"of":["a",{"b":null}]}`),
		Metadata: []byte(`{"by":"x"}`)}
	write(t, n, "acc-1", msg("before"))
	write(t, n, "acc-1", first)
	change := func(what func(m *message.Message)) message.Message {
		m := first
		what(&m)
		return m
	}
	check := func(m message.Message, want error) {
		t.Helper()
		expected := int64(17)
		a, err1 := n.Write(ctx, "acc-1", m)
		b, err2 := n.WriteAfter(ctx, "acc-1", expected, m)
		c, err3 := writeAll(ctx, n, streamWrite{Stream: "acc-1", Messages: []message.Message{m}})
		for i, err := range []error{err1, err2, err3} {
			if !errors.Is(err, want) {
				t.Errorf("%s %s, %d: %v, want %v", m.Type, m.Data, i, err, want)
			}
		}
		same := message.Result{Position: 1, Global: 2, Repeated: true}
		if want == nil && (a != same || b != same || c[0] != same) {
			t.Errorf("%s: %+v, %+v, %+v", m.Data, a, b, c)
		}
	}
	for _, other := range []func(m *message.Message){
		func(m *message.Message) { m.Type = "Cancelled" },
		func(m *message.Message) { m.Data = []byte(`{"n":2,"of":["a",{"b":null}]}`) },
		func(m *message.Message) { m.Data = []byte(`{"n":1,"of":[{"b":null},"a"]}`) },
		func(m *message.Message) { m.Data = []byte(`{"n":1.0,"of":["a",{"b":null}]}`) },
		func(m *message.Message) { m.Data = []byte(`{"n":1,"of":["a",{}]}`) },
	} {
		check(change(other), message.ErrIDTaken)
	}
	for _, same := range []func(m *message.Message){
		func(m *message.Message) {},
		func(m *message.Message) { m.Time = time.Unix(9, 0) },
		func(m *message.Message) { m.Data = []byte(" {\"of\": [\"\\u0061\", {\"b\":null}],\n\"n\":1} ") },
		func(m *message.Message) { m.Metadata = nil },
		func(m *message.Message) { m.Metadata = []byte(`{"by":"y"}`) },
		func(m *message.Message) { m.Metadata = []byte(`{ "by":"x"}`) },
	} {
		check(change(same), nil)
	}
	if all := read(t, n, message.Query{}); len(all) != 2 {
		t.Fatal(all)
	}
	// Of several messages one is another.
	batch := []message.Message{msg("a"), msg("b")}
	batch[0].ID, batch[1].ID = "aaaaaaaa-0001-4aaa-8bbb-00000000abcd", "bbbbbbbb-0001-4aaa-8bbb-00000000abcd"
	write(t, n, "acc-2", batch...)
	batch[1].Data = []byte("{}")
	if _, err := n.Write(ctx, "acc-2", batch...); !errors.Is(err, message.ErrIDTaken) {
		t.Fatal(err)
	}
}

// Retention by age goes by the time of writing, whatever times messages have, and also after an import.
func TestRetentionOfGivenTimes(t *testing.T) {
	future, past := time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, given := range map[string]func(i int) time.Time{
		"none":         func(int) time.Time { return time.Time{} },
		"future":       func(int) time.Time { return future },
		"past":         func(int) time.Time { return past },
		"future first": func(i int) time.Time { return []time.Time{future, {}}[min(i, 1)] },
		"past last":    func(i int) time.Time { return []time.Time{{}, past}[i/9] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := mem.New()
				o := message.Options{Level: holdfast.Memory, RetainEvery: -1}
				s := openStore(t, eng, o)
				n := namespace(t, s, message.Default)
				retain := func(want ...int64) {
					t.Helper()
					if _, err := n.Retain(ctx); err != nil {
						t.Fatal(err)
					}
					if got := positions(t, n, "s-1"); !slices.Equal(got, want) {
						t.Fatalf("%d are left, want %d", got, want)
					}
				}
				if err := n.SetRetention(ctx, "s-1", message.Retention{MaxAge: 5*time.Hour + time.Minute}); err != nil {
					t.Fatal(err)
				}
				for i := range 10 {
					m := msg("t")
					m.Time = given(i)
					write(t, n, "other-1", m)
					write(t, n, "s-1", m)
					time.Sleep(time.Hour)
				}
				retain(5, 6, 7, 8, 9)
				closeStore(t, s)
				s = openStore(t, eng, o)
				n = namespace(t, s, message.Default)
				time.Sleep(2 * time.Hour)
				retain(7, 8, 9)

				var lines bytes.Buffer
				if _, err := n.Export(ctx, &lines, message.ExportOptions{}); err != nil {
					t.Fatal(err)
				}
				closeStore(t, s)
				s = openStore(t, mem.New(), o)
				n = namespace(t, s, message.Default)
				if err := n.SetRetention(ctx, "s-1", message.Retention{MaxAge: time.Hour}); err != nil {
					t.Fatal(err)
				}
				if _, err := n.Import(ctx, &lines, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				retain(7, 8, 9) // they came an hour ago
				time.Sleep(time.Nanosecond)
				retain()
				closeStore(t, s)
			})
		})
	}
}

// Messages that were written while the clock was ahead do not keep a stream for ever.
func TestRetentionAfterClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		o := message.Options{Level: holdfast.Memory, RetainEvery: -1}
		s := openStore(t, eng, o)
		n := namespace(t, s, message.Default)
		for range 3 {
			write(t, n, "s-1", msg("t"))
		}
		if err := n.SetRetention(ctx, "s-1", message.Retention{MaxAge: time.Hour}); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		ahead(t, eng, time.Now().AddDate(1, 0, 0))
		retained := func(want ...int64) {
			t.Helper()
			s = openStore(t, eng, o)
			n = namespace(t, s, message.Default)
			if _, err := n.Retain(ctx); err != nil {
				t.Fatal(err)
			}
			if got := positions(t, n, "s-1"); !slices.Equal(got, want) {
				t.Fatalf("%d are left, want %d", got, want)
			}
			closeStore(t, s)
		}
		retained(0, 1, 2)
		time.Sleep(59 * time.Minute)
		retained(0, 1, 2)
		time.Sleep(2 * time.Minute)
		retained()
	})
}

// ahead gives all messages in an engine, which have no stamps, a time of writing.
func ahead(t testing.TB, eng holdfast.Engine, at time.Time) {
	t.Helper()
	var b holdfast.Batch
	it := eng.Scan(holdfast.Prefix([]byte("e\x10message\x00\x00\x00\x00\x00\x00\x00\x00\x01e")))
	for it.Next() {
		value := bytes.Clone(it.Value())
		if value[0] != 1 { // a record: version and time
			t.Fatalf("version %d", value[0])
		}
		for i, n := 0, uint64(at.UnixNano()); i < 8; i++ {
			value[1+i] = byte(n >> (56 - 8*i))
		}
		b.Set(it.Key(), value)
	}
	if err := errors.Join(it.Close(), holdfast.Commit(eng, &b, holdfast.Memory)); err != nil || b.Len() == 0 {
		t.Fatal(b.Len(), err)
	}
}

// Namespaces are sent in lists, so what describes them has limits too.
func TestNamespaceLimits(t *testing.T) {
	s, _ := memStore(t)
	for i, o := range []message.NamespaceOptions{
		{Metadata: nest(message.MaxDepth)}, {Description: strings.Repeat("<", message.MaxTypeSize)},
		{Metadata: json.RawMessage(`{"a":"` + strings.Repeat("x", message.MaxTypeSize-8) + `"}`)},
	} {
		o.ID = fmt.Sprint("ns", i)
		if _, err := s.Create(ctx, o); err != nil {
			t.Error(i, err)
		}
	}
	for i, o := range []message.NamespaceOptions{
		{Metadata: nest(message.MaxDepth + 1)}, {Description: strings.Repeat("<", message.MaxTypeSize+1)},
		{Metadata: json.RawMessage(`{"a":"` + strings.Repeat("x", message.MaxTypeSize-7) + `"}`)},
	} {
		o.ID = fmt.Sprint("larger", i)
		if _, err := s.Create(ctx, o); !errors.Is(err, holdfast.ErrBadOption) {
			t.Error(i, err)
		}
	}
}
