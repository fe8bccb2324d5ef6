package v1

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

// inSubscription names a subscription, as the path does.
type inSubscription struct {
	Name string `path:"name" is:"subscription" doc:"The subscription."`
}

// with calls f with the subscription. If that is closed meanwhile, because its options were changed, f is called again.
func (in *inSubscription) with(c *call, f func(s *data.Subscription) error) error {
	for {
		s, err := c.data.Subscription(c.ctx, c.ns, in.Name)
		if err != nil {
			return err
		}
		err = f(s)
		if !errors.Is(err, holdfast.ErrClosed) {
			return err
		}

		// It is tried again only with another subscription of that name: the same one closed means that the server stops.
		if again, err := c.data.Subscription(c.ctx, c.ns, in.Name); err != nil || again == s {
			return cmp.Or(err, holdfast.ErrClosed)
		}
	}
}

// deliveries are those that references name.
func deliveries(refs []api.DeliveryRef) []message.Delivery {
	list := make([]message.Delivery, len(refs))
	for i, r := range refs {
		list[i] = message.Delivery{Message: message.Message{Global: r.Global}, Token: r.Token}
	}

	return list
}

// subscription describes a subscription.
func (c *call) subscription(state message.SubscriptionState) (out api.Subscription, err error) {
	o, err := c.data.SubscriptionOptions(c.ns, state.Name)
	embedded := errors.Is(err, holdfast.ErrNotFound)
	if embedded {
		err = nil
	}

	return api.Subscription{Name: state.Name, Category: o.Query.Category, Types: o.Query.Types, Prefix: o.Query.Prefix,
		From: o.Query.From, LeaseMS: api.MS(o.Lease), MaxAttempts: o.MaxAttempts, Window: o.Window, Done: state.Done,
		Embedded: embedded, Behind: state.Behind, Pending: state.Pending, Parked: state.Parked}, err
}

// subscriptions declares what is done with subscriptions.
func (s *service) subscriptions() {
	const tag = "subscriptions"
	missing := []string{api.CodeNotFound}
	declare(s, operation{id: "list-subscriptions", method: http.MethodGet, path: inNamespace + "/subscriptions",
		role: auth.Read, tag: tag, summary: "List subscriptions and how they are doing"},
		on((*call).namespace, func(c *call, n *message.Namespace, _ *none) ([]api.Subscription, error) {
			list, err := n.Subscriptions(c.ctx, "", 0)
			if err != nil {
				return nil, err
			}

			out := make([]api.Subscription, len(list))
			for i, state := range list {
				if out[i], err = c.subscription(state); err != nil {
					return nil, err
				}
			}

			return out, nil
		}))
	get := func(c *call, name string) (out api.Subscription, err error) {
		n, err := c.namespace()
		if err != nil {
			return out, err
		}
		state, err := n.Subscription(c.ctx, name)
		if err != nil {
			return out, err
		}

		return c.subscription(state)
	}
	declare(s, operation{id: "get-subscription", method: http.MethodGet, path: inNamespace + "/subscriptions/{name}",
		role: auth.Read, tag: tag, summary: "How a subscription is doing", codes: missing},
		func(c *call, in *inSubscription) (api.Subscription, error) { return get(c, in.Name) })
	declare(s, operation{id: "set-subscription", method: http.MethodPut, path: inNamespace + "/subscriptions/{name}",
		role: auth.Write, tag: tag, write: true,
		summary: "Set what a subscription delivers and how; it is made if it is not there",
		about: "Setting the same again changes nothing. Messages that consumers have stay theirs until their leases end. " +
			"From is where a new subscription begins; it does not move one that is there. The name in the body is ignored.",
		codes: []string{api.CodeAhead}},
		func(c *call, in *struct {
			inSubscription
			Body api.Subscription
		}) (out api.Subscription, err error) {
			b := &in.Body
			err = c.data.SetSubscription(c.ctx, c.ns, in.Name, message.SubscriptionOptions{
				Query: message.Query{Category: b.Category, Types: b.Types, Prefix: b.Prefix, From: b.From},
				Lease: api.Duration(b.LeaseMS), MaxAttempts: b.MaxAttempts, Window: b.Window})
			if err != nil {
				return out, err
			}

			return get(c, in.Name)
		})
	declare(s, operation{id: "delete-subscription", method: http.MethodDelete,
		path: inNamespace + "/subscriptions/{name}", role: auth.Write, tag: tag, write: true, codes: missing,
		summary: "Delete a subscription and its parked messages"},
		func(c *call, in *inSubscription) (none, error) {
			return none{}, c.data.DeleteSubscription(c.ctx, c.ns, in.Name)
		})
	declare(s, operation{id: "claim-messages", method: http.MethodPost,
		path: inNamespace + "/subscriptions/{name}/claim", role: auth.Write, tag: tag, stream: true, codes: missing,
		summary: "Claim messages of a subscription, and wait for the first",
		about: "Each message goes to one of those who claim, and again until one has acknowledged it. There are none in " +
			"the answer if none came in time, or the server stops. " +
			mostBytes("data and metadata", "message", message.ClaimBytes) + " Claim again for more."},
		func(c *call, in *struct {
			inSubscription
			Body api.ClaimMessages
		}) (out api.Deliveries, err error) {
			out.Deliveries = []api.Delivery{}
			err = in.with(c, func(sub *data.Subscription) error {
				claimed, err := waitFor(c, max(in.Body.WaitMS, leastWait), func(ctx context.Context) ([]message.Delivery, error) {
					return sub.Claim(ctx, min(max(in.Body.Max, 1), maxClaim))
				})
				if len(claimed) == 0 || err != nil {
					return err
				}

				sub.Hold()

				for i := range claimed {
					d := &claimed[i]
					out.Deliveries = append(out.Deliveries, api.Delivery{Message: api.FromMessage(&d.Message), Attempt: d.Attempt,
						Token: d.Token})
				}
				c.unless = func(ctx context.Context) error { return sub.Return(ctx, claimed...) }

				return nil
			})

			return out, err
		})
	s.settling()
	s.parked()
}

