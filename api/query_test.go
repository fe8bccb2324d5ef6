package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestRows: a row is read as it was written, whatever its values are, and is JSON.
func TestRows(t *testing.T) {
	for _, row := range [][]any{
		{}, {nil}, {int64(math.MaxInt64), int64(math.MinInt64), int64(0)},
		{1.0, -0.5, 1e300, 5e-324, 9007199254740993.0, math.Inf(1), math.Inf(-1)},
		{"", "a\"b\\\n\x00\u2028<&>", "ä€😀"}, {[]byte{}, []byte{0, 0xff, 7}},
		{strings.Repeat("x", textPart-1) + "😀" + strings.Repeat("€", textPart), nil, "x"},
		{strings.Repeat("\x01", 3*textPart)},
	} {
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		if err := WriteRow(w, row); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		got, err := ReadRow(b.Bytes())
		if err != nil || !json.Valid(b.Bytes()) || !bytes.HasSuffix(b.Bytes(), []byte("]\n")) ||
			bytes.Count(b.Bytes(), []byte("\n")) != 1 || !reflect.DeepEqual(got, row) {
			t.Errorf("%.100q became %.100q by %.100q: %v", row, got, b.Bytes(), err)
		}
	}
	for _, line := range []string{"", "{}", "[true]", "[{}]", `[{"base64":"!"}]`, "[1", "[99999999999999999999]", "[[]]"} {
		if row, err := ReadRow([]byte(line)); err == nil {
			t.Errorf("%q became %q", line, row)
		}
	}
}

// TestRowsFail: a writer that fails is told of.
func TestRowsFail(t *testing.T) {
	for _, v := range []any{strings.Repeat("x", 1<<20), make([]byte, 1<<20), int64(1)} {
		w := bufio.NewWriterSize(failing{}, 16)
		err := WriteRow(w, []any{v})
		if err == nil {
			err = w.Flush()
		}
		if err == nil {
			t.Errorf("a row of %T was written to nothing", v)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, bufio.ErrBufferFull }
