package api

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// inBase64 is bytes as a value of JSON.
type inBase64 struct {
	Base64 []byte `json:"base64"`
}

// textPart is how many bytes of a text are encoded at a time.
const textPart = 32 << 10

// WriteRow writes a row of an answer: values that are nil, int64, float64, string or []byte. No more than a part of a
// long text is encoded at once.
func WriteRow(w *bufio.Writer, row []any) error {
	sep := byte('[')
	for _, v := range row {
		w.WriteByte(sep) // a failed write fails the last one, too
		sep = ','
		if err := writeValue(w, v); err != nil {
			return err
		}
	}
	if len(row) == 0 {
		w.WriteByte(sep)
	}
	_, err := w.WriteString("]\n")

	return err
}

func writeValue(w *bufio.Writer, v any) (err error) {
	switch v := v.(type) {
	case nil:
		_, err = w.WriteString("null")
	case int64:
		_, err = w.Write(strconv.AppendInt(w.AvailableBuffer(), v, 10))
	case float64:
		_, err = w.WriteString(float(v))
	case string:
		err = writeText(w, v)
	case []byte:
		w.WriteString(`{"base64":"`)
		e := base64.NewEncoder(base64.StdEncoding, w)
		_, _ = e.Write(v)
		_ = e.Close()
		_, err = w.WriteString(`"}`)
	default:
		err = fmt.Errorf("a value of type %T", v)
	}

	return err
}

// float writes a number so that it is told from an integer.
func float(f float64) string {
	switch {
	case math.IsNaN(f):
		return "null"
	case math.IsInf(f, 1):
		return "9e999"
	case math.IsInf(f, -1):
		return "-9e999"
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}

	return text
}

func writeText(w *bufio.Writer, text string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	w.WriteByte('"')
	for len(text) > 0 {
		part := text[:min(len(text), textPart)]
		for n := 1; n < utf8.UTFMax && len(part) < len(text) && !utf8.RuneStart(text[len(part)]) && len(part) > 1; n++ {
			part = part[:len(part)-1]
		}
		b.Reset()
		if err := e.Encode(part); err != nil {
			return err
		}
		if _, err := w.Write(b.Bytes()[1 : b.Len()-2]); err != nil { // without the quotes and the newline
			return err
		}
		text = text[len(part):]
	}

	return w.WriteByte('"')
}

// ReadRow reads a row that WriteRow has written.
func ReadRow(line []byte) (row []any, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var values []any
	if err := d.Decode(&values); err != nil {
		return nil, err
	}
	for i, v := range values {
		switch v := v.(type) {
		case nil, string:
		case json.Number:
			values[i], err = number(v.String())
		case map[string]any:
			text, ok := v["base64"].(string)
			if !ok {
				return nil, errors.New("a value is neither a number, a text, nor bytes")
			}
			values[i], err = base64.StdEncoding.DecodeString(text)
		default:
			err = errors.New("a value is neither a number, a text, nor bytes")
		}
		if err != nil {
			return nil, err
		}
	}

	return values, nil
}

func number(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		return strconv.ParseInt(text, 10, 64)
	}
	f, err := strconv.ParseFloat(text, 64)
	if errors.Is(err, strconv.ErrRange) { // infinite
		err = nil
	}

	return f, err
}

// Arguments writes values for Query.Args: nil, bool, integers, floats, strings, []byte, and what else writes itself as
// JSON of one of these.
func Arguments(values ...any) (json.RawMessage, error) {
	if len(values) == 0 {
		return nil, nil
	}
	list := make([]any, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case []byte:
			list[i] = inBase64{v}
		case float64:
			list[i] = json.RawMessage(float(v))
		case string:
			if !utf8.ValidString(v) { // it would become another one
				return nil, fmt.Errorf("the text %.40q is not UTF-8: give it as []byte", v)
			}
			list[i] = v
		default:
			list[i] = v
		}
	}

	return json.Marshal(list)
}
