package v1_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/api"
	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/store/event"
)

func TestLogs(t *testing.T) {
	s := start(t, nil, core.Options{})
	engine := s.engine
	for _, path := range []string{"", "/events", "/events/follow", "/offsets/s"} {
		s.refused(api.CodeNotFound, "GET", in("/logs/events"+path), nil)
	}
	if list, err := event.LogsWith(t.Context(), s.engine, "events"); err != nil || len(list) != 0 {
		t.Errorf("reading has made a log: %v, %v", list, err)
	}
	add := func(n int) (out api.Appended) {
		var a api.Append
		for i := range n {
			a.Events = append(a.Events, api.NewEvent{Type: "T", Data: []byte{0, byte(i)}})
		}
		return do[api.Appended](s, "POST", in("/logs/events/events"), a)
	}
	if got := add(3); got != (api.Appended{First: 1, Last: 3}) {
		t.Errorf("appended %+v", got)
	}
	once := api.Append{Events: []api.NewEvent{{Type: "U", ID: "one"}}, After: new(uint64)}
	p := s.refused(api.CodeConflict, "POST", in("/logs/events/events"), once)
	if p.Expected == nil || *p.Expected != 0 || *p.Actual != 3 {
		t.Errorf("a conflict: %+v", p)
	}
	*once.After = 3
	for i := range 2 {
		if got := do[api.Appended](s, "POST", in("/logs/events/events"), once); got.First != 4 || got.Repeated != (i == 1) {
			t.Errorf("appended %+v", got)
		}
	}
	got := do[api.Events](s, "GET", in("/logs/events/events?from=2&limit=2"), nil)
	if len(got.Events) != 2 || got.Events[0].Position != 2 || got.Events[0].Data[1] != 1 || got.Next != 4 {
		t.Errorf("read %+v", got)
	}
	if got := do[api.Events](s, "GET", in("/logs/events/events?from=5"), nil); got.Events == nil || len(got.Events) != 0 ||
		got.Next != 5 {
		t.Errorf("read %+v", got)
	}
	f := s.follow(in("/logs/events/events/follow?from=3"), "")
	at := ""
	expect := func(position uint64) {
		t.Helper()
		var e api.Event
		got := f.want("event")
		if err := json.Unmarshal([]byte(got.data), &e); err != nil || e.Position != position {
			t.Fatalf("%+v, %v, want %d", got, err, position)
		}
		if at = got.id; at != strconv.FormatUint(position+1, 10) {
			t.Errorf("id %s of %d", at, position)
		}
	}
	expect(3)
	expect(4)
	add(1)
	expect(5)
	f.close()
	s.stop()
	s = start(t, engine, core.Options{})
	add(1)
	f = s.follow(in("/logs/events/events/follow?from=1"), at)
	expect(6)
	only := s.follow(in("/logs/events/events/follow?from=-1"), "")
	add(1)
	f = only
	expect(7)

	do[any](s, "PUT", in("/logs/events/offsets/s"), api.Position{Position: 2})
	if got := do[api.Position](s, "GET", in("/logs/events/offsets/s"), nil); got.Position != 2 {
		t.Errorf("offset %+v", got)
	}
	s.refused(api.CodeAhead, "PUT", in("/logs/events/offsets/s"), api.Position{Position: 99})
	s.refused(api.CodeBadRequest, "PUT", in("/logs/events/offsets/s"), api.Position{Position: -1})
	if got := do[api.Removed](s, "POST", in("/logs/events/truncate"), api.Truncate{Before: 5}); got.Removed != 4 {
		t.Errorf("truncated %+v", got)
	}
	s.refused(api.CodeTruncated, "GET", in("/logs/events/events?from=1"), nil)
	if got := do[api.Events](s, "GET", in("/logs/events/events"), nil); len(got.Events) != 3 || got.Next != 8 {
		t.Errorf("from the first: %+v", got)
	}
	s.refused(api.CodeTruncated, "GET", in("/logs/events/events/follow?from=1"), nil)
	s.refused(api.CodeAhead, "GET", in("/logs/events/events/follow?from=99"), nil)
	l := do[api.Log](s, "GET", in("/logs/events"), nil)
	if l.First != 5 || l.Last != 7 || len(l.Subscriptions) != 1 ||
		l.Subscriptions[0] != (api.Subscriber{Name: "s", Position: 2,
			Lag: 5, Missed: 2}) {
		t.Errorf("%+v", l)
	}
	if list := do[[]api.Log](s, "GET", in("/logs"), nil); len(list) != 1 || !reflect.DeepEqual(list[0], l) {
		t.Errorf("%+v in a list, %+v by itself", list, l)
	}
	do[any](s, "DELETE", in("/logs/events/offsets/s"), nil)
	s.refused(api.CodeNotFound, "GET", in("/logs/events/offsets/s"), nil)
	if list := do[[]api.Log](s, "GET", in("/logs"), nil); len(list) != 1 || list[0].Name != "events" || list[0].Last != 7 {
		t.Errorf("%+v", list)
	}
	f = s.follow(in("/logs/events/events/follow?from=-1"), "")
	do[any](s, "DELETE", in("/logs/events"), nil)
	// Who came again would follow another log of that name from where this one was.
	var problem api.Problem
	if e := f.want("problem"); json.Unmarshal([]byte(e.data), &problem) != nil || problem.Code != api.CodeNotFound {
		t.Errorf("following what is deleted: %+v", e)
	}
	s.refused(api.CodeNotFound, "GET", in("/logs/events"), nil)
	if list := do[[]api.Log](s, "GET", in("/logs"), nil); list == nil || len(list) != 0 {
		t.Errorf("%+v", list)
	}
	s.refused(api.CodeBadRequest, "POST", in("/logs/a%2Fb/events"), api.Append{Events: []api.NewEvent{{Type: "T"}}})
	s.refused(api.CodeBadRequest, "POST", in("/logs/events/events"), api.Append{})
	s.refused(api.CodeBadRequest, "POST", in("/logs/%ff/events"), api.Append{Events: []api.NewEvent{{Type: "T"}}})
	// Read as JSON, these ids would be the same, and the second event a repeat of the first.
	for _, id := range []string{"\xfe", "\xff"} {
		s.refused(api.CodeBadRequest, "POST", in("/logs/events/events"), `{"events":[{"type":"T","id":"`+id+`"}]}`)
	}
}

