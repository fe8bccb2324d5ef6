package event_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// model is what a log should be, in plain Go.
type model struct {
	window  uint64
	events  []event.Event // all ever appended; position i+1
	first   uint64
	ids     map[string]uint64 // latest position
	cursors map[string]cursor // offsets "o..." and snapshots "s..."
}

type cursor struct {
	pos   uint64
	state string
}

func (m *model) next() uint64 { return uint64(len(m.events)) + 1 }

// append does what the log should do, and returns the class of its error.
func (m *model) append(after *uint64, events []event.Event) (event.Result, error) {
	if events[0].ID != "" && uint64(len(events)) > m.window {
		return event.Result{}, holdfast.ErrTooLarge
	}
	known, run := 0, true
	var base uint64
	for i, e := range events {
		pos, ok := m.ids[e.ID]
		if ok = ok && pos/m.window+1 >= m.next()/m.window; ok {
			known++
		}
		if i == 0 {
			base = pos
		}
		run = run && ok && pos == base+uint64(i)
	}
	switch n := uint64(len(events)); {
	case run:
		return event.Result{First: base, Last: base + n - 1, Repeated: true}, nil
	case known > 0:
		return event.Result{}, event.ErrPartialRepeat
	case after != nil && *after != m.next()-1:
		return event.Result{}, event.ErrConflict
	}
	r := event.Result{First: m.next(), Last: m.next() + uint64(len(events)) - 1}
	for _, e := range events {
		e.Position = m.next()
		if e.ID != "" {
			m.ids[e.ID] = e.Position
		}
		m.events = append(m.events, e)
	}
	return r, nil
}

