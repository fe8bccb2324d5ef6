package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/message"
)

func TestMessageData(t *testing.T) {
	data := layMessage()
	for _, want := range []stamp{{}, {99, 4095, 1<<39 - 1}, {7, 0, 123}} {
		want.put(data)
		if got, err := readStamp(data); err != nil || got != want || !json.Valid(data) {
			t.Errorf("%s: %+v, %v", data, got, err)
		}
	}
	if n := len(data); n < 180 || n > 220 || !json.Valid(messageMetadata) {
		t.Errorf("%d bytes", n)
	}
	for i := range data {
		spoilt := bytes.Clone(data)
		spoilt[i] = '~'
		if _, err := readStamp(spoilt); !errors.Is(err, ErrWrong) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	if _, err := readStamp(data[1:]); !errors.Is(err, ErrWrong) {
		t.Error(err)
	}
}

// TestMessageIDs: no two are the same, and those of one client ascend.
func TestMessageIDs(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for _, client := range []int{0, 1, 4095} {
		w := newMessageAcks(1).writer(nil, 1, client)
		last := ""
		for n := range int64(300) {
			id := w.id(n)
			if !form.MatchString(id) || seen[id] || id <= last {
				t.Fatalf("client %d, message %d: %s after %s", client, n, id, last)
			}
			seen[id], last = true, id
		}
	}
}

// fakeMessages is a peer that does not keep its promises: ours, in which some calls are others from some time on.
type fakeMessages struct {
	holdfast.Engine
	contender.Messages
	mutant atomic.Pointer[messageMutant]
}

// messageMutant is which calls are others.
type messageMutant struct {
	write        func(s contender.Messages, stream, id, typ string, data, metadata []byte) (int64, error)
	readStream   func(position int64, data []byte) (int64, []byte)
	readCategory func(global int64, stream string, data []byte) (int64, string, []byte)
	from         int64 // reads of a category skip so many
	follow       func(global int64, data []byte, yield func(int64, []byte) bool) bool
}

func (f *fakeMessages) Write(ctx context.Context, stream, id, typ string, data, metadata []byte,
	expected *int64) (int64, error) {
	if m := f.mutant.Load(); m.write != nil {
		return m.write(f.Messages, stream, id, typ, data, metadata)
	}
	return f.Messages.Write(ctx, stream, id, typ, data, metadata, expected)
}

func (f *fakeMessages) ReadStream(ctx context.Context, stream string, from int64, limit int,
	yield func(position int64, data []byte) error) error {
	return f.Messages.ReadStream(ctx, stream, from, limit, func(position int64, data []byte) error {
		if m := f.mutant.Load(); m.readStream != nil {
			position, data = m.readStream(position, bytes.Clone(data))
		}
		return yield(position, data)
	})
}

func (f *fakeMessages) ReadCategory(ctx context.Context, category string, from int64, limit, member, size int,
	yield func(global int64, stream string, data []byte) error) error {
	return f.Messages.ReadCategory(ctx, category, from+f.mutant.Load().from, limit, member, size,
		func(global int64, stream string, data []byte) error {
			if m := f.mutant.Load(); m.readCategory != nil {
				global, stream, data = m.readCategory(global, stream, bytes.Clone(data))
			}
			return yield(global, stream, data)
		})
}

func (f *fakeMessages) Follow(ctx context.Context, category string, from int64,
	yield func(global int64, data []byte) bool) error {
	return f.Messages.Follow(ctx, category, from, func(global int64, data []byte) bool {
		if m := f.mutant.Load(); m.follow != nil {
			return m.follow(global, bytes.Clone(data), yield)
		}
		return yield(global, data)
	})
}

// Close closes the store and its engine.
func (f *fakeMessages) Close() error { return errors.Join(f.Messages.Close(), f.Engine.Close()) }

// TestMessageVerificationCatches: whatever a store does wrong, the workloads that can see it do.
func TestMessageVerificationCatches(t *testing.T) {
	if testing.Short() {
		t.Skip("the smoke test runs the same workloads; here the race detector only makes them slow")
	}
	restamp := func(data []byte, change func(s *stamp)) []byte {
		s, err := readStamp(data)
		if err != nil {
			t.Error(err)
		}
		change(&s)
		s.put(data)
		return data
	}
	const writes = "write mixed long follow"
	const reads = "scan category-read category-tenth group-read"
	for name, test := range map[string]struct {
		mutation messageMutant
		seen     string // by which workloads
	}{
		"nothing": {},
		"a message is changed": {messageMutant{write: func(s contender.Messages, stream, id, typ string, data,
			metadata []byte) (int64, error) {
			data = restamp(bytes.Clone(data), func(s *stamp) { s.number += 1000 })
			return s.Write(context.Background(), stream, id, typ, data, metadata, nil)
		}}, writes},
		"a position is wrong": {messageMutant{write: func(s contender.Messages, stream, id, typ string, data,
			metadata []byte) (int64, error) {
			position, err := s.Write(context.Background(), stream, id, typ, data, metadata, nil)
			return position + 1, err
		}}, writes},
		"a message is written twice": {messageMutant{write: func(s contender.Messages, stream, id, typ string, data,
			metadata []byte) (int64, error) {
			position, err := s.Write(context.Background(), stream, id, typ, data, metadata, nil)
			if err == nil {
				_, err = s.Write(context.Background(), stream, "", typ, data, metadata, nil)
			}
			return position, err
		}}, writes},
		"a message is in another stream": {messageMutant{write: func(s contender.Messages, stream, id, typ string, data,
			metadata []byte) (int64, error) {
			return s.Write(context.Background(), stream+"0", id, typ, data, metadata, nil)
		}}, writes},
		"a read has another's position": {messageMutant{readStream: func(position int64, data []byte) (int64, []byte) {
			return position + 1, data
		}}, writes},
		"a read has another stream's data": {messageMutant{readStream: func(position int64, data []byte) (int64, []byte) {
			return position, restamp(data, func(s *stamp) { s.stream++ })
		}}, writes},
		"a read has other data": {messageMutant{readStream: func(position int64, data []byte) (int64, []byte) {
			data[0] = '['
			return position, data
		}}, writes},
		"a category begins late": {messageMutant{from: 40}, reads},
		"a category has other data": {messageMutant{readCategory: func(global int64, stream string,
			data []byte) (int64, string, []byte) {
			return global, stream, restamp(data, func(s *stamp) { s.number++ })
		}}, reads},
		"a category has another stream's name": {messageMutant{readCategory: func(global int64, stream string,
			data []byte) (int64, string, []byte) {
			return global, stream + "0", data
		}}, reads},
		"a category has another position": {messageMutant{readCategory: func(global int64, stream string,
			data []byte) (int64, string, []byte) {
			return global + 1, stream, data
		}}, reads},
		"a message is delivered twice": {messageMutant{follow: func(global int64, data []byte,
			yield func(int64, []byte) bool) bool {
			first := yield(global, data)
			return first && yield(global, data)
		}}, "follow"},
		"a changed message is delivered": {messageMutant{follow: func(global int64, data []byte,
			yield func(int64, []byte) bool) bool {
			return yield(global, restamp(data, func(s *stamp) { s.number++ }))
		}}, "follow"},
		"positions do not ascend": {messageMutant{follow: func(_ int64, data []byte,
			yield func(int64, []byte) bool) bool {
			return yield(1, data)
		}}, "follow"},
		"the follower ends": {messageMutant{follow: func(int64, []byte, func(int64, []byte) bool) bool { return false }},
			"follow"},
	} {
		t.Run(name, func(t *testing.T) {
			notice(t, smallMessages(), test.seen, func() (holdfast.Engine, func()) {
				engine := mem.New()
				store, _, err := openMessages(engine, holdfast.Memory)
				if err != nil {
					t.Fatal(err)
				}
				fake := &fakeMessages{Engine: engine, Messages: store}
				fake.mutant.Store(&messageMutant{})
				return fake, func() { fake.mutant.Store(&test.mutation) }
			})
		})
	}
}

// TestMessageGroups: the members among which group-read divides the streams all have some, and each stream one.
func TestMessageGroups(t *testing.T) {
	l := messageRead{messageSizes: messageSizes{streams: 100}, group: messageGroup}.layout()
	total := 0
	for i := range messageGroup {
		c := l.check(i)
		if total += c.each; c.each == 0 {
			t.Errorf("member %d has no stream", i)
		}
	}
	if total != 100 {
		t.Errorf("%d streams belong to members", total)
	}
	c := messageRead{messageSizes: messageSizes{streams: 100}, categories: messageTenth}.layout().check(0)
	if c.each != 10 ||
		message.Category(c.names[10]) != messageCategory || message.Category(c.names[11]) == messageCategory {
		t.Errorf("%d streams in the category: %q", c.each, c.names)
	}
}

// TestMessagePlan: peers of another kind have no part in it, and the study's figures are where it had as many clients.
func TestMessagePlan(t *testing.T) {
	p, err := Standard().Plan(Request{Preset: "message"})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Workloads) != len(messageWorkloads())-1 || slices.Contains(p.Workloads, "message/long") ||
		!slices.Equal(p.Clients, []int{10}) {
		t.Errorf("%q with %d clients", p.Workloads, p.Clients)
	}
	if slices.ContainsFunc(p.Engines, func(name string) bool { return strings.HasPrefix(name, "raft") }) {
		t.Errorf("engines %q", p.Engines)
	}
	w, err := Standard().workload("message/mixed")
	if err != nil || !w.studied(10) || w.studied(1) || w.Study("pebble", holdfast.Power) != "259/s" ||
		w.Study("pebble", holdfast.Process) != notAtLevel {
		t.Errorf("%v, %+v", err, w)
	}
}
