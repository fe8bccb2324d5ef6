package eventodb

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// serve hands a request to the handler of a path, as if the server had let it in with the default namespace's token.
func serve(d *data.Data, path string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r = r.WithContext(route.With(context.Background(),
		&route.Request{Principal: auth.Principal{Namespace: auth.Everywhere, Role: auth.Admin}}))
	w := httptest.NewRecorder()
	for _, rt := range Routes(d, Options{}) {
		if rt.Pattern == r.URL.Path {
			rt.Handler(w, r)
		}
	}
	return w
}

// FuzzRequest takes anything apart as encoding/json does, and calls it: there is an answer, of JSON, and what is
// written can be read.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`["stream.write","a-1",{"type":"A","data":{"x":[1,"\"}"]},"metadata":null},` +
			`{"id":"550e8400-e29b-41d4-a716-446655440000"}]`,
		` [ "stream.write" , "a\u002d1" , {"type":"\\","d\u0061ta":{}} , {"expectedVersion":-1.5e0} ] `,
		`["stream.get","a",{"position":1,"globalPosition":2,"batchSize":-1}]`,
		`["stream.last","a",{"type":"A"}]`, `["stream.version","a"]`,
		`["category.get","a",{"correlation":"b","consumerGroup":{"member":0,"size":2}}]`,
		`["ns.create","a",{"description":"d","metadata":{}}]`, `["ns.delete","a"]`, `["ns.list"]`, `["ns.info","default"]`,
		`["ns.streams",{"prefix":"a","cursor":"b","limit":1}]`, `["ns.categories"]`, `["sys.version"]`, `["sys.health"]`,
		`null`, `[]`, `[[[]]]`, `{}`, `["`, "[\"\xff\"]", `["\ud800"]`, `[1e999]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := list(nil, text)
		var want []json.RawMessage
		wrong := json.Unmarshal(text, &want)
		if (err == nil) != (wrong == nil && utf8.Valid(text)) {
			t.Fatalf("%q: %v, encoding/json: %v", text, err, wrong)
		}
		if err == nil && len(got) != len(want) {
			t.Fatalf("%q: %d elements, want %d", text, len(got), len(want))
		}
		for i := range got {
			same(t, got[i], want[i])
		}
		d, n := open(t)
		a := serve(d, "/rpc", text)
		if a.Code == 0 || !json.Valid(a.Body.Bytes()) || a.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%q: %d %q", text, a.Code, a.Body)
		}
		for m, err := range n.Read(t.Context(), message.Query{}) {
			if err != nil || !json.Valid(m.Data) || a.Code != http.StatusOK {
				t.Fatalf("%q: %+v, %v", text, m, err)
			}
		}
	})
}

// same compares a value with what encoding/json makes of it.
func same(t *testing.T, got value, want []byte) {
	t.Helper()
	if !bytes.Equal(got, bytes.TrimSpace(want)) {
		t.Fatalf("%q, want %q", got, want)
	}
	var s string
	switch text, ok := got.text(); {
	case got.isNull(): // which is a string for encoding/json
	case ok != (json.Unmarshal(want, &s) == nil && !problem.Surrogate(want)) || ok && text != s:
		t.Fatalf("%q is %q, want %q", got, text, s)
	}
	var f float64
	n, ok := got.number()
	if ok && (json.Unmarshal(want, &f) != nil || math.Abs(float64(n)-math.Trunc(f)) > math.Abs(f)/(1<<52)) {
		t.Fatalf("%q is %d, want %g", got, n, f)
	}
	if !got.isObject() {
		return
	}
	members, last := map[string]json.RawMessage{}, map[string]value{}
	if err := json.Unmarshal(want, &members); err != nil {
		t.Fatal(err)
	}
	for name, v := range got.members() {
		last[name] = v
	}
	if len(last) != len(members) {
		t.Fatalf("%q has %d members, want %d", got, len(last), len(members))
	}
	for name, v := range last {
		same(t, v, members[name])
	}
}

// FuzzImport imports anything: the answer tells how that went, and what it says was imported is there.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"id":"00000000-0000-4000-8000-000000000001","stream":"a-1","type":"t","pos":3,` +
		`"gpos":7,"data":{"a":1},"meta":{},"time":"2026-01-02T03:04:05.6Z"}` + "\n"))
	f.Add([]byte("\n\n{}\n"))
	f.Add([]byte(`{"time":"x"}`))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, n := open(t)
		a := serve(d, "/import", text)
		blocks := bytes.Split(bytes.TrimSuffix(a.Body.Bytes(), []byte("\n\n")), []byte("\n\n"))
		last, ok := bytes.CutPrefix(blocks[len(blocks)-1], []byte("data: "))
		var told struct {
			Done           bool
			Imported, Line int64
			Error, Message string
		}
		err := json.Unmarshal(last, &told)
		if !ok || err != nil || a.Code != http.StatusOK || told.Done == (told.Error != "") {
			t.Fatalf("%q: %d %q: %v", text, a.Code, a.Body, err)
		}
		counts, err := n.Count(t.Context(), "")
		if err != nil || told.Done && counts.Messages != told.Imported {
			t.Fatalf("%q: %+v, %+v, %v", text, told, counts, err)
		}
	})
}

func open(t testing.TB) (*data.Data, *message.Namespace) {
	t.Helper()
	d, err := data.Open(mem.New(), data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	n, err := d.Messages().Namespace(t.Context(), message.Default)
	if err != nil {
		t.Fatal(err)
	}
	return d, n
}
