package move_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/eventodb/move"
	"github.com/holdfastdb/holdfast/store/message"
)

// serve starts a server and returns its default namespace, here and as clients see it.
func serve(t *testing.T) (*message.Namespace, move.Server) {
	t.Helper()
	d, err := data.Open(mem.New(), data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	token := auth.NewNamespaceSecret(message.Default)
	if err := d.Tokens().SetOwn(t.Context(), message.Default, token); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(d, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	n, err := d.Messages().Namespace(t.Context(), message.Default)
	if err != nil {
		t.Fatal(err)
	}
	return n, move.Server{URL: h.URL + "/", Token: token, HTTP: h.Client()}
}

func fill(t *testing.T, n *message.Namespace, messages int) {
	t.Helper()
	for i := range messages {
		m := message.Message{Type: "A", Data: fmt.Appendf(nil, `{"n": %d, "text": "<é>\"\\"}`, i)}
		if i%2 == 0 {
			m.Metadata = []byte("{}")
		}
		if _, err := n.Write(t.Context(), fmt.Sprintf("a%d-%d", i%3, i%7), m); err != nil {
			t.Fatal(err)
		}
	}
}

// export returns what a namespace exports, a line each.
func export(t *testing.T, n *message.Namespace) []string {
	t.Helper()
	var b bytes.Buffer
	if _, err := n.Export(t.Context(), &b, message.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(b.String(), "\n")
}

func file(t *testing.T, lines []string, zip bool) move.File {
	t.Helper()
	var b bytes.Buffer
	w := io.Writer(&b)
	if zip {
		z := gzip.NewWriter(w)
		defer z.Close()
		w = z
	}
	for _, line := range lines {
		if _, err := io.WriteString(w, line); err != nil {
			t.Fatal(err)
		}
	}
	if z, ok := w.(*gzip.Writer); ok {
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return move.File(name)
}

func equal(t *testing.T, a, b *message.Namespace) {
	t.Helper()
	x, y := export(t, a), export(t, b)
	if len(x) != len(y) {
		t.Fatalf("%d lines, want %d", len(y), len(x))
	}
	for i := range x {
		if x[i] != y[i] {
			t.Fatalf("%s, want %s", y[i], x[i])
		}
	}
}

func TestCopy(t *testing.T) {
	const messages = 1200 // more than a page
	n, source := serve(t)
	fill(t, n, messages)
	lines := export(t, n)
	byCategory := make([]string, 0, len(lines)) // as EventoDB exports
	for _, category := range []string{"a2", "a0", "a1"} {
		for _, line := range lines {
			if strings.Contains(line, `"stream":"`+category) {
				byCategory = append(byCategory, line)
			}
		}
	}
	for name, from := range map[string]move.Source{
		"server": source, "file": file(t, lines, false), "gzip": file(t, byCategory, true),
	} {
		for _, over := range []string{"directory", "server"} {
			into, target := serve(t)
			to := move.Target(target)
			if over == "directory" {
				to = move.Namespace{N: into}
			}
			phases := map[string]int64{}
			r, err := move.Copy(t.Context(), from, to, func(phase string, n int64) { phases[phase] = n })
			if err != nil || r.Imported != messages || r.Known != 0 || r.Compared != messages || r.Total != messages ||
				phases["copied"] != messages || phases["compared"] != messages {
				t.Fatalf("%s into %s: %+v, %v, %v", name, over, r, phases, err)
			}
			equal(t, n, into)
			if r, err = move.Copy(t.Context(), from, to, nil); err != nil || r.Imported != 0 || r.Compared != messages {
				t.Errorf("%s into %s again: %+v, %v", name, over, r, err)
			}
			if resumed := r.Skipped == messages; resumed != (name == "server") || r.Known+r.Skipped != messages {
				t.Errorf("%s into %s again: %+v", name, over, r)
			}
			if m, err := into.Write(t.Context(), "a0-0", message.Message{Type: "A", Data: []byte("{}")}); err != nil ||
				m.Global != messages+1 {
				t.Errorf("%+v, %v", m, err)
			}
		}
	}
}

func TestCopyOfNothing(t *testing.T) {
	_, source := serve(t)
	into, target := serve(t)
	for _, to := range []move.Target{target, move.Namespace{N: into}} {
		if r, err := move.Copy(t.Context(), source, to, nil); err != nil || r != (move.Result{}) {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// A copy that was interrupted is made whole by another.
func TestInterrupted(t *testing.T) {
	n, source := serve(t)
	fill(t, n, 2200)
	into, target := serve(t)
	for _, to := range []move.Target{move.Namespace{N: into}, target} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := move.Copy(ctx, source, to, func(_ string, n int64) {
			if n > 1000 {
				cancel()
			}
		})
		if err == nil {
			t.Error("it was not interrupted")
		}
		if r, err := move.Copy(t.Context(), source, to, nil); err != nil || r.Compared != 2200 {
			t.Errorf("%+v, %v", r, err)
		}
		equal(t, n, into)
	}
}

// What was there and is not the same is found, and what cannot be imported is refused.
func TestDifferent(t *testing.T) {
	n, source := serve(t)
	fill(t, n, 1100)
	lines := export(t, n)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).Format(time.RFC3339Nano)
	begin := strings.Index(lines[700], `"time":"`)
	for name, line := range map[string]string{
		"data":     strings.Replace(lines[700], `"n": `, `"n": 1`, 1),
		"metadata": strings.Replace(lines[700], `"meta":{}`, `"meta":null`, 1),
		"type":     strings.Replace(lines[700], `"type":"A"`, `"type":"B"`, 1),
		"time":     lines[700][:begin] + `"time":"` + at + "\"}\n",
		"missing":  "",
	} {
		if line == lines[700] {
			t.Fatal(name)
		}
		into, target := serve(t)
		changed := append(append(append([]string{}, lines[:700]...), line), lines[701:]...)
		if _, err := into.Import(t.Context(), strings.NewReader(strings.Join(changed, "")), nil); err != nil {
			t.Fatal(err)
		}
		// From the server nothing is read again that is there, and the comparison finds it.
		for _, to := range []move.Target{move.Namespace{N: into}, target} {
			if r, err := move.Copy(t.Context(), source, to, nil); !errors.Is(err, holdfast.ErrCorrupt) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
	}
	into, target := serve(t)
	fill(t, into, 1)
	for _, to := range []move.Target{move.Namespace{N: into}, target} {
		if _, err := move.Copy(t.Context(), source, to, nil); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("a position that is taken: %v", err)
		}
	}
	for name, from := range map[string]move.Source{
		"no file": move.File(filepath.Join(t.TempDir(), "none")), "no token": move.Server{URL: source.URL, HTTP: source.HTTP},
		"no server": move.Server{URL: "http://127.0.0.1:1", Token: source.Token},
		"cut off":   file(t, []string{lines[0][:50]}, false),
	} {
		empty, _ := serve(t)
		if r, err := move.Copy(t.Context(), from, move.Namespace{N: empty}, nil); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