// TestModel does random things to a log and to its model, and compares what they say.
func TestModel(t *testing.T) {
	targets(t, func(t *testing.T, tg *target) {
		logs := 0
		rapid.Check(t, func(rt *rapid.T) {
			logs++
			if tg.Level == holdfast.Power && logs%4 > 0 { // what waits for the device is tried less
				return
			}
			m := &model{
				window:  rapid.Uint64Range(1, 12).Draw(rt, "window"),
				first:   1,
				ids:     map[string]uint64{},
				cursors: map[string]cursor{},
			}
			o := event.Options{Name: fmt.Sprint("model ", logs), Level: tg.Level, IDWindow: m.window}
			s, err := event.Open(kv.On(tg.Engine), o)
			if err != nil {
				rt.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			var pending []event.Pending
			settle := func() {
				for _, p := range pending {
					if r, err := p.Wait(); err != nil || r != p.Result() {
						rt.Fatal(r, err)
					}
				}
				pending = nil
			}
			small := rapid.SliceOfN(rapid.Byte(), 0, 20)
			drawEvents := func(rt *rapid.T) []event.Event {
				events := make([]event.Event, rapid.IntRange(1, 4).Draw(rt, "events"))
				named := rapid.Bool().Draw(rt, "named")
				used := map[string]bool{}
				from := rapid.IntRange(0, 30).Draw(rt, "first id")
				for i := range events {
					events[i] = event.Event{
						Type: rapid.StringN(0, 5, -1).Draw(rt, "type"), Origin: rapid.StringN(0, 3, -1).Draw(rt, "origin"),
						Metadata: small.Draw(rt, "metadata"), Data: small.Draw(rt, "data"),
						Time: time.Unix(rapid.Int64Range(-9e9, 9e9).Draw(rt, "second"),
							rapid.Int64Range(0, 999_999_999).Draw(rt, "nanosecond")),
					}
					for named && events[i].ID == "" {
						id := fmt.Sprint("id ", from)
						if from++; rapid.IntRange(0, 5).Draw(rt, "jump") == 0 {
							from = rapid.IntRange(0, 30).Draw(rt, "another id")
						}
						if !used[id] { // a repeat has the same content
							used[id], events[i].ID = true, id
							events[i].Type, events[i].Metadata, events[i].Data = id[:4], []byte(id[1:]), []byte(id)
						}
					}
				}
				return events
			}
			rt.Repeat(map[string]func(*rapid.T){
				"append": func(rt *rapid.T) {
					events := drawEvents(rt)
					want, wantErr := m.append(nil, events)
					r, err := s.Append(ctx, events...)
					if r != want || !errors.Is(err, wantErr) {
						rt.Fatalf("got %+v, %v, want %+v, %v", r, err, want, wantErr)
					}
				},
				"append after": func(rt *rapid.T) {
					events, after := drawEvents(rt), m.next()-1
					if rapid.Bool().Draw(rt, "wrong") {
						after = rapid.Uint64Range(0, 50).Draw(rt, "after")
					}
					want, wantErr := m.append(&after, events)
					r, err := s.AppendAfter(ctx, after, events...)
					if r != want || !errors.Is(err, wantErr) {
						rt.Fatalf("got %+v, %v, want %+v, %v", r, err, want, wantErr)
					}
				},
				"submit": func(rt *rapid.T) {
					events := drawEvents(rt)
					want, wantErr := m.append(nil, events)
					p, err := s.Submit(ctx, events...)
					if p.Result() != want || !errors.Is(err, wantErr) {
						rt.Fatalf("got %+v, %v, want %+v, %v", p.Result(), err, want, wantErr)
					}
					pending = append(pending, p)
				},
				"settle": func(*rapid.T) { settle() },
				"truncate": func(rt *rapid.T) {
					settle()
					before := rapid.Uint64Range(0, m.next()+2).Draw(rt, "before")
					removed, err := s.TruncateBefore(ctx, before)
					if before > m.next() {
						if !errors.Is(err, event.ErrAhead) {
							rt.Fatal(err)
						}
						return
					}
					if was := m.first; err != nil || removed != max(before, was)-was {
						rt.Fatalf("removed %d from %d on: %v", removed, was, err)
					}
					m.first = max(m.first, before)
				},
				"save": func(rt *rapid.T) {
					settle()
					name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name")
					pos := rapid.Uint64Range(0, m.next()-1).Draw(rt, "position")
					state := string(small.Draw(rt, "state"))
					if err := s.SaveOffset(ctx, name, pos); err != nil {
						rt.Fatal(err)
					}
					if err := s.SaveSnapshot(ctx, name, pos, []byte(state)); err != nil {
						rt.Fatal(err)
					}
					m.cursors["o"+name], m.cursors["s"+name] = cursor{pos: pos}, cursor{pos, state}
				},
				"reopen": func(rt *rapid.T) {
					pending = nil
					if err := s.Close(); err != nil {
						rt.Fatal(err)
					}
					o.IDWindow = 0
					if s, err = event.Open(kv.On(tg.Engine), o); err != nil {
						rt.Fatal(err)
					}
				},
				"read": func(rt *rapid.T) {
					settle()
					from := rapid.Uint64Range(0, m.next()+1).Draw(rt, "from")
					limit := rapid.IntRange(0, 10).Draw(rt, "limit")
					got, err := s.Read(ctx, from, limit)
					at := max(from, 1)
					if from == 0 {
						at = m.first
					}
					switch {
					case at < m.first:
						if !errors.Is(err, event.ErrTruncated) {
							rt.Fatal(err)
						}
						return
					case at > m.next():
						if !errors.Is(err, event.ErrAhead) {
							rt.Fatal(err)
						}
						return
					}
					want := m.events[at-1:]
					if limit > 0 {
						want = want[:min(limit, len(want))]
					}
					if err != nil || len(got) != len(want) {
						rt.Fatalf("%d events from %d, want %d: %v", len(got), from, len(want), err)
					}
					for i := range got {
						if err := same(got[i], want[i]); err != nil {
							rt.Fatal(err)
						}
					}
				},
				"": func(rt *rapid.T) {
					if s.First() != m.first || s.Last() > m.next()-1 || len(pending) == 0 && s.Last() != m.next()-1 {
						rt.Fatalf("from %d to %d, want %d to %d", s.First(), s.Last(), m.first, m.next()-1)
					}
					for _, name := range []string{"a", "b"} {
						pos, err := s.LoadOffset(ctx, name)
						want, ok := m.cursors["o"+name]
						if pos != want.pos || ok != (err == nil) || err != nil && !errors.Is(err, holdfast.ErrNotFound) {
							rt.Fatal(pos, want, err)
						}
						pos, state, err := s.LoadSnapshot(ctx, name)
						if want, ok := m.cursors["s"+name]; pos != want.pos || string(state) != want.state || ok != (err == nil) {
							rt.Fatal(pos, want, err)
						}
					}
				},
			})
		})
	})
}
