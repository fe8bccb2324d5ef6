package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/ebuse"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// shop is a server in memory with the namespace shop. It returns its address, the namespace's token, and its data.
func shop(t *testing.T) (string, string, *data.Data) {
	t.Helper()
	eng := mem.New()
	d, err := data.Open(eng, data.Options{Level: holdfast.Memory})
	try(t, err)
	token := auth.NewNamespaceSecret("shop")
	_, err = d.Create(t.Context(), message.NamespaceOptions{ID: "shop"}, token)
	try(t, err)
	s, err := server.New(d, server.Options{Logger: slog.New(slog.DiscardHandler)})
	try(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		try(t, s.Stop(ctx))
		try(t, <-ended)
		try(t, d.Close())
		try(t, eng.Close())
	})
	return "http://" + l.Addr().String(), token, d
}

// ebuseEvents are events as an ebuse has them, with all that can be odd.
func ebuseEvents(n int) (list []event.Event) {
	for i := 1; i <= n; i++ {
		e := ebuse.Event{Type: fmt.Sprint("type ", i%7), Data: fmt.Appendf(nil, `{"n":%d,"é":"\u0000"}`, i),
			Timestamp: time.Date(2026, 1, 1, 0, 0, i, i, time.FixedZone("", 3600))}
		switch i % 10 {
		case 1:
			e.Timestamp = time.Time{}
		case 2:
			e.Data = []byte("null")
		case 3:
			e.Timestamp = time.Date(1066, 10, 14, 9, 0, 0, i, time.UTC)
		}
		list = append(list, e.Stored())
	}
	return list
}

// logOf opens a directory and returns the events of the namespace's log, and where the subscription s is.
func logOf(t *testing.T, dir, namespace string) (list []event.Event, at uint64) {
	t.Helper()
	eng, err := all.OpenDir("", dir, holdfast.Options{})
	try(t, err)
	d, err := data.Open(eng, data.Options{})
	try(t, err)
	log, err := d.Log(t.Context(), namespace, ebuse.Log)
	try(t, err)
	list, err = log.Read(t.Context(), 0, 0)
	try(t, err)
	at, _ = log.LoadOffset(t.Context(), "s")
	try(t, d.Close())
	try(t, eng.Close())
	return list, at
}

