package ebuse

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast/internal/jsoncheck"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/event/eventbus"
)

// Event is an event as the API has it.
type Event struct {
	Position  int64           `json:"position"` // from 1
	Type      string          `json:"type"`
	Data      json.RawMessage `json:"data"`
	Timestamp time.Time       `json:"timestamp"`
}

// The types of the bus, for package eventbus.
type (
	busEvent struct {
		ID        string            `json:"id,omitempty"`
		Origin    string            `json:"origin,omitempty"`
		Type      string            `json:"type"`
		Data      json.RawMessage   `json:"data"`
		Metadata  map[string]string `json:"metadata,omitempty"`
		Timestamp time.Time         `json:"timestamp"`
	}
	busStored struct {
		Offset    busOffset         `json:"offset"`
		ID        string            `json:"id,omitempty"`
		Origin    string            `json:"origin,omitempty"`
		Type      string            `json:"type"`
		Data      json.RawMessage   `json:"data"`
		Metadata  map[string]string `json:"metadata,omitempty"`
		Timestamp time.Time         `json:"timestamp"`
	}
	busOffset string
)

// Stored is the event as the log has it.
func (e *Event) Stored() event.Event {
	s := eventbus.Encode(busEvent{Type: e.Type, Data: e.Data, Timestamp: e.Timestamp})
	s.Position = uint64(e.Position)

	return s
}

// FromRecord is an event of the log as the API has it. Events that another API has put there, with metadata of its own,
// have the time that the log has.
func FromRecord(r *event.Record) Event {
	if s, err := eventbus.Decode[busStored](r); err == nil {
		return Event{Position: int64(r.Position), Type: s.Type, Data: s.Data, Timestamp: s.Timestamp}
	}

	return Event{Position: int64(r.Position), Type: string(r.Type), Data: r.Data, Timestamp: r.Time}
}

// append appends the event as JSON. Data that is not there is null; data that is no JSON, which another API has put
// there, is a string in base64.
func (e *Event) append(b []byte) ([]byte, error) {
	whole := b
	b = append(b, `{"position":`...)
	b = strconv.AppendInt(b, e.Position, 10)
	b = append(b, `,"type":`...)
	if plain(e.Type) {
		b = append(append(append(b, '"'), e.Type...), '"')
	} else {
		typ, err := json.Marshal(e.Type)
		if err != nil {
			return whole, err
		}
		b = append(b, typ...)
	}
	b = append(b, `,"data":`...)
	switch {
	case len(e.Data) == 0:
		b = append(b, "null"...)
	case jsoncheck.Valid(e.Data):
		b = append(b, e.Data...)
	default:
		b = append(base64.StdEncoding.AppendEncode(append(b, '"'), e.Data), '"')
	}
	b, err := e.Timestamp.AppendText(append(b, `,"timestamp":"`...))
	if err != nil {
		return whole, fmt.Errorf("the timestamp of the event at position %d: %w", e.Position, err)
	}

	return append(b, `"}`...), nil
}

// plain reports whether a text is the same in JSON, between quotes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || strings.IndexByte(`"\<>&`, c) >= 0 {
			return false
		}
	}

	return true
}

// refusal is why a batch that is JSON cannot be saved, as the client is told.
type refusal string

func (r refusal) Error() string { return string(r) }

// unmarshal decodes a body into a struct. The body is one JSON object in valid UTF-8.
func unmarshal(body []byte, v any) error {
	if !utf8.Valid(body) {
		return errUTF8
	}
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) > 0 && body[0] != '{' && json.Valid(body) {
		return errors.New("it is not a JSON object")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return err
	}

	return once(body)
}

// once returns an error if a sound object has a field twice: one of the two would be lost. encoding/json takes fields
// in any case, and so does this.
func once(object []byte) error {
	d := json.NewDecoder(bytes.NewReader(object))
	var seen []string
	if _, err := d.Token(); err != nil {
		return err
	}

	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}

		name, _ := t.(string)
		switch {
		case slices.ContainsFunc(seen, func(s string) bool { return strings.EqualFold(s, name) }):
			return fmt.Errorf("the field %.80q is there twice", name)
		case len(seen) == maxFields:
			return fmt.Errorf("it has more than %d fields", maxFields)
		}
		seen = append(seen, name)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}

	return nil
}

// maxFields is how many fields an object may have, but for the data of an event. The API has four.
const maxFields = 100

var errUTF8 = errors.New("it is not valid UTF-8")

func decodeEvent(body []byte) (Event, error) {
	if e, end := usual(body, jsoncheck.Space(body, 0)); end > 0 && jsoncheck.Space(body, end) == len(body) &&
		utf8.Valid(body) {
		return e, nil
	}

	return unusual(body)
}

// unusual is decodeEvent by encoding/json, for any event, and says what is wrong with one.
func unusual(body []byte) (e Event, err error) {
	if err = unmarshal(body, &e); err == nil {
		err = e.check()
	}

	return e, err
}

