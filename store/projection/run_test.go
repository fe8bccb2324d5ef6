package projection_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/projection"
)

// Run goes on after an error that passes, without missing or repeating an event, and says so.
func TestRunGoesOn(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		synctest.Test(t, func(t *testing.T) {
			var told bytes.Buffer
			eng := storetest.NewFakeEngine()
			o := projection.Options{Name: "totals", Logger: slog.New(slog.NewTextHandler(&told, nil))}
			add, p, shut := k.open(fatal(t), eng, holdfast.Memory, o)
			add(10)
			full := &holdfast.Error{Op: "write", Class: holdfast.ErrFull}
			eng.Locked(func() { eng.Refuse = full })
			stop, cancel := context.WithCancel(ctx)
			ended := storetest.Async(func() error { return p.Run(stop) })
			time.Sleep(5 * time.Second)
			synctest.Wait()
			check(t, eng, p, 0)
			if n := strings.Count(told.String(), "no room on the device"); n != 6 {
				t.Fatalf("%d warnings in five seconds:\n%s", n, told.String())
			}
			eng.Locked(func() { eng.Refuse = nil })
			time.Sleep(10 * time.Second)
			synctest.Wait()
			check(t, eng, p, 10)
			add(7)
			synctest.Wait()
			check(t, eng, p, 17)
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if err := p.CatchUp(stop); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			shut()
		})
	})
}

// A stop is no error, whatever the function is doing with the context, and also by a deadline.
func TestRunStops(t *testing.T) {
	log, err := event.Open(kv.On(storetest.NewFakeEngine()), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, log)
	if _, err := log.Append(ctx, event.Event{Type: "t"}); err != nil {
		t.Fatal(err)
	}
	for i, end := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		func() (context.Context, context.CancelFunc) { return context.WithDeadline(ctx, time.Now()) },
	} {
		stop, cancel := end()
		p, err := projection.New(projection.Events(log), projection.Options{Name: fmt.Sprint(i)},
			func(*kv.Bucket, event.Event) error {
				cancel()
				<-stop.Done()
				return fmt.Errorf("asking another service: %w", stop.Err())
			})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(stop); err != nil {
			t.Fatal(i, err)
		}
		cancel()
	}
}

// A run inside the function of a transaction would wait for that for ever, and says so.
func TestNested(t *testing.T) {
	log, err := event.Open(kv.On(storetest.NewFakeEngine()), event.Options{Level: holdfast.Memory})
	fatal(t)(err)
	defer storetest.Close(t, log)
	_, err = log.Append(ctx, event.Event{})
	fatal(t)(err)
	p, err := projection.New(projection.Events(log), projection.Options{Name: "n"},
		func(*kv.Bucket, event.Event) error { return nil })
	fatal(t)(err)
	wantError(t, log.DB().Update(ctx, func(*kv.Tx) error { return p.Run(ctx) }), kv.ErrNested)
}

// The function's errors end a run, unless Retry says otherwise.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := event.Open(kv.On(storetest.NewFakeEngine()), event.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		defer storetest.Close(t, log)
		if _, err := log.Append(ctx, event.Event{Type: "a"}, event.Event{Type: "b"}); err != nil {
			t.Fatal(err)
		}
		busy, calls := errors.New("the mail server is busy"), 0
		apply := func(view *kv.Bucket, e event.Event) error {
			if calls++; calls < 5 {
				return busy
			}
			return projection.Set(view, e.Type, calls)
		}
		p, err := projection.New(projection.Events(log), projection.Options{Name: "gives up"}, apply)
		if err != nil {
			t.Fatal(err)
		}
		err = p.Run(ctx)
		wantError(t, err, projection.ErrApply)
		wantError(t, err, busy)
		if calls != 1 {
			t.Fatal(calls)
		}
		p, err = projection.New(projection.Events(log), projection.Options{Name: "goes on",
			Logger: slog.New(slog.DiscardHandler),
			Retry:  func(err error) bool { return errors.Is(err, busy) || projection.Passes(err) }}, apply)
		if err != nil {
			t.Fatal(err)
		}
		stop, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := p.Run(stop); err != nil {
			t.Fatal(err)
		}
		if got := contents[int](t, log.Engine(), p); got["b"] != 6 {
			t.Fatal(got)
		}
	})
}
