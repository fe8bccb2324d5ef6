package importtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

var ctx = context.Background()

func open(t *testing.T) (*message.Store, *message.Namespace) {
	s, err := message.Open(kv.On(mem.New()), message.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, namespace(t, s, message.Default)
}

func namespace(t *testing.T, s *message.Store, id string) *message.Namespace {
	n, err := s.Namespace(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// FuzzImport feeds anything to an import: it never panics, and what it accepts can be exported and imported again.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"id":"00000000-0000-4000-8000-000000000001","stream":"a-1","type":"t","pos":3,` +
		`"gpos":7,"data":{"a":1},"meta":{},"time":"2026-01-02T03:04:05.6Z"}`))
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte("{}\n"))
	_ = w.Close()
	f.Add(z.Bytes())
	f.Add([]byte("\n\n[\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, n := open(t)
		done, err := n.Import(ctx, bytes.NewReader(text), nil)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if exported, err := n.Export(ctx, &out, message.ExportOptions{}); err != nil || exported != done.Imported {
			t.Fatal(exported, done, err)
		}
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: "other"}); err != nil {
			t.Fatal(err)
		}
		if again, err := namespace(t, s, "other").Import(ctx, &out, nil); err != nil || again.Imported != done.Imported {
			t.Fatal(again, done, err)
		}
	})
}
