package metrics

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// Log is a log of events. The Store is open.
type Log struct {
	Namespace, Name string
	Store           *event.Store
}

// Tasks is a store of tasks. The Store is open.
type Tasks struct {
	Namespace string
	Store     *task.Store
}

// Sources return the stores to report, each time metrics are collected; nil means none. What they return may be
// closed meanwhile.
type Sources struct {
	Logs       func(ctx context.Context) ([]Log, error)
	Namespaces func(ctx context.Context) ([]*message.Namespace, error)
	Tasks      func(ctx context.Context) ([]Tasks, error)

	// MaxSeries bounds the series of each metric; 0 means 500. Further ones are reported as one, with the labels Other:
	// numbers of things are added up, and of lags and ages the greatest counts.
	MaxSeries int
	// Timeout is how long all of it may take; 0 means 5 seconds. What is not told by then is an error of the scrape.
	Timeout time.Duration
}

// Other is the value of all labels of what is beyond [Sources].MaxSeries.
const Other = "_other"

// measure is a metric of stores. The greatest counts of what is told as one, or else their sum.
type measure struct {
	desc     *prometheus.Desc
	labels   int
	greatest bool
}

func measured(name, help string, greatest bool, labels ...string) *measure {
	return &measure{desc(name, help, labels...), len(labels), greatest}
}

var (
	logLast = measured("log_last_position", "The last position of a log that readers see.", true, "namespace", "log")
	logLag  = measured("subscription_lag", "How many positions of a log a subscription has not come past.", true,
		"namespace", "log", "subscription")
	messagesLast = measured("messages_last_position", "The last global position that readers see.", true, "namespace")
	groupLag     = measured("message_subscription_lag",
		"How many global positions come after what a subscription is done with.", true, "namespace", "subscription")
	groupPending = measured("message_subscription_pending",
		"Messages that are delivered or wait to be delivered again.", false, "namespace", "subscription")
	groupParked = measured("message_subscription_parked", "Messages that are not delivered any more.", false, "namespace",
		"subscription")
	tasks = measured("tasks", "Tasks of a queue in a state.", false, "namespace", "queue", "state")
	wait  = measured("queue_wait_seconds", "How long the task has been due that is claimed next; 0 if none is.", true,
		"namespace", "queue")
	paused = measured("queue_paused", "1 while a queue is paused.", false, "namespace", "queue")

	refused = measured("periodic_refused",
		"Ticks of a periodic task whose tasks were refused: see the warnings in the log.", false, "namespace", "periodic")

	measures = []*measure{logLast, logLag, messagesLast, groupLag, groupPending, groupParked, tasks, wait, paused, refused}
)

type storesCollector struct {
	s       Sources
	reading chan struct{} // holds one while a scrape reads, which an engine may keep waiting
}

// Stores returns a collector of how far the subscriptions of logs and messages have come, and of queues of tasks. A
// scrape reads the offsets of all subscriptions, and counts what is pending and parked.
func Stores(s Sources) prometheus.Collector {
	s.MaxSeries, s.Timeout = cmp.Or(s.MaxSeries, 500), cmp.Or(s.Timeout, 5*time.Second)
	return storesCollector{s, make(chan struct{}, 1)}
}

// Describe implements [prometheus.Collector].
func (c storesCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range measures {
		to <- m.desc
	}
}

// Collect implements [prometheus.Collector]. Reads of an engine have no context, and one whose data is on a server
// waits for that: the scrape does not.
func (c storesCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.s.Timeout)
	defer cancel()
	done := make(chan []prometheus.Metric, 1)
	go func() {
		select {
		case c.reading <- struct{}{}:
			defer func() { <-c.reading }()
			done <- c.read(ctx)
		case <-ctx.Done():
		}
	}()

	select {
	case list := <-done:
		for _, m := range list {
			to <- m
		}
	case <-time.After(c.s.Timeout + c.s.Timeout/10): // what obeys the context has ended
		for _, m := range []*measure{logLast, messagesLast, tasks} {
			to <- prometheus.NewInvalidMetric(m.desc, errors.New("the engine does not answer"))
		}
	}
}