// An import of ebuse keeps positions, goes on where it was interrupted, survives what passes, and compares.
func TestImportEbuse(t *testing.T) {
	address, token, d := shop(t)
	log, err := d.Log(t.Context(), "shop", ebuse.Log)
	try(t, err)
	events := ebuseEvents(2345)
	for i := range events[:2000] {
		events[i].Position = uint64(i + 1)
	}
	for i := range events[2000:] { // behind a gap
		events[2000+i].Position = uint64(i + 5001)
	}
	_, err = log.Import(t.Context(), events...)
	try(t, err)
	try(t, log.SaveOffset(t.Context(), "s", 77))
	try(t, log.SaveOffset(t.Context(), "a/b ?", 5))

	// In front of it is what fails now and then: it answers with errors, and breaks off, and for a while for good.
	var asked, stop atomic.Int64
	stop.Store(1 << 60)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		switch {
		case n > stop.Load():
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		case n%7 == 3:
			http.Error(w, "Rate limit exceeded", http.StatusTooManyRequests)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, address+r.URL.RequestURI(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header.Clone()
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Encoding", res.Header.Get("Content-Encoding"))
		w.WriteHeader(res.StatusCode)
		if n%7 == 5 {
			_, _ = w.Write(text[:len(text)/2])
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(text)
	}))
	defer front.Close()

	dir := filepath.Join(t.TempDir(), "into")
	run := func(want int, say string, args ...string) {
		t.Helper()
		status, stdout, stderr := result(t, holdfastCommand(t, append([]string{"import", "ebuse"}, args...)...))
		if status != want || !strings.Contains(stdout+stderr, say) || strings.Contains(stderr, "panic") {
			t.Fatalf("%v: status %d, want %d, with %q\n%s%s", args, status, want, say, stdout, stderr)
		}
	}
	to := []string{front.URL, "--key", token, "--into", dir, "-n", "shop"}
	run(exitError, "401 Unauthorized: Invalid API key", append(to, "--key", "wrong")...)
	stop.Store(asked.Load() + 4)
	run(exitError, "401 Unauthorized", to...)
	stop.Store(1 << 60)
	if list, _ := logOf(t, dir, "shop"); len(list) == 0 || len(list) >= len(events) {
		t.Fatalf("%d events were imported, %d asked before it was interrupted", len(list), asked.Load())
	}
	run(exitOK, "every event was read back", append(to, "--subscriptions", "s,a/b ?,none")...)
	run(exitOK, "0 imported, up to position 5345; the log was at 5345", to...)
	list, at := logOf(t, dir, "shop")
	if len(list) != len(events) || at != 77 {
		t.Fatal(len(list), at)
	}
	for i, e := range list {
		want := events[i]
		if e.Position != want.Position || e.Type != want.Type || string(e.Data) != string(want.Data) ||
			string(e.Metadata) != string(want.Metadata) || !want.Time.IsZero() && !e.Time.Equal(want.Time) {
			t.Fatalf("%+v, want %+v", e, want)
		}
	}

	// Another source than that which is there is refused, and what was changed is found.
	other, otherToken, otherData := shop(t)
	otherLog, err := otherData.Log(t.Context(), "shop", ebuse.Log)
	try(t, err)
	_, err = otherLog.Append(t.Context(), ebuseEvents(3)...)
	try(t, err)
	run(exitWrong, "it has 5345 positions, the source has 3", other, "--key", otherToken, "--into", dir, "-n", "shop")
	_, err = otherLog.Import(t.Context(), event.Event{Position: 5345, Type: "other"}, event.Event{Position: 6000})
	try(t, err)
	run(exitWrong, "the event at position 5345 is not as in the source", other, "--key", otherToken, "--into", dir, "-n",
		"shop")
	_, err = log.Remove(t.Context(), 17)
	try(t, err)
	run(exitWrong, "the event at position 17 is not as in the source: the source has none there", to...)

	// Into a server, with the gaps.
	third, thirdToken, thirdData := shop(t)
	run(exitOK, "2344 imported", front.URL, "--key", token, "--into", third, "--into-token", thirdToken, "-n", "shop")
	thirdLog, err := thirdData.Log(t.Context(), "shop", ebuse.Log)
	try(t, err)
	if list, err := thirdLog.Read(t.Context(), 16, 2); err != nil || len(list) != 2 || list[1].Position != 18 ||
		thirdLog.Last() != 5345 {
		t.Fatalf("%+v, %v, the last is %d", list, err, thirdLog.Last())
	}
}

// What a source answers that is no ebuse, or a broken one, is an error.
func TestImportEbuseOdd(t *testing.T) {
	for _, c := range []struct{ position, events, say string }{
		{`{"position":2}`, `{}`, "something else than a list"},
		{`{"position":2}`, `[{"position":3}]`, "it answered with position 3, where those from 1 to 2 were to come"},
		{`{"position":2}`, `[{"position":2},{"position":1}]`, "it answered with position 1"},
		{`{"position":2}`, `[{"position":1}`, "unexpected EOF"},
		{`{"position":-1}`, ``, "without a position"},
		{`{}`, ``, "without a position"},
		{`x`, ``, "invalid character"},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := c.events
			if r.URL.Path == "/position" {
				text = c.position
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			_, _ = w.Write([]byte(text))
		}))
		status, stdout, stderr := result(t, holdfastCommand(t, "import", "ebuse", srv.URL, "--into", "dir"))
		srv.Close()
		if status != exitError || !strings.Contains(stderr, c.say) {
			t.Errorf("%v: status %d\n%s%s", c, status, stdout, stderr)
		}
	}
}