func TestStreams(t *testing.T) {
	s := start(t, nil, core.Options{})
	for i := range 5 {
		do[api.Written](s, "POST", in("/messages"), write(fmt.Sprintf("order-%d", i), 2))
	}
	do[api.Written](s, "POST", in("/messages"), write("a b/ü?#%2F..", 1))
	list := do[[]api.Stream](s, "GET", in("/streams?prefix=order&after=order-1&limit=2"), nil)
	if len(list) != 2 || list[0].Stream != "order-2" || list[0].Version != 1 || list[0].Last.IsZero() {
		t.Errorf("%+v", list)
	}
	if got := do[api.Stream](s, "GET", in("/streams/a%20b%2F%C3%BC%3F%23%252F.."), nil); got.Stream != "a b/ü?#%2F.." {
		t.Errorf("%+v", got)
	}
	s.refused(api.CodeNotFound, "GET", in("/streams/order"), nil)
	if c := do[[]api.Category](s, "GET", in("/categories"), nil); len(c) != 2 || c[1] != (api.Category{Category: "order",
		Messages: 10, Streams: 5}) {
		t.Errorf("%+v", c)
	}
	for path, want := range map[string]int64{"order-1?before=1": 1, "order-2": 2, "order-3?tombstone=true": 2} {
		if got := do[api.Removed](s, "DELETE", in("/streams/"+path), nil); got.Removed != want {
			t.Errorf("%s: removed %d, want %d", path, got.Removed, want)
		}
	}
	s.refused(api.CodeBadRequest, "DELETE", in("/streams/order-1?before=1&tombstone=true"), nil)
	s.refused(api.CodeEnded, "POST", in("/messages"), write("order-3", 1))
	if got := do[api.Stream](s, "GET", in("/streams/order-2"), nil); got.Version != 1 || !got.Last.IsZero() {
		t.Errorf("a stream whose messages were removed: %+v", got)
	}
	want := api.Retention{MaxAgeMS: 5000, MaxCount: 7}
	do[any](s, "PUT", in("/streams/order-1/retention"), want)
	if got := do[api.Retention](s, "GET", in("/streams/order-1/retention"), nil); got != want {
		t.Errorf("%+v", got)
	}
	do[any](s, "PUT", in("/positions/c"), api.Position{Position: 3})
	if got := do[api.Position](s, "GET", in("/positions/c"), nil); got.Position != 3 {
		t.Errorf("%+v", got)
	}
	s.refused(api.CodeAhead, "PUT", in("/positions/c"), api.Position{Position: 99})
	do[any](s, "DELETE", in("/positions/c"), nil)
	s.refused(api.CodeNotFound, "GET", in("/positions/c"), nil)
	if c := do[[]api.Category](start(t, nil, core.Options{}), "GET", in("/categories"), nil); c == nil || len(c) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestTransfer(t *testing.T) {
	s := start(t, nil, core.Options{})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 2500))
	do[api.Written](s, "POST", in("/messages"), write("invoice-1", 1))
	to := start(t, nil, core.Options{MaxBody: 100})
	for _, query := range []string{"?category=order&category=invoice&gzip=true", ""} {
		resp, lines := s.send("GET", in("/export"+query), nil)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		resp, text := to.send("POST", in("/import"), string(lines))
		var done api.Imported
		if err := json.Unmarshal(text, &done); err != nil || done.Imported+done.Known != 2501 || done.Last != 2501 {
			t.Errorf("%s: %s: %v", resp.Status, text, err)
		}
	}
	resp, theirs := s.send("GET", in("/export"), nil)
	_, ours := to.send("GET", in("/export"), nil)
	if string(theirs) != string(ours) || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Error("what was exported and imported is not the same")
	}
	s.refused(
		api.CodePositionTaken,
		"POST",
		in("/import"),
		`{"id":"11111111-2222-4333-8444-555555555555","stream":"a","type":"T",`+
			`"pos":0,"gpos":1,"data":{},"time":"2026-01-01T00:00:00Z"}`,
	)
	s.refused(api.CodeBadRequest, "POST", in("/import"), `{`)
	p := s.refused(api.CodeBadRequest, "POST", in("/logs/l/import"), `{"position":1,"type":"t","data":"no+base-64"}`)
	if !strings.Contains(p.Detail, "base64") || !strings.Contains(p.Detail, "line 1") {
		t.Errorf("%+v", p)
	}
	s.refused(api.CodeBadRequest, "GET", in("/export?since=yesterday"), nil)
}

