// Package data is what a server keeps in one engine: namespaces, and in each of them messages, logs of events, and
// tasks.
package data

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// Options are how data is opened.
type Options struct {
	Level  holdfast.Level // 0 means Power
	Logger *slog.Logger   // nil means slog.Default
}

// Data is the open data. All methods may be called from many goroutines at once.
type Data struct {
	engine   holdfast.Engine
	o        Options
	messages *message.Store

	mu    sync.Mutex
	logs  map[string]*event.Store
	tasks map[string]*task.Store
}

// Open opens what is kept in an engine. The engine stays the caller's.
func Open(engine holdfast.Engine, o Options) (*Data, error) {
	messages, err := message.Open(engine, message.Options{Level: o.Level, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Data{engine: engine, o: o, messages: messages,
		logs: map[string]*event.Store{}, tasks: map[string]*task.Store{}}, nil
}

// Engine is where all of it is.
func (d *Data) Engine() holdfast.Engine { return d.engine }

// Messages is the store of messages, whose namespaces are those of the server.
func (d *Data) Messages() *message.Store { return d.messages }

// Level is that of writes which name none.
func (d *Data) Level() holdfast.Level { return d.messages.Level() }

// name is what a log or a task store of a namespace is called in the engine: those of the default namespace have the
// names that a program gives them which has the engine for itself.
func name(namespace, of string) string {
	if namespace == message.Default {
		return of
	}
	return strings.TrimSuffix(namespace+"/"+of, "/")
}

// Log returns a log of a namespace, and makes it if it is not there.
func (d *Data) Log(ctx context.Context, namespace, log string) (*event.Store, error) {
	return opened(ctx, d, d.logs, namespace, name(namespace, log), func(n string) (*event.Store, error) {
		return event.Open(d.engine, event.Options{Name: n, Level: d.o.Level, Logger: d.o.Logger})
	})
}

// Tasks returns the tasks of a namespace.
func (d *Data) Tasks(ctx context.Context, namespace string) (*task.Store, error) {
	return opened(ctx, d, d.tasks, namespace, name(namespace, ""), func(n string) (*task.Store, error) {
		return task.Open(d.engine, task.Options{Name: n, Level: d.o.Level, Logger: d.o.Logger})
	})
}

// opened returns a store that is open, or opens it, if its namespace is there.
func opened[S any](ctx context.Context, d *Data, open map[string]S, namespace, name string,
	f func(string) (S, error)) (S, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := open[name]; ok {
		return s, nil
	}
	var none S
	if _, err := d.messages.Info(ctx, namespace); err != nil {
		return none, err
	}
	s, err := f(name)
	if err != nil {
		return none, err
	}
	open[name] = s
	return s, nil
}

// Close closes all stores. The engine stays open.
func (d *Data) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, s := range d.logs {
		errs = append(errs, s.Close())
	}
	for _, s := range d.tasks {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, d.messages.Close())...)
}
