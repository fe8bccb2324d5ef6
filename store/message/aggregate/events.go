package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message"
)

// ErrUnknownEvent: a message, or an event to be written, is of a type that is not registered.
var ErrUnknownEvent = errors.New("holdfast: unknown event")

// Events are the types of events that a program knows, all of which are an E: an interface, most often, that several Go
// types have. They are registered before they are used; then it may be used from many goroutines at once.
type Events[E any] struct {
	byName map[string]*kind[E]
	byType map[reflect.Type]*kind[E] // to write them
	err    error                     // what was wrong first
}

// kind is a type of event.
type kind[E any] struct {
	name    string
	version int
	decode  func(data []byte) (E, error)
	upcasts map[int]func(data []byte) ([]byte, error) // by the version that they begin with
}

// NewEvents returns Events with none registered.
func NewEvents[E any]() *Events[E] {
	return &Events[E]{byName: map[string]*kind[E]{}, byType: map[reflect.Type]*kind[E]{}}
}

// Register says that events of the Go type T are stored as JSON under a name, which is the type of their messages. The
// version is that of T: 1, and one more each time T changes so that what is stored does not fit it any more. T can be
// registered under a second name, an earlier one: events of that name are read as T, and T is written under the first.
//
// New reports what cannot be registered: a T that is no E, a name without letters, one used twice, a version below 1.
func Register[T, E any](events *Events[E], name string, version int) {
	var zero T
	_, fits := any(zero).(E)
	switch typ := reflect.TypeFor[T](); {
	case typ.Kind() == reflect.Interface || !fits:
		events.refuse("%s, registered as %q, is no type of event", typ, name)
	case name == "" || version < 1:
		events.refuse("%s is registered as %q, version %d", typ, name, version)
	case events.byName[name] != nil:
		events.refuse("%q is registered twice", name)
	default:
		k := &kind[E]{name: name, version: version, upcasts: map[int]func([]byte) ([]byte, error){}}
		k.decode = func(data []byte) (e E, err error) {
			var v T
			if err := json.Unmarshal(data, &v); err != nil {
				return e, err
			}
			return any(v).(E), nil
		}
		events.byName[name] = k
		if events.byType[typ] == nil {
			events.byType[typ] = k
		}
	}
}

// Upcast converts an event of one version, as the JSON of Old, to the next version, as the JSON of New. Reading goes
// through all versions up to the present one, so each version needs only the step to the next. The name is registered
// before.
func Upcast[Old, New, E any](events *Events[E], name string, from int, change func(Old) (New, error)) {
	k := events.byName[name]
	if k == nil || from < 1 || from >= k.version || k.upcasts[from] != nil || change == nil {
		events.refuse("an upcast of %q from version %d, which is not registered, not older, or given twice", name, from)
		return
	}
	k.upcasts[from] = func(data []byte) ([]byte, error) {
		var old Old
		if err := json.Unmarshal(data, &old); err != nil {
			return nil, err
		}
		v, err := change(old)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	}
}

func (ev *Events[E]) refuse(format string, args ...any) {
	if ev.err == nil {
		ev.err = fmt.Errorf(format, args...)
	}
}

// check returns what was wrong with a registration, or that a step between versions is missing.
func (ev *Events[E]) check() error {
	for _, k := range ev.byName {
		for from := range k.upcasts {
			if from+1 < k.version && k.upcasts[from+1] == nil {
				ev.refuse("%q has no upcast from version %d", k.name, from+1)
			}
		}
	}
	return ev.err
}

// metadata is what this package keeps in the metadata of messages.
type metadata struct {
	Version *int `json:"eventVersion"`
}

// Decode returns the event of a message in the present version. ErrUnknownEvent: its type is not registered.
// ErrVersion: its version is newer than the one registered, or so old that no upcast begins there. ErrCorrupt: it does
// not fit.
func (ev *Events[E]) Decode(m message.Message) (e E, err error) {
	fail := func(class, cause error, remedy, format string, args ...any) (E, error) {
		return e, &holdfast.Error{Op: "aggregate decode", Class: class, Cause: cause, Remedy: remedy,
			Detail: fmt.Sprintf("message %d of stream %q, of type %q: ", m.Position, m.Stream, m.Type) +
				fmt.Sprintf(format, args...)}
	}
	k := ev.byName[m.Type]
	if k == nil {
		return fail(ErrUnknownEvent, nil, "register it", "no such type is registered")
	}
	version := 1
	if len(m.Metadata) > 0 {
		var meta metadata
		if err := json.Unmarshal(m.Metadata, &meta); err != nil {
			return fail(holdfast.ErrCorrupt, err, "", "the metadata")
		}
		if meta.Version != nil {
			version = *meta.Version
		}
	}
	if version > k.version {
		return fail(holdfast.ErrVersion, nil, "use a newer program", "it has version %d, this program knows %d", version,
			k.version)
	}
	data := m.Data
	for ; version < k.version; version++ {
		upcast := k.upcasts[version]
		if upcast == nil {
			return fail(holdfast.ErrVersion, nil, "add an upcast", "there is none from version %d", version)
		}
		if data, err = upcast(data); err != nil {
			return fail(holdfast.ErrCorrupt, err, "", "the upcast from version %d", version)
		}
	}
	if e, err = k.decode(data); err != nil {
		return fail(holdfast.ErrCorrupt, err, "raise the version of the type if it has changed, and add an upcast",
			"version %d", version)
	}
	return e, nil
}

// encode makes a message of an event.
func (ev *Events[E]) encode(e E, meta json.RawMessage) (m message.Message, err error) {
	k := ev.byType[reflect.TypeOf(e)]
	if k == nil {
		return m, &holdfast.Error{Op: "aggregate encode", Class: ErrUnknownEvent, Remedy: "register it",
			Detail: fmt.Sprintf("the type %T is not registered", e)}
	}
	bad := func(err error) (message.Message, error) {
		return m, &holdfast.Error{Op: "aggregate encode", Class: message.ErrBadMessage, Cause: err,
			Detail: fmt.Sprintf("an event %q", k.name)}
	}
	if m.Data, err = json.Marshal(e); err != nil {
		return bad(err)
	}
	m.Type, m.Metadata = k.name, meta
	if k.version == 1 && !bytes.Contains(meta, []byte("eventVersion")) {
		return m, nil
	}
	members := map[string]json.RawMessage{}
	if len(meta) > 0 {
		if err := json.Unmarshal(meta, &members); err != nil || members == nil {
			return bad(errors.Join(err, errors.New("its metadata are no JSON object")))
		}
	}
	if members["eventVersion"] = fmt.Append(nil, k.version); k.version == 1 { // from the metadata of another event
		delete(members, "eventVersion")
	}
	if m.Metadata, err = json.Marshal(members); err != nil {
		return bad(err)
	}
	return m, nil
}
