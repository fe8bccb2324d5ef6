package message_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

// What is exported can be imported elsewhere, whole or in parts, and is the same there.
func TestExportImport(t *testing.T) {
	s, n := memStore(t)
	const messages = 2500 // more than a commit
	for i := range messages {
		in := msg(fmt.Sprint("t", i%3))
		if i%2 == 0 {
			in.Metadata = []byte(`{"a": [1,2], "html":"<&>"}`)
		}
		in.Time = time.Unix(int64(i), int64(i%2*5))
		write(t, n, fmt.Sprint([]string{"a-", "b-", "c"}[i%3], i%7), in)
	}
	if _, err := n.Truncate(ctx, "a-0", 50); err != nil {
		t.Fatal(err)
	}
	want := read(t, n, message.Query{})
	export := func(o message.ExportOptions) *bytes.Buffer {
		t.Helper()
		var out bytes.Buffer
		if _, err := n.Export(ctx, &out, o); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	check := func(name string) {
		t.Helper()
		got := read(t, namespace(t, s, name), message.Query{})
		if len(got) != len(want) {
			t.Fatalf("%s: %d messages, want %d", name, len(got), len(want))
		}
		for i := range got {
			if err := same(got[i], want[i]); err != nil || !got[i].Time.Equal(want[i].Time) {
				t.Fatalf("%s: %v, at %v", name, err, got[i].Time)
			}
		}
	}
	for _, name := range []string{"whole", "parts", "broken"} {
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: name}); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	whole := namespace(t, s, "whole")
	done, err := whole.Import(ctx, export(message.ExportOptions{Gzip: true}), func(message.ImportResult) { calls++ })
	if err != nil || done.Imported != int64(len(want)) || done.Known != 0 || calls != 3 ||
		done.Last != want[len(want)-1].Global {
		t.Fatalf("%+v %d %v", done, calls, err)
	}
	check("whole")
	if done, err = whole.Import(ctx, export(message.ExportOptions{}), nil); err != nil || done.Imported != 0 ||
		done.Known != int64(len(want)) {
		t.Fatalf("again: %+v %v", done, err)
	}
	if r := write(t, whole, "a-0", msg("next")); r.Global != messages+1 {
		t.Fatal(r)
	}
	parts := namespace(t, s, "parts")
	for _, o := range []message.ExportOptions{
		{Categories: []string{"b"}}, {Until: time.Unix(1000, 0)}, {Since: time.Unix(1000, 0), Categories: []string{"a", "c"}},
		{Since: time.Unix(1000, 0), Until: time.Unix(1e6, 0)},
	} {
		if _, err := parts.Import(ctx, export(o), nil); err != nil {
			t.Fatal(err)
		}
	}
	check("parts")
	// An import that breaks off can be repeated.
	broken := namespace(t, s, "broken")
	all := export(message.ExportOptions{})
	half := io.MultiReader(bytes.NewReader(all.Bytes()[:all.Len()/2]), iotest.ErrReader(errors.New("broken")))
	if done, err := broken.Import(ctx, half, nil); err == nil || done.Imported != 1000 {
		t.Fatalf("%+v %v", done, err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := broken.Import(canceled, bytes.NewReader(all.Bytes()), nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if done, err := broken.Import(ctx, all, nil); err != nil || done.Known != 1000 ||
		done.Imported != int64(len(want))-1000 {
		t.Fatalf("%+v %v", done, err)
	}
	check("broken")
	_, err = n.Export(ctx, failingWriter{}, message.ExportOptions{})
	if !errors.Is(err, io.ErrShortBuffer) {
		t.Fatal(err)
	}
}

// Of long lines a store reads one at a time, in all its imports; short ones do not wait for them.
func TestImportLongLines(t *testing.T) {
	_, n := memStore(t)
	line := func(id int, data string) string {
		return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012d","stream":"a","type":"t","pos":%d,"gpos":%d,`+
			`"data":{"x":%q},"meta":null,"time":"2026-01-02T03:04:05Z"}`+"\n", id, id, id+1, data)
	}
	long := strings.Repeat("x", 2<<20)
	text, more := io.Pipe()
	first := make(chan error, 1)
	go func() {
		_, err := n.Import(ctx, text, nil)
		first <- err
	}()
	half := line(0, long)
	if _, err := io.WriteString(more, half[:len(half)-10]); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Import(ctx, strings.NewReader(line(1, "short")), nil); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	rest := strings.NewReader(line(2, long))
	_, err := n.Import(canceled, readerFunc(func(p []byte) (int, error) {
		if rest.Len() < 3*len(long)/4 {
			cancel()
		}
		return rest.Read(p)
	}), nil)
	if !errors.Is(err, context.Canceled) || rest.Len() < len(long)/4 {
		t.Fatalf("%v, %d bytes are not read", err, rest.Len())
	}
	if _, err := io.WriteString(more, half[len(half)-10:]); err != nil {
		t.Fatal(err)
	}
	// Its commit frees the way, though it goes on.
	if _, err := n.Import(ctx, strings.NewReader(line(2, long)), nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(more.Close(), <-first); err != nil {
		t.Fatal(err)
	}
	if got := read(t, n, message.Query{}); len(got) != 3 {
		t.Fatal(len(got))
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortBuffer }

// What an import refuses is an error with its line and class, and nothing of its commit is there.
func TestImportErrors(t *testing.T) {
	_, n := memStore(t)
	known := msg("known")
	known.ID = "00000000-0000-4000-8000-000000000001"
	write(t, n, "a-1", known, msg("second"))
	if _, err := n.Tombstone(ctx, "ended-1"); err != nil {
		t.Fatal(err)
	}
	text := func(id int, stream string, pos, gpos int64) string {
		return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012d","stream":%q,"type":"t","pos":%d,"gpos":%d,"data":{},`+
			`"meta":null,"time":"2026-01-02T03:04:05.6Z"}`, id, stream, pos, gpos)
	}
	good := text(50, "good-1", 0, 50)
	for _, c := range []struct {
		bad  string
		want error
	}{
		{"{", message.ErrBadMessage},
		{"[]", message.ErrBadMessage},
		{`{"id":1}`, message.ErrBadMessage},
		{strings.Replace(good, "2026-01", "2026-13", 1), message.ErrBadMessage},
		{strings.Replace(good, `"data":{}`, `"data":[]`, 1), message.ErrBadMessage},
		{strings.Replace(good, `"type":"t"`, `"type":""`, 1), message.ErrBadMessage},
		{strings.Replace(good, "0000-0000", "x", 1), message.ErrBadMessage},
		{text(51, "good-1", -1, 51), message.ErrBadMessage},
		{text(51, "good-1", 1, 0), message.ErrBadMessage},
		{text(51, "good-1", 1<<62, 51), message.ErrBadMessage},
		{text(51, "good-1", 1<<63-1, 51), message.ErrBadMessage},
		{text(51, "good-1", 1, 1<<63-1), message.ErrBadMessage},
		{text(1, "a-1", 0, 1), message.ErrPositionTaken}, // the same id at the same place, with other data
		{text(51, "", 1, 51), message.ErrBadName},
		{text(51, "a-1", 0, 51), message.ErrPositionTaken},
		{text(51, "good-1", 0, 51), message.ErrPositionTaken},
		{text(51, "good-1", 1, 2), message.ErrPositionTaken},
		{text(51, "good-1", 1, 50), message.ErrPositionTaken},
		{text(1, "good-1", 1, 51), message.ErrIDTaken},
		{text(51, "ended-1", 1, 51), message.ErrEnded},
	} {
		_, err := n.Import(ctx, strings.NewReader("\n"+good+"\n"+c.bad+"\n"), nil)
		var at *message.ImportError
		if !errors.Is(err, c.want) || !errors.As(err, &at) || at.Line != 3 {
			t.Errorf("%s: %v", c.bad, err)
		}
		// A line that cannot be read leaves those before it, others nothing.
		for _, in := range read(t, n, message.Query{From: 3}) {
			if in.Global != 50 || c.want != message.ErrBadMessage && c.want != message.ErrBadName {
				t.Fatalf("%s: %+v", c.bad, in)
			}
			if _, err := n.Delete(ctx, "good-1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := n.Import(ctx, strings.NewReader("\x1f\x8b\x00"), nil)
	storetest.WantError(t, err, message.ErrBadMessage)
}

// Opaque data come back as they went in.
func TestExportOpaque(t *testing.T) {
	s := openStore(t, mem.New(), message.Options{Level: holdfast.Memory, Opaque: true})
	defer closeStore(t, s)
	if _, err := s.Create(ctx, message.NamespaceOptions{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	n, other := namespace(t, s, message.Default), namespace(t, s, "other")
	for _, data := range []string{"", "\x00\xff", "{}", "[1]", "\n"} {
		write(t, n, "a", message.Message{Type: "t", Data: []byte(data), Metadata: []byte(data)})
	}
	var out bytes.Buffer
	if _, err := n.Export(ctx, &out, message.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Import(ctx, &out, nil); err != nil {
		t.Fatal(err)
	}
	got, want := read(t, other, message.Query{}), read(t, n, message.Query{})
	for i := range want {
		if err := same(got[i], want[i]); err != nil {
			t.Error(err)
		}
	}
}
