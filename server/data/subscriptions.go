package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message"
)

// Subscription is an open subscription of messages.
type Subscription struct {
	*message.Subscription
	lease time.Duration
	held  atomic.Int64 // until when consumers may have messages: closing it would take these from them. Unix nanoseconds
}

// Hold keeps the subscription open for as long as what was delivered or extended just now is a consumer's.
func (s *Subscription) Hold() { s.held.Store(time.Now().Add(s.lease).UnixNano()) }

func (s *Subscription) closable() bool { return time.Now().UnixNano() > s.held.Load() }

// Options of a subscription are kept in one key of the engine:
//
//	's' 0 'u' NAMESPACE '/' NAME      version (1 byte, now 1), then kept as JSON
//
// 's' is what the keys of the server begin with; 0 is the length of its name, which is empty; 'u' is the table.
const (
	optionsPrefix  = "s\x00u"
	optionsVersion = 1
)

// kept is what is kept of the options of a subscription.
type kept struct {
	Category    string        `json:"category,omitempty"`
	Types       []string      `json:"types,omitempty"`
	Prefix      string        `json:"prefix,omitempty"`
	Correlation string        `json:"correlation,omitempty"`
	Member      int           `json:"member,omitempty"`
	Size        int           `json:"size,omitempty"`
	From        int64         `json:"from,omitempty"`
	Lease       time.Duration `json:"lease,omitempty"`
	MaxAttempts int           `json:"maxAttempts,omitempty"`
	Window      int           `json:"window,omitempty"`
}

func keep(o message.SubscriptionOptions) kept {
	q := o.Query

	return kept{q.Category, q.Types, q.Prefix, q.Correlation, q.Group.Member, q.Group.Size, q.From, o.Lease,
		o.MaxAttempts, o.Window}
}

func (k kept) options() message.SubscriptionOptions {
	return message.SubscriptionOptions{Query: message.Query{Category: k.Category, Types: k.Types, Prefix: k.Prefix,
		Correlation: k.Correlation, Group: message.Group{Member: k.Member, Size: k.Size}, From: k.From}, Lease: k.Lease,
		MaxAttempts: k.MaxAttempts, Window: k.Window}
}

func place(namespace, subscription string) string { return namespace + "/" + subscription }

// SubscriptionOptions returns what SetSubscription has set. ErrNotFound: nothing, though there may be a subscription
// that a program has made otherwise.
func (d *Data) SubscriptionOptions(namespace, subscription string) (o message.SubscriptionOptions, err error) {
	value, err := d.engine.Get(nil, []byte(optionsPrefix+place(namespace, subscription)))
	if err != nil {
		return o, missing(err, "subscription", subscription)
	}

	var k kept
	switch {
	case len(value) > 0 && value[0] > optionsVersion:
		return o, &holdfast.Error{Op: "subscription", Class: holdfast.ErrVersion, Detail: fmt.Sprintf("%.80q", subscription),
			Remedy: "use a newer holdfast"}
	case len(value) == 0 || value[0] == 0 || json.Unmarshal(value[1:], &k) != nil:
		return o, &holdfast.Error{Op: "subscription", Class: holdfast.ErrCorrupt,
			Detail: fmt.Sprintf("the options of %.80q cannot be read", subscription), Remedy: "set them again"}
	}

	return k.options(), nil
}

// Subscription returns the subscription of that name with the options that SetSubscription has set. It stays open as
// long as ctx lives and Hold asks for, unless its options are changed, or it or the namespace is deleted: then it
// returns ErrClosed. ErrNotFound: it has no options.
func (d *Data) Subscription(ctx context.Context, namespace, subscription string) (*Subscription, error) {
	return d.subscriptions.get(ctx, place(namespace, subscription), func() (*Subscription, error) {
		if err := d.Check(ctx, namespace); err != nil {
			return nil, err
		}
		o, err := d.SubscriptionOptions(namespace, subscription)
		if err != nil {
			return nil, err
		}

		return d.subscribe(ctx, namespace, subscription, o)
	})
}

func (d *Data) subscribe(ctx context.Context, namespace, subscription string, o message.SubscriptionOptions) (
	*Subscription, error) {
	n, err := d.messages.Namespace(ctx, namespace)
	if err != nil {
		return nil, err
	}
	s, err := n.Subscribe(ctx, subscription, o)
	if err != nil {
		return nil, err
	}
	if o.Lease == 0 {
		o.Lease = 30 * time.Second // as Subscribe does
	}

	return &Subscription{Subscription: s, lease: o.Lease}, nil
}

// SetSubscription sets the options of a subscription, but for its Backoff, and makes the subscription if it is not
// there. If they are others than before, messages that consumers have are delivered again.
func (d *Data) SetSubscription(
	ctx context.Context,
	namespace, subscription string,
	o message.SubscriptionOptions,
) error {
	if err := d.Check(ctx, namespace); err != nil {
		return err
	}
	value, err := json.Marshal(keep(o))
	if err != nil {
		return err
	}
	value = append([]byte{optionsVersion}, value...)
	key := []byte(optionsPrefix + place(namespace, subscription))
	was, err := d.engine.Get(nil, key)
	if err == nil && string(was) == string(value) {
		return nil
	}
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) && !errors.Is(err, holdfast.ErrBadKey) {
		return err
	}

	return d.subscriptions.remove(ctx, place(namespace, subscription), func() error {
		if err := d.Check(ctx, namespace); err != nil {
			return err
		}
		s, err := d.subscribe(ctx, namespace, subscription, o) // which checks them
		if err != nil {
			return err
		}
		var b holdfast.Batch
		b.Set(key, value)

		return errors.Join(s.Close(), holdfast.Commit(d.engine, &b, d.Level()))
	})
}

// DeleteSubscription removes a subscription with its parked messages. Those who use it get ErrClosed. ErrNotFound: it
// is not there.
func (d *Data) DeleteSubscription(ctx context.Context, namespace, subscription string) error {
	if err := d.Check(ctx, namespace); err != nil {
		return err
	}
	n, err := d.messages.Namespace(ctx, namespace)
	if err != nil {
		return err
	}

	return d.subscriptions.remove(ctx, place(namespace, subscription), func() error {
		if _, err := n.Subscription(ctx, subscription); err != nil {
			return err
		}
		// The options go first: without them nothing makes the subscription again.
		var b holdfast.Batch
		b.Delete([]byte(optionsPrefix + place(namespace, subscription)))
		if err := holdfast.Commit(d.engine, &b, d.Level()); err != nil {
			return err
		}

		return n.DeleteSubscription(ctx, subscription)
	})
}

// forget removes the options of all subscriptions of a namespace, after those that are open were closed.
func (d *Data) forget(ctx context.Context, namespace string) error {
	for _, name := range d.subscriptions.names() {
		if len(name) > len(namespace) && name[:len(namespace)+1] == namespace+"/" {
			if err := d.subscriptions.remove(ctx, name, func() error { return nil }); err != nil {
				return err
			}
		}
	}
	all := holdfast.Prefix([]byte(optionsPrefix + namespace + "/"))
	it := d.engine.Scan(all)
	some := it.Next()
	if err := it.Close(); err != nil || !some {
		return err
	}
	var b holdfast.Batch
	b.DeleteRange(all.Lo, all.Hi)

	return holdfast.Commit(d.engine, &b, d.Level())
}
