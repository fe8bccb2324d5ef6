package jsoncheck_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast/internal/jsoncheck"
)

func check(t *testing.T, b []byte) {
	t.Helper()
	if got, want := jsoncheck.Valid(b), json.Valid(b) && utf8.Valid(b); got != want {
		t.Errorf("%.100q: %v, encoding/json says %v", b, got, want)
	}
}

var texts = []string{
	"", " ", "null", "nul", "nulll", "true", "tru", "false", "falsy", "t", "x",
	"0", "-0", "00", "01", "-", "-1", "1.", "1.5", ".5", "1e", "1e5", "1E+5", "1e-", "1e-07", "+1", "0x1", "1 2", "0.1e1.",
	`""`, `"`, `"a`, `"a"b`, "\"\x00\"", "\"\x1f\"", "\"\x7f\"", "\"\xff\"", "\"\xc3\xa9\"", `"\"`,
	`"\\"`, `"\"\/\b\f\n\r\t"`,
	`"\x"`, `"\u12"`, `"\u00fF"`, `"\u00gf"`, `"\ud800"`, `"\u123`, "\"\n\"",
	"[]", "[ ]", "[", "]", "[1", "[1]", "[1,]", "[,1]", "[1 2]", "[1,2 , 3]", "[[],{}]", "[}", "[1}", "\t[\r1\n,2 ] ",
	"{}", "{ }", "{", "}", `{"a"}`, `{"a":}`, `{"a":1}`, `{"a":1,}`, `{,"a":1}`, `{"a" : 1 , "b" : [ true ] }`, `{a:1}`,
	`{"a":1 "b":2}`, `{"a":1]`, `{"a"1}`, `{1:2}`, `{"a":{"a":{"a":null}}}`, `{"a":1}{`, "\ufeff{}", "{}\x00",
}

func TestValid(t *testing.T) {
	for _, text := range texts {
		check(t, []byte(text))
		for end := range text { // wherever it breaks off
			check(t, []byte(text[:end]))
		}
	}
	for _, depth := range []int{9_999, 10_000, 10_001, 1 << 20} {
		check(t, []byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)))
		check(t, []byte(strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth)))
		check(t, []byte(strings.Repeat("[", depth)))
	}
}

func FuzzValid(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) { check(t, b) })
}

func BenchmarkValid(b *testing.B) {
	text := []byte(`["stream.write","test-stream-17",{"type":"LoadTestEvent","data":{"at":123456789,"worker":1,"user":{` +
		`"id":"user-4711","name":"Ada Lovelace","address":{"city":"London","street":"St James Square 12"}},"items":[` +
		`{"sku":"A-100","quantity":2},{"sku":"B-200","quantity":1}],"note":"as discussed"}}]`)
	for name, valid := range map[string]func([]byte) bool{"here": jsoncheck.Valid, "encoding/json": json.Valid} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !valid(text) {
					b.Fatal()
				}
			}
		})
	}
}
