package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/scratch"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/task"
)

// inspection is what inspect shows.
type inspection struct {
	*all.InspectResult
	Stores *foundStores `json:"stores,omitempty"` // absent if they cannot be opened; Notes say why
}

// foundStores are the stores in a directory. Those of a server's namespace have its id in front of their names, but for
// the default one.
type foundStores struct {
	Databases []foundDatabase `json:"databases"`

	Logs     []api.Log       `json:"logs"`
	Messages []foundMessages `json:"messages"`
	Tasks    []foundTasks    `json:"tasks"`
	Raft     []foundRaft     `json:"raft"`
}

// foundDatabase is a database of package kv and its buckets, without those in them.
type foundDatabase struct {
	Database string   `json:"database"`
	Buckets  []string `json:"buckets"` // as the commands take them
}

type foundMessages struct {
	Store      string           `json:"store"`
	Namespaces []foundNamespace `json:"namespaces"`
}

type foundNamespace struct {
	api.Namespace
	Categories    int                `json:"categories"`
	Subscriptions []api.Subscription `json:"subscriptions,omitempty"`
}

type foundTasks struct {
	Store  string      `json:"store"`
	Queues []api.Queue `json:"queues"`
}

type foundRaft struct {
	Store string `json:"store"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// inspectStores adds the stores. They are opened on a directory that is opened for reading only: nothing is changed,
// and tasks and leases are shown as a program finds them that opens it now.
func (in *inspection) inspectStores(ctx context.Context) {
	note := func(format string, args ...any) { in.Notes = append(in.Notes, fmt.Sprintf(format, args...)) }
	switch {
	case in.Capabilities == nil:
		return
	case in.Open:
		note("it is open elsewhere: only that program can show what is in its stores")
		return
	case !in.Capabilities.ReadOnly:
		note("%s cannot be opened read-only: the commands event, message and task show what is in its stores",
			in.Engine)
		return
	}
	base, err := all.OpenDir("", in.Dir, holdfast.Options{ReadOnly: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		note("what is in its stores cannot be told: %v", err)
		return
	}
	defer base.Close() // for reading only

	e := scratch.New(base)
	defer e.Close()
	in.Stores = &foundStores{
		Databases: []foundDatabase{},
		Logs:      []api.Log{},
		Messages:  []foundMessages{},
		Tasks:     []foundTasks{},
		Raft:      []foundRaft{},
	}
	f := in.Stores
	for _, find := range []func(context.Context, holdfast.Engine) error{f.databases, f.logs, f.messages, f.tasks, f.raft} {
		if err := find(ctx, e); err != nil {
			note("what is in its stores cannot be told in full: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
}

func (f *foundStores) databases(ctx context.Context, e holdfast.Engine) error {
	names, err := kv.Databases(e)
	errs := []error{err}

	for _, name := range names {
		db, err := kv.Open(e, kv.Options{Name: name, Level: holdfast.Memory})
		if err == nil {
			err = db.View(ctx, func(tx *kv.Tx) error {
				f.Databases = append(
					f.Databases,
					foundDatabase{name, append([]string{}, shownPath(slices.Collect(tx.Buckets()))...)},
				)
				return nil
			})
		}
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

func (f *foundStores) logs(ctx context.Context, e holdfast.Engine) error {
	logs, err := event.Logs(ctx, e)
	errs := []error{err}

	for _, l := range logs {
		if l.Owner != "" {
			continue
		}
		found := api.Log{Name: l.Name, First: l.First, Last: l.Last}
		s, err := event.Open(kv.On(e), event.Options{Name: l.Name, Level: holdfast.Memory})
		if err == nil {
			var subscriptions, snapshots []event.Cursor
			subscriptions, err = s.Subscriptions(ctx)
			snapshots, err2 := s.Snapshots(ctx)
			found.Subscriptions, found.Snapshots = api.FromCursors(subscriptions), api.FromCursors(snapshots)
			err = errors.Join(err, err2, s.Close())
		}
		f.Logs, errs = append(f.Logs, found), append(errs, err)
	}

	return errors.Join(errs...)
}

func (f *foundStores) messages(ctx context.Context, e holdfast.Engine) error {
	names, err := message.Stores(e)
	errs := []error{err}

	for _, name := range names {
		s, err := message.Open(kv.On(e), message.Options{Name: name, Level: holdfast.Memory, RetainEvery: -1,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found := foundMessages{Store: name, Namespaces: []foundNamespace{}}
		list, err := s.Namespaces(ctx, "", 0)
		errs = append(errs, err)

		for _, info := range list {
			n, err := describeNamespace(ctx, s, info)
			found.Namespaces, errs = append(found.Namespaces, n), append(errs, err)
		}
		f.Messages, errs = append(f.Messages, found), append(errs, s.Close())
	}

	return errors.Join(errs...)
}

func describeNamespace(ctx context.Context, s *message.Store, i message.Info) (f foundNamespace, err error) {
	f.Namespace = api.Namespace{ID: i.ID, Description: i.Description, Metadata: i.Metadata, Created: i.Created}
	n, err := s.Namespace(ctx, i.ID)
	if err != nil {
		return f, err
	}
	counts, err := n.Count(ctx, "")
	categories, err2 := n.Categories(ctx)
	subs, err3 := n.Subscriptions(ctx, "", 0)

	f.Messages, f.Streams, f.Last, f.Categories = counts.Messages, counts.Streams, n.Last(), len(categories)
	for _, sub := range subs {
		f.Subscriptions = append(f.Subscriptions, api.Subscription{Name: sub.Name, Done: sub.Done, Behind: sub.Behind,
			Pending: sub.Pending, Parked: sub.Parked})
	}

	return f, errors.Join(err, err2, err3)
}

func (f *foundStores) tasks(ctx context.Context, e holdfast.Engine) error {
	names, err := task.Stores(e)
	errs := []error{err}

	for _, name := range names {
		s, err := task.Open(kv.On(e), task.Options{Name: name, Level: holdfast.Memory, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			errs = append(errs, err)
			continue
		}

		found := foundTasks{Store: name, Queues: []api.Queue{}}
		queues, err := s.Queues(ctx)
		for _, q := range queues {
			found.Queues = append(found.Queues, api.FromQueue(q))
		}
		f.Tasks, errs = append(f.Tasks, found), append(errs, err, s.Close())
	}

	return errors.Join(errs...)
}

func (f *foundStores) raft(_ context.Context, e holdfast.Engine) error {
	names, err := raftlog.Stores(e)
	errs := []error{err}

	for _, name := range names {
		s, err := raftlog.Open(e, raftlog.Options{Name: name, Level: holdfast.Memory})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		first, err := s.FirstIndex()
		last, err2 := s.LastIndex()
		f.Raft, errs = append(f.Raft, foundRaft{Store: name, First: first, Last: last}), append(errs, err, err2, s.Close())
	}

	return errors.Join(errs...)
}

// print shows the stores.
func (f *foundStores) print(p *page) {
	if len(f.Databases) > 0 {
		p.line("\ndatabase\tbuckets; holdfast kv list counts their keys")
	}

	for _, d := range f.Databases {
		shown := d.Buckets[:min(len(d.Buckets), 20)]
		line := cmp.Or(strings.Join(shown, ", "), "-")
		if more := len(d.Buckets) - len(shown); more > 0 {
			line += fmt.Sprintf(" and %d more", more)
		}
		p.line("%s\t%s", named(d.Database), line)
	}
	if len(f.Logs) > 0 {
		p.line("\nlog\tfirst\tlast\tsubscription\tat\tbehind")
	}

	for _, l := range f.Logs {
		p.line("%s\t%d\t%d\t-\t-\t-", named(l.Name), l.First, l.Last)

		for _, s := range l.Subscriptions {
			p.line("\t\t\t%s\t%d\t%d", named(s.Name), s.Position, s.Lag)
		}

		for _, s := range l.Snapshots {
			p.line("\t\t\tsnapshot %s\t%d\t%d", named(s.Name), s.Position, s.Lag)
		}
	}
	if len(f.Messages) > 0 {
		p.line("\nnamespace\tstreams\tmessages\tlast\tsubscription\tbehind\tin hand\tparked")
	}

	for _, m := range f.Messages {
		for _, n := range m.Namespaces {
			name := n.ID
			if m.Store != "" {
				name += " of store " + named(m.Store)
			}
			p.line("%s\t%d\t%d\t%d\t-\t-\t-\t-", name, n.Streams, n.Messages, n.Last)

			for _, s := range n.Subscriptions {
				p.line("\t\t\t\t%s\t%d\t%d\t%d", named(s.Name), s.Behind, s.Pending, s.Parked)
			}
		}
	}
	if len(f.Tasks) > 0 {
		var states []string
		for _, s := range task.States() {
			states = append(states, s.String())
		}
		p.line("\nqueue\t%s\tpaused\ttask store", strings.Join(states, "\t"))
	}

	for _, t := range f.Tasks {
		for _, q := range t.Queues {
			p.line("%s\t%s", strings.Join(queueRow(q), "\t"), cmp.Or(t.Store, "-"))
		}
	}
	if len(f.Raft) > 0 {
		p.line("\nraft store\tfirst\tlast")
	}

	for _, r := range f.Raft {
		p.line("%s\t%d\t%d", named(r.Store), r.First, r.Last)
	}
}

// named writes a name so that it is seen, and stays in its cell.
func named(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\ufffd' }) {
		return fmt.Sprintf("%q", name)
	}

	return name
}