// settling declares what consumers do with what was delivered to them.
func (s *service) settling() {
	for _, do := range []struct {
		what, summary, about string
		f                    func(s *data.Subscription, ctx context.Context, in *api.Settle) error
	}{
		{"ack", "Acknowledge messages: they are not delivered again", "",
			func(s *data.Subscription, ctx context.Context, in *api.Settle) error {
				return s.Ack(ctx, deliveries(in.Deliveries)...)
			}},
		{"extend", "Begin leases anew", "",
			func(s *data.Subscription, ctx context.Context, in *api.Settle) error {
				s.Hold()
				return s.Extend(ctx, deliveries(in.Deliveries)...)
			}},
		{"fail", "Say that messages could not be handled, and why",
			"They are delivered again after a while, or parked if that was the last attempt. ",
			func(s *data.Subscription, ctx context.Context, in *api.Settle) error {
				return s.Fail(ctx, in.Reason, deliveries(in.Deliveries)...)
			}},
		{"return", "Give back messages that no consumer has seen",
			"They are delivered again at once, and the attempt does not count. ",
			func(s *data.Subscription, ctx context.Context, in *api.Settle) error {
				return s.Return(ctx, deliveries(in.Deliveries)...)
			}},
		{"park", "Park messages: they are not delivered any more", "",
			func(s *data.Subscription, ctx context.Context, in *api.Settle) error {
				return s.Park(ctx, in.Reason, deliveries(in.Deliveries)...)
			}},
	} {
		declare(s, operation{id: do.what + "-messages", method: http.MethodPost,
			path: inNamespace + "/subscriptions/{name}/" + do.what, role: auth.Write, tag: "subscriptions", write: true,
			summary: do.summary, codes: []string{api.CodeNotFound, api.CodeLeaseLost},
			about: do.about + "If some deliveries are lost, that is the error, and it is done with the others."},
			func(c *call, in *struct {
				inSubscription
				Body api.Settle
			}) (none, error) {
				return none{}, in.with(c, func(s *data.Subscription) error { return do.f(s, c.ctx, &in.Body) })
			})
	}
}

// parked declares what is done with parked messages.
func (s *service) parked() {
	const tag = "subscriptions"
	missing := []string{api.CodeNotFound}
	declare(s, operation{id: "list-parked", method: http.MethodGet, path: inNamespace + "/subscriptions/{name}/parked",
		role: auth.Read, tag: tag, summary: "List parked messages, in the order of their global positions", codes: missing,
		about: mostBytes("data and metadata", "message", message.ClaimBytes)},
		func(c *call, in *struct {
			inSubscription
			After int64 `query:"after" doc:"The last global position of the page before."`
			Limit int   `query:"limit" is:"natural" doc:"How many messages at most: 1000 if absent, never more than 10000."`
		}) (out []api.ParkedMessage, err error) {
			out = []api.ParkedMessage{}
			limit, err := page(in.Limit)
			if err != nil {
				return nil, err
			}
			err = in.with(c, func(s *data.Subscription) error {
				list, err := s.Parked(c.ctx, in.After, limit)
				for i := range list {
					p := &list[i]
					out = append(out, api.ParkedMessage{Message: api.FromMessage(&p.Message), Attempts: p.Attempts,
						Reason: p.Reason, At: p.At})
				}

				return err
			})

			return out, err
		})

	for _, do := range []struct {
		what, summary string
		f             func(s *data.Subscription, ctx context.Context, globals ...int64) (int, error)
	}{
		{"replay", "Deliver parked messages again, as if for the first time",
			func(s *data.Subscription, ctx context.Context, globals ...int64) (int, error) {
				return s.Replay(ctx, globals...)
			}},
		{"discard", "Forget parked messages",
			func(s *data.Subscription, ctx context.Context, globals ...int64) (int, error) {
				return s.Discard(ctx, globals...)
			}},
	} {
		declare(s, operation{id: do.what + "-parked", method: http.MethodPost,
			path: inNamespace + "/subscriptions/{name}/" + do.what, role: auth.Write, tag: tag, write: true,
			summary: do.summary, codes: missing, about: "Positions at which none is parked are passed over."},
			func(c *call, in *struct {
				inSubscription
				Body api.Globals
			}) (out api.Counted, err error) {
				err = in.with(c, func(s *data.Subscription) error {
					out.Count, err = do.f(s, c.ctx, in.Body.Globals...)
					return err
				})

				return out, err
			})
	}
}
