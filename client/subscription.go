package client

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/message"
)

// Subscription delivers each message of a query to one of the consumers that call Claim, in order, and again until one
// has acknowledged it: at least once. Consumers of many clients share it.
type Subscription struct {
	c          *Client
	name, path string
}

// Name is what the subscription is called.
func (s *Subscription) Name() string { return s.name }

// Info tells how it is doing.
func (s *Subscription) Info(ctx context.Context) (i api.Subscription, err error) {
	err = s.c.call(ctx, &request{op: "subscription", method: "GET", path: s.path, safe: true}, &i)
	return i, err
}

// maxWait is how long a claim lets the server wait before it asks again.
const maxWait = 30 * time.Second

// waitFor is how long the server is to wait at most, for a context.
func waitFor(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(min(maxWait, time.Until(end)), time.Millisecond)
	}

	return maxWait
}

// again reports whether a claim that got nothing is to ask again: not if ctx has ended. A server that is stopping
// answers at once, and is not asked again at once.
func (c *Client) again(ctx context.Context, pause *pauses, asked time.Time, wait time.Duration) bool {
	if time.Since(asked) < wait/2 {
		return sleep(ctx, pause.next(0))
	}
	pause.reset()

	return ctx.Err() == nil
}

// Claim waits until there is a message to be delivered, and delivers up to most of them. They are the caller's until
// their leases end. It waits for a server that cannot be reached, too. Deliveries whose answer is lost come again when
// their leases have run out. Those of an answer that is larger than [Options].MaxResponse, or cannot be read, are given
// back, and there is an error.
func (s *Subscription) Claim(ctx context.Context, most int) ([]message.Delivery, error) {
	pause := s.c.pause()
	for {
		asked, wait := time.Now(), waitFor(ctx)
		r := &request{op: "subscription claim", method: "POST", path: s.path + "/claim", wait: wait, safe: true, always: true,
			body: api.ClaimMessages{Max: max(most, 1), WaitMS: api.MS(wait)}}
		r.refused = func(answer io.Reader) {
			refs := deliveriesIn(answer)
			s.c.returns(ctx, r.op, s.path+"/return", api.Settle{Deliveries: refs}, len(refs))
		}
		var got api.Deliveries
		if err := s.c.call(ctx, r, &got); err != nil {
			return nil, err
		}
		if len(got.Deliveries) == 0 {
			if !s.c.again(ctx, pause, asked, wait) {
				return nil, s.c.ended(ctx, r, nil)
			}
			continue
		}

		list := make([]message.Delivery, len(got.Deliveries))
		for i := range got.Deliveries {
			d := &got.Deliveries[i]
			list[i] = message.Delivery{Message: d.Message.Store(), Attempt: d.Attempt, Token: d.Token}
		}

		return list, nil
	}
}

// Ack says that messages are done with. message.ErrLeaseLost: a lease has run out. With [Error].Unknown a try whose
// answer was lost may have acknowledged them; if not, they come again.
func (s *Subscription) Ack(ctx context.Context, deliveries ...message.Delivery) error {
	return s.settle(ctx, "ack", "", deliveries)
}

// Extend extends the leases of deliveries by their length, from now on.
func (s *Subscription) Extend(ctx context.Context, deliveries ...message.Delivery) error {
	return s.settle(ctx, "extend", "", deliveries)
}

// Fail gives messages back: they come again after a while, or are parked if their attempts are used up.
// What is said of Ack about answers that were lost holds here, too.
func (s *Subscription) Fail(ctx context.Context, reason string, deliveries ...message.Delivery) error {
	return s.settle(ctx, "fail", reason, deliveries)
}

// Return gives back messages that no consumer has seen: they come again at once, and the attempt does not count.
// What is said of Ack about answers that were lost holds here, too.
func (s *Subscription) Return(ctx context.Context, deliveries ...message.Delivery) error {
	return s.settle(ctx, "return", "", deliveries)
}

// Park puts messages aside: they are not delivered any more. What is said of Ack about
// answers that were lost holds here, too.
func (s *Subscription) Park(ctx context.Context, reason string, deliveries ...message.Delivery) error {
	return s.settle(ctx, "park", reason, deliveries)
}

// settle is safe to try again: a delivery is settled once, and then its lease is lost.
func (s *Subscription) settle(ctx context.Context, what, reason string, deliveries []message.Delivery) error {
	body := api.Settle{Deliveries: make([]api.DeliveryRef, len(deliveries)), Reason: reason}
	for i, d := range deliveries {
		body.Deliveries[i] = api.DeliveryRef{Global: d.Global, Token: d.Token}
	}

	return s.c.call(ctx, &request{op: "subscription " + what, method: "POST", path: s.path + "/" + what, body: body,
		safe: true}, nil)
}

// Parked lists up to limit messages that are not delivered any more, behind a global position; 0 means all.
func (s *Subscription) Parked(ctx context.Context, after int64, limit int) (list []message.Parked, err error) {
	r := &request{op: "subscription parked", method: "GET", path: s.path + "/parked", safe: true}
	err = pages(ctx, s.c, r, strconv.FormatInt(after, 10), limit, func(p *api.ParkedMessage) (after string) {
		list = append(list, message.Parked{Message: p.Message.Store(), Attempts: p.Attempts, Reason: p.Reason, At: p.At})
		return strconv.FormatInt(p.Global, 10)
	})

	return list, err
}

// Replay delivers parked messages again, and returns how many of them were there, without those that a try has replayed
// whose answer was lost.
func (s *Subscription) Replay(ctx context.Context, globals ...int64) (replayed int, err error) {
	return s.unpark(ctx, "replay", globals)
}

// Discard gives parked messages up, and returns how many of them were there, counted as Replay does.
func (s *Subscription) Discard(ctx context.Context, globals ...int64) (discarded int, err error) {
	return s.unpark(ctx, "discard", globals)
}

// unpark takes messages out of those that are parked. It is safe to try again: the second try finds none.
func (s *Subscription) unpark(ctx context.Context, what string, globals []int64) (int, error) {
	var n api.Counted
	err := s.c.call(ctx, &request{op: "subscription " + what, method: "POST", path: s.path + "/" + what,
		body: api.Globals{Globals: globals}, safe: true}, &n)

	return n.Count, err
}