// read is a scrape.
func (c storesCollector) read(ctx context.Context) []prometheus.Metric {
	r := report{c: c, told: map[*measure]int{}, others: map[*measure]float64{}}
	r.check(logLast, r.logs(ctx))
	r.check(messagesLast, r.messages(ctx))
	r.check(tasks, r.tasks(ctx))

	for _, m := range measures {
		if value, ok := r.others[m]; ok {
			labels := make([]string, m.labels)
			for i := range labels {
				labels[i] = Other
			}
			r.add(m, value, labels)
		}
	}

	return r.metrics
}

// report is one scrape.
type report struct {
	c       storesCollector
	metrics []prometheus.Metric
	told    map[*measure]int
	others  map[*measure]float64
}

// check makes an error one of the scrape.
func (r *report) check(m *measure, err error) {
	if err != nil {
		r.metrics = append(r.metrics, prometheus.NewInvalidMetric(m.desc, err))
	}
}

func (r *report) add(m *measure, value float64, labels []string) {
	r.metrics = append(r.metrics, prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, labels...))
}

func (r *report) tell(m *measure, value float64, labels ...string) {
	for i, l := range labels {
		if !utf8.ValidString(l) { // as names may be, and labels not
			labels[i] = strconv.QuoteToASCII(l)
		}
	}
	if r.told[m]++; r.told[m] <= r.c.s.MaxSeries {
		r.add(m, value, labels)
	} else if m.greatest {
		r.others[m] = max(r.others[m], value)
	} else {
		r.others[m] += value
	}
}

func (r *report) logs(ctx context.Context) error {
	if r.c.s.Logs == nil {
		return nil
	}
	list, err := r.c.s.Logs(ctx)
	if err != nil {
		return err
	}

	for _, l := range list {
		subscriptions, err := l.Store.Subscriptions(ctx)
		if gone(ctx, err) {
			continue
		}
		if err != nil {
			return err
		}
		r.tell(logLast, float64(l.Store.Last()), l.Namespace, l.Name)

		for _, s := range subscriptions {
			r.tell(logLag, float64(s.Lag), l.Namespace, l.Name, s.Name)
		}
	}

	return nil
}

func (r *report) messages(ctx context.Context) error {
	if r.c.s.Namespaces == nil {
		return nil
	}
	list, err := r.c.s.Namespaces(ctx)
	if err != nil {
		return err
	}

	for _, n := range list {
		subscriptions, err := n.Subscriptions(ctx, "", 0)
		if gone(ctx, err) {
			continue
		}
		if err != nil {
			return err
		}
		r.tell(messagesLast, float64(n.Last()), n.ID())

		for _, s := range subscriptions {
			r.tell(groupLag, float64(s.Behind), n.ID(), s.Name)
			r.tell(groupPending, float64(s.Pending), n.ID(), s.Name)
			r.tell(groupParked, float64(s.Parked), n.ID(), s.Name)
		}
	}

	return nil
}

func (r *report) tasks(ctx context.Context) error {
	if r.c.s.Tasks == nil {
		return nil
	}
	list, err := r.c.s.Tasks(ctx)
	if err != nil {
		return err
	}

	now := time.Now()
	for _, t := range list {
		queues, err := t.Store.Queues(ctx)
		if gone(ctx, err) {
			continue
		}
		if err != nil {
			return err
		}

		for _, q := range queues {
			for _, state := range task.States() {
				r.tell(tasks, float64(q.Counts[state]), t.Namespace, q.Name, state.String())
			}
			due := 0.0
			if !q.Next.IsZero() {
				due = max(now.Sub(q.Next).Seconds(), 0)
			}
			r.tell(wait, due, t.Namespace, q.Name)
			r.tell(paused, truth(q.Paused), t.Namespace, q.Name)
		}
		periodics, err := t.Store.Periodics(ctx)
		if err != nil && !gone(ctx, err) {
			return err
		}

		for _, p := range periodics {
			r.tell(refused, float64(p.Refused), t.Namespace, p.Name)
		}
	}

	return nil
}

// gone reports whether err says that a store was closed or deleted meanwhile.
func gone(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, holdfast.ErrClosed) || errors.Is(err, message.ErrNoNamespace))
}