// usual decodes the event that begins at i as clients mostly write it, and returns where it ends: an object of the
// fields that there are, each once at most, with no escapes in a name or the type. Of any other, and of what is no
// sound event, it says nothing but 0. The data are a part of b, whose UTF-8 is for the caller to check.
func usual(b []byte, i int) (e Event, end int) {
	if i >= len(b) || b[i] != '{' {
		return e, 0
	}

	for seen := 0; ; {
		name, after := plainText(b, jsoncheck.Space(b, i+1))
		if i = jsoncheck.Space(b, after); after == 0 || i >= len(b) || b[i] != ':' {
			return e, 0
		}
		i = jsoncheck.Space(b, i+1)
		after = jsoncheck.Value(b, i, maxDepth)
		if after == 0 {
			return e, 0
		}
		value, field, ok := b[i:after:after], 0, false
		switch string(name) {
		case "position":
			n, err := strconv.ParseInt(string(value), 10, 64)
			e.Position, field, ok = n, 1, err == nil
		case "type":
			text, end := plainText(value, 0)
			e.Type, field, ok = string(text), 2, end > 0
		case "data":
			e.Data, field, ok = json.RawMessage(value), 4, value[0] != 'n'
		case "timestamp":
			field, ok = 8, value[0] == '"' && e.Timestamp.UnmarshalJSON(value) == nil
		}
		if i = jsoncheck.Space(b, after); !ok || seen&field != 0 || i >= len(b) {
			return e, 0
		}
		seen |= field
		switch b[i] {
		case '}':
			return e, i + 1
		case ',':
		default:
			return e, 0
		}
	}
}

// plainText returns the text of a string that begins at i and has no escapes, and where it ends; 0 if that is not so.
func plainText(b []byte, i int) (text []byte, end int) {
	if i >= len(b) || b[i] != '"' {
		return nil, 0
	}
	n := bytes.IndexByte(b[i+1:], '"')
	if n < 0 || bytes.IndexByte(b[i+1:i+1+n], '\\') >= 0 {
		return nil, 0
	}

	return b[i+1 : i+1+n], i + n + 2
}

// maxDepth is how deep data may be: what is read back is in an event and in an array, and clients of the original read
// 10,000 in all.
const maxDepth = 9_900

func (e *Event) check() error {
	if len(e.Data) > 0 && !jsoncheck.ValidTo(e.Data, maxDepth) {
		return fmt.Errorf("the data are more than %d objects and arrays deep", maxDepth)
	}

	return nil
}

var errEmpty = refusal(fmt.Sprintf("The batch is empty; send 1 to %d events", maxBatch))

// decodeBatch decodes events, no more of them than a batch may have.
func decodeBatch(body []byte) ([]event.Event, error) {
	if !utf8.Valid(body) {
		return nil, errUTF8
	}
	if list := usualBatch(body); list != nil {
		return list, nil
	}

	return unusualBatch(body)
}

// usualBatch decodes a batch of usual events; nil if it is another one.
func usualBatch(body []byte) (list []event.Event) {
	i := jsoncheck.Space(body, 0)
	if i >= len(body) || body[i] != '[' {
		return nil
	}

	for {
		e, end := usual(body, jsoncheck.Space(body, i+1))
		if list == nil && end > 0 { // with room for others that are a little shorter than the first one
			list = make([]event.Event, 0, min(len(body)/end*9/8+1, maxBatch))
		}
		if i = jsoncheck.Space(body, end); end == 0 || i >= len(body) || len(list) == maxBatch {
			return nil
		}
		list = append(list, e.Stored())
		switch {
		case body[i] == ',':
		case body[i] == ']' && jsoncheck.Space(body, i+1) == len(body):
			return list
		default:
			return nil
		}
	}
}

// unusualBatch is decodeBatch by encoding/json: events one after the other, so that no body makes more of them than a
// batch may have.
func unusualBatch(body []byte) ([]event.Event, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	switch t, err := d.Token(); {
	case err == io.EOF:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case t == nil:
		return nil, errEmpty
	case t != json.Delim('['):
		return nil, errors.New("it is not a JSON array")
	}

	var list []event.Event
	for d.More() {
		if len(list) == maxBatch {
			return nil, refusal(fmt.Sprintf("Batch size limited to %d events", maxBatch))
		}
		var text json.RawMessage
		var e *Event
		err := d.Decode(&text)
		if err == nil {
			err = json.Unmarshal(text, &e)
		}
		if err == nil && e != nil {
			err = once(text)
		}
		if err != nil {
			return nil, fmt.Errorf("event %d of the batch: %w", len(list)+1, err)
		}
		if e == nil {
			return nil, fmt.Errorf("event %d of the batch is null", len(list)+1)
		}
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("event %d of the batch: %w", len(list)+1, err)
		}
		list = append(list, e.Stored())
	}
	if _, err := d.Token(); err == io.EOF { // instead of the end of the array
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON array")
	}
	if len(list) == 0 {
		return nil, errEmpty
	}

	return list, nil
}
