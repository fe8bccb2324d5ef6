package message_test

import (
	"context"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

var ctx = context.Background()

type target = storetest.Target

func openStore(t testing.TB, eng holdfast.Engine, o message.Options) *message.Store {
	t.Helper()
	s, err := message.Open(kv.On(eng), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *message.Store) {
	t.Helper()
	storetest.Close(t, s)
}

// memStore is a store in a new engine in memory, closed at the end of the test, and its default namespace.
func memStore(t testing.TB) (*message.Store, *message.Namespace) {
	t.Helper()
	s := openStore(t, mem.New(), message.Options{Level: holdfast.Memory})
	storetest.CloseAtEnd(t, s)
	return s, namespace(t, s, message.Default)
}

func namespace(t testing.TB, s *message.Store, id string) *message.Namespace {
	t.Helper()
	n, err := s.Namespace(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// msg is a message of a type, with data that tell it.
func msg(typ string) message.Message {
	return message.Message{Type: typ, Data: []byte(`{"type": "` + typ + `"}`)}
}

func write(t testing.TB, n *message.Namespace, stream string, messages ...message.Message) message.Result {
	t.Helper()
	r, err := n.Write(ctx, stream, messages...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t testing.TB, n *message.Namespace, q message.Query) (all []message.Message) {
	t.Helper()
	for m, err := range n.Read(ctx, q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// streamWrite is what writeAll writes to one stream; Expected is nil for any version.
type streamWrite struct {
	Stream   string
	Expected *int64
	Messages []message.Message
}

// writeAll does several writes in one transaction.
func writeAll(ctx context.Context, n *message.Namespace, writes ...streamWrite) (results []message.Result, err error) {
	err = n.DB().Update(ctx, func(tx *kv.Tx) error {
		for _, w := range writes {
			var r message.Result
			var err error
			if w.Expected == nil {
				r, err = n.In(tx).Write(w.Stream, w.Messages...)
			} else {
				r, err = n.In(tx).WriteAfter(w.Stream, *w.Expected, w.Messages...)
			}
			if err != nil {
				return err
			}
			results = append(results, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}
