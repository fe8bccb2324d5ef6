package message

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// KeyName says what a message store keeps under a key of an engine; empty if the key belongs to none. The messages
// themselves are events, see [event.KeyName].
func KeyName(key []byte) string {
	store, table, rest, ok := keyspace.Split(format.Kind, key)
	if !ok {
		return ""
	}
	what := ""
	switch table {
	case format.TableMeta:
		what = "the description"
	case registry.TableAccepted:
		what = "which loss was accepted"
	case format.TableNamespaces:
		what = fmt.Sprintf("namespace %q", rest)
	default:
		if len(rest) < 8 {
			return ""
		}
		number, _ := format.Number(rest[:8])
		name, at, placed := format.New(store).Of(number).Placed(key)
		switch table {
		case format.TableDeleted:
			what = "the deletion"
		case format.TableStreams:
			what = fmt.Sprintf("message %d of stream %.40q", at, name)
		case format.TableCategories:
			what = fmt.Sprintf("block %d of category %.40q", at, name)
		case format.TableDeliveries, format.TableParked:
			what = fmt.Sprintf("message %d in subscription %.40q", at, name)
		case format.TableHeads, format.TableCounts, format.TableCounted:
			what, placed = fmt.Sprintf("what is kept of %.40q", rest[8:]), true
		}
		if what == "" || !placed && table != format.TableDeleted {
			return ""
		}
		what += fmt.Sprintf(" in namespace %d", number)
	}
	return fmt.Sprintf("%s of message store %q", what, store)
}

// LogName says whose messages a log of package event has, by the log's name; empty if it has none.
func LogName(log string) string {
	store, number, ok := format.SplitLogName(log)
	if !ok {
		return ""
	}
	return fmt.Sprintf("messages of namespace %d of store %q", number, store)
}

// LogOf returns the name of the event log that has the messages of a namespace, in the store of that name, as the
// engine shows it; for who looks through what an engine has written, see event.Appends. ErrNoNamespace: there is no
// such namespace.
func LogOf(from holdfast.Reader, store, namespace string) (log string, err error) {
	value, err := from.Get(nil, format.New(store).Namespace(namespace))
	if errors.Is(err, holdfast.ErrNotFound) {
		return "", &holdfast.Error{Op: "namespace", Class: ErrNoNamespace, Detail: fmt.Sprintf("%q", namespace)}
	}
	if err != nil {
		return "", err
	}
	var d description
	if err := json.Unmarshal(value, &d); err != nil {
		return "", &holdfast.Error{Op: "namespace", Class: holdfast.ErrCorrupt, Detail: fmt.Sprintf("%q", namespace),
			Cause: err}
	}

	return format.LogName(store, d.Number), nil
}
