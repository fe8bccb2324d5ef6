package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/server/metrics"
)

type followCommand struct {
	URL      string `arg:"" name:"url" help:"Bucket: s3://BUCKET/PREFIX?region=REGION or file:///DIRECTORY." placeholder:"URL"`
	Into     string `required:"" help:"Directory of the copy: new, or one that follows the bucket already." placeholder:"DIR"`
	Identity string `help:"File with the key, as age-keygen makes it, if the backup is encrypted." placeholder:"FILE"`
	Listen   string `help:"Address at which /metrics says how far the copy is." placeholder:"HOST:PORT"`
	Promote  bool   `help:"Add all that is in the bucket, promote the copy, and end."`
}

// Help implements kong's interface for what follows the flags.
func (followCommand) Help() string {
	return `The copy is kept up to date until the command is interrupted, and goes on where it was when the command is ` +
		`started again. Meanwhile it can be opened for reading, as by query and message cat, which show the state of ` +
		`that moment; while it is open it is not changed. Nothing can write to it before it is promoted.`
}

type promoteCommand struct {
	Dir string `arg:"" help:"Directory that holdfast follow has made, which does not run any more."`
}

func (c *followCommand) run() int {
	identities, err := identitiesOf("follow", c.Identity)
	if err != nil {
		return failTool(err)
	}
	_, err = inBucket(c.URL, func(ctx context.Context, bucket *blob.Bucket) (any, error) {
		return nil, c.follow(ctx, bucket, backup.FollowOptions{Identities: identities,
			Source: passwords.ReplaceAllString(c.URL, "://"), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	})

	return failTool(err)
}

// followLogEvery is how often a follower says how far it is.
const followLogEvery = time.Minute

func (c *followCommand) follow(ctx context.Context, bucket *blob.Bucket, o backup.FollowOptions) (err error) {
	f, err := backup.Follow(bucket, c.Into, o)
	if err != nil {
		return err
	}
	closed := false
	end := func() error {
		if closed {
			return nil
		}
		closed = true

		return f.Close()
	}
	defer func() { err = errors.Join(err, end()) }()
	stop, err := c.serve(f, o.Logger)
	if err != nil {
		return err
	}
	defer stop()

	say, look := time.NewTicker(followLogEvery), time.NewTicker(50*time.Millisecond)
	defer say.Stop()
	defer look.Stop()
	first := false
	for {
		s := f.Status()
		if !first && !s.Checked.IsZero() {
			first = true
			o.Logger.Info("following", "into", c.Into, "generation", s.Generation, "state", s.Time.Format(time.RFC3339Nano))
		}
		if c.Promote && !s.Checked.IsZero() {
			if err := end(); err != nil {
				return err
			}
			warnBaseless(s.Baseless)

			return promoted(c.Into)
		}
		if err := c.hopeless(s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if c.Promote {
				return ctx.Err()
			}

			return nil
		case <-say.C:
			o.Logger.Info("following", "lag", s.Lag().Round(time.Second).String(), "generation", s.Generation,
				"state", s.Time.Format(time.RFC3339Nano), "objects", s.Objects, "bytes", s.Bytes)
		case <-look.C:
		}
	}
}

// hopeless returns why a copy that is to be promoted is not brought up to date by waiting. A source that is lost mends
// nothing in the bucket any more.
func (c *followCommand) hopeless(s backup.FollowStatus) error {
	for _, class := range []error{holdfast.ErrForeign, holdfast.ErrNotFound, holdfast.ErrCorrupt} {
		if !c.Promote || !errors.Is(s.Err, class) {
			continue
		}
		if s.Time.IsZero() { // there is no copy yet
			return s.Err
		}

		return &holdfast.Error{Op: "follow --promote", Path: c.Into, Cause: s.Err,
			Remedy: "holdfast promote takes the copy over as it is, with the state of " + s.Time.UTC().Format(time.RFC3339Nano)}
	}

	return nil
}

// serve serves metrics, if that was asked for, until stop is called.
func (c *followCommand) serve(f *backup.Follower, logger *slog.Logger) (stop func(), err error) {
	if c.Listen == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, &holdfast.Error{Op: "follow: --listen", Class: holdfast.ErrBadOption, Cause: err,
			Remedy: "write it as 127.0.0.1:9100"}
	}
	r := prometheus.NewRegistry()
	r.MustRegister(metrics.Follower(func() metrics.Followed {
		s := f.Status()
		return metrics.Followed{Lag: s.Lag(), State: s.Time, Err: s.Err, Bases: s.Bases, Objects: s.Objects, Bytes: s.Bytes}
	}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	go func() { _ = server.Serve(listener) }()
	logger.Info("serving metrics", "address", listener.Addr().String())

	return func() { _ = server.Close() }, nil
}

func (c *promoteCommand) run() int { return failTool(promoted(c.Dir)) }

// promoted promotes a directory, and says so.
func promoted(dir string) error {
	at, err := backup.Promote(dir)
	if err != nil {
		return err
	}
	p := newPage(os.Stdout)
	p.line("promoted\t%s", dir)
	p.line("state of\t%s", at.UTC().Format(time.RFC3339Nano))

	return p.end()
}
