package ebuse

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/event"
)

// kept is an event as it comes back from the log.
func kept(e event.Event) Event {
	return FromRecord(&event.Record{Position: 1, Time: e.Time, Type: []byte(e.Type), Metadata: e.Metadata, Data: e.Data})
}

// FuzzEvent: what is taken comes back the same, and as one line of JSON that is taken again.
func FuzzEvent(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `[]`, `{"type":"T","data":{"a":[1,null,"\u0000"]},"timestamp":"2026-01-02T03:04:05.000000006Z"}`,
		`{"timestamp":"0001-01-01T00:00:00Z"}`, `{"timestamp":"0000-01-01T00:00:00+23:59"}`, `{"data":1e400,"data":{}}`,
		`{"timestamp":"1677-09-21T00:12:43.145224192Z"}`, `{"timestamp":"2262-04-11T23:47:16.854775807-00:01"}`,
		`{"Type":"\ud800","DATA":"\ud800","position":1}`, `{"position":99999999999999999999}`, ` { "data" : [ ] } `,
		"{\"type\":\"\xff\"}", `{"data":` + strings.Repeat("[", 10_001), `{"data":null}x`,
		`{"timestamp":"9999-12-31T23:59:59-23:59"}`, `{"type":"<a>&\\","data":{}}`, `{"type":"a","type":"b"}`,
		` {"position":-0,"type":"T" , "data":[1] ,"timestamp":"2026-01-02T03:04:05+01:00" } `, `{"data":null,"type":null}`,
		`{"position":1.0}`, `{"position":1e1}`, `{"type":"T","more":1}`, `{"ty\u0070e":"T"}`, `{"type":"T",}`, `{"type":"T"`,
		`{"data":` + strings.Repeat("[", 9_901) + strings.Repeat("]", 9_901) + `}`, "{\"type\":\"a\tb\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := decodeEvent(body)
		other, slow := unusual(body)
		if (err == nil) != (slow == nil) || err == nil && (!bytes.Equal(mustAppend(t, e), mustAppend(t, other)) ||
			!bytes.Equal(e.Data, other.Data)) {
			t.Fatalf("%q: %+v, %v; encoding/json: %+v, %v", body, e, err, other, slow)
		}
		if err != nil {
			return
		}
		back := kept(e.Stored())
		if back.Type != e.Type || !bytes.Equal(back.Data, e.Data) || !back.Timestamp.Equal(e.Timestamp) {
			t.Fatalf("took %+v, kept %+v", e, back)
		}
		line, err := back.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(line) || !utf8.Valid(line) {
			t.Fatalf("not JSON: %q", line)
		}
		again, err := decodeEvent(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		second, err := again.append(nil)
		if err != nil || !bytes.Equal(line, second) {
			t.Fatalf("%q became %q, %v", line, second, err)
		}
		e.Position = 1
		if answered := mustAppend(t, e); !bytes.Equal(answered, line) {
			t.Fatalf("answered %q, kept %q", answered, line)
		}
	})
}

func mustAppend(t *testing.T, e Event) []byte {
	t.Helper()
	b, err := e.append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzBatch: a batch is taken exactly if it is an array of at most 1000 events that would be taken one by one.
func FuzzBatch(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `[]`, `[{}]`, `[{},null]`, `[{"type":"a"},{"type":"b","data":[[]]}]`, `[{}]]`, `[[]]`, `{}`, `[{},]`,
		`[` + strings.Repeat(`{},`, 1000) + `{}]`, `[` + strings.Repeat(`{},`, 999) + `{}]`, strings.Repeat("[", 10_001),
		"[{\"type\":\"\xff\"}]", `[{"timestamp":"2026-01-02T03:04:05.6+01:00"} , {"data":1}] `, `[1]`, `[{"type":1}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := decodeBatch(body)
		other, slow := unusualBatch(body)
		if utf8.Valid(body) && ((err == nil) != (slow == nil) || len(list) != len(other)) {
			t.Fatalf("%.200q: %d, %v; encoding/json: %d, %v", body, len(list), err, len(other), slow)
		}
		var refused refusal
		if errors.As(err, &refused) && refused != errEmpty && len(body) < 2*maxBatch {
			t.Fatal(err) // too short for so many
		}
		var parts []json.RawMessage
		whole := utf8.Valid(body) && json.Unmarshal(body, &parts) == nil && len(parts) > 0 && len(parts) <= maxBatch
		for i, part := range parts {
			e, bad := decodeEvent(part)
			whole = whole && bad == nil
			if err == nil && bad == nil {
				got := kept(list[i])
				if got.Type != e.Type || !bytes.Equal(got.Data, e.Data) || !got.Timestamp.Equal(e.Timestamp) {
					t.Fatalf("event %d: %+v, want %+v", i+1, got, e)
				}
			}
		}
		if whole != (err == nil) {
			t.Fatalf("%.200q: %v", body, err)
		}
	})
}

// BenchmarkEvents decodes a batch of a hundred events, and encodes them.
func BenchmarkEvents(b *testing.B) {
	one := `{"type":"OrderPlaced","data":{"id":"o-17","customer":{"name":"Ada Lovelace","city":"London"},"total":1234},` +
		`"timestamp":"2026-01-02T03:04:05.000000006Z"}`
	body := []byte("[" + strings.Repeat(one+",", 99) + one + "]")
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		report := testkit.CPU(b)
		for b.Loop() {
			if list, err := decodeBatch(body); err != nil || len(list) != 100 {
				b.Fatal(len(list), err)
			}
		}
		report(b.N)
	})
	b.Run("encode", func(b *testing.B) {
		list, err := decodeBatch(body)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		var text []byte
		report := testkit.CPU(b)
		for b.Loop() {
			text = text[:0]
			for i := range list {
				e := kept(list[i])
				if text, err = e.append(text); err != nil {
					b.Fatal(err)
				}
			}
		}
		report(b.N)
	})
}