// Events are the same in a log that they were imported to, at their positions, however often.
func TestEventTransfer(t *testing.T) {
	s := start(t, nil, core.Options{})
	to := start(t, nil, core.Options{MaxBody: 100})
	for i := range 5 {
		events := make([]api.NewEvent, 300)
		for at := range events {
			events[at] = api.NewEvent{Type: "T<", Metadata: []byte("m"), Data: []byte{0, byte(at)}}
			if i%2 == 1 { // the others have no ids
				events[at].ID = fmt.Sprint(i, " ", at)
			}
		}
		do[api.Appended](s, "POST", in("/logs/from/events"), api.Append{Events: events})
	}
	do[api.Removed](s, "POST", in("/logs/from/truncate"), api.Truncate{Before: 100})
	const all = 1500 - 99
	for i, query := range []string{"?gzip=true", "", ""} {
		resp, lines := s.send("GET", in("/logs/from/export"+query), nil)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		resp, text := to.send("POST", in("/logs/to/import"), string(lines))
		want := api.Imported{Imported: all, Last: 1500}
		if i > 0 {
			want = api.Imported{Known: all, Last: 1500}
		}
		var done api.Imported
		if err := json.Unmarshal(text, &done); err != nil || done != want || resp.Header.Get(api.HeaderLevel) == "" {
			t.Errorf("%s: %s: %v", resp.Status, text, err)
		}
	}
	resp, theirs := s.send("GET", in("/logs/from/export"), nil)
	_, ours := to.send("GET", in("/logs/to/export"), nil)
	if string(theirs) != string(ours) || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Error("what was exported and imported is not the same")
	}
	next := api.Append{Events: []api.NewEvent{{Type: "T"}}}
	if got := do[api.Appended](to, "POST", in("/logs/to/events"), next); got.First != 1501 {
		t.Errorf("%+v", got)
	}
	const good = `{"position":2000,"type":"T"}` + "\n\n"
	for line, code := range map[string]string{
		`{"position":100,"type":"other"}`:         api.CodePositionTaken,
		`{"position":2001,"type":"T","id":"1 0"}`: api.CodePositionTaken,
		`{"type":"T"}`:                           api.CodeBadRequest,
		`{"position":-1}`:                        api.CodeBadRequest,
		`{"position":1,"unknown":1}`:             api.CodeBadRequest,
		"{\"position\":2001,\"type\":\"T\xff\"}": api.CodeBadRequest,
		`{"position":4611686018427387904}`:       api.CodeBadRequest,
		`{`:                                      api.CodeBadRequest,
		"\x1f\x8b\n":                             api.CodeBadRequest,
	} {
		if p := to.refused(code, "POST", in("/logs/to/import"), good+line); !strings.Contains(p.Detail, "line 3") {
			t.Errorf("%s: %s", line, p.Detail)
		}
	}
	_, packed := s.send("GET", in("/logs/from/export?gzip=true"), nil)
	for _, wrong := range []string{"\x1f\x8b\n", string(packed[:len(packed)/2]), string(packed) + "junk"} {
		to.refused(api.CodeBadRequest, "POST", in("/logs/to/import"), wrong)
		to.refused(api.CodeBadRequest, "POST", in("/import"), wrong[:len(wrong)-1])
	}
	s.refused(api.CodeTruncated, "POST", in("/logs/from/import"), `{"position":99}`)
	s.refused(api.CodeNotFound, "GET", in("/logs/none/export"), nil)
}
