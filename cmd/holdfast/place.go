package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/inprocess"
	"github.com/holdfastdb/holdfast/internal/scratch"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
)

// place is where the commands about data find it: a server, or a directory that is opened for as long as the command
// runs. Each command is written for a client; that of a directory has the routes of a server in this process.
type place struct {
	URL   string `name:"url"  help:"Server, as http://HOST:PORT. Default: $$HOLDFAST_URL."                      placeholder:"URL"   group:"Where:"`
	Dir   string `            help:"Work on this directory instead of a server. It must not be open elsewhere." placeholder:"DIR"   group:"Where:"`
	Token string `            help:"Token for the server. Default: $$HOLDFAST_TOKEN."                           placeholder:"TOKEN" group:"Where:"`
	JSON  bool   `name:"json" help:"Write JSON: one document, or one line per message, event or task."`
}

// inPlace is a place, and a namespace there.
type inPlace struct {
	place
	Namespace string `short:"n" help:"Namespace." default:"default" placeholder:"NS" group:"Where:"`
}

// patience is for how long commands try again to reach a server.
const patience = 5 * time.Second

// session is an open place.
type session struct {
	ctx    context.Context
	client *client.Client
	t      console.Terminal
	out    *bufio.Writer // of t
	json   bool
}

// with opens the place, runs do, and returns the exit status.
func (p *place) with(do func(s *session) error) int { return p.run(false, do) }

// reading is with for what only reads: a directory is opened for reading only, if its engine has that.
func (p *place) reading(do func(s *session) error) int { return p.run(true, do) }

func (p *place) run(reads bool, do func(s *session) error) int {
	return inSession(p.JSON, func(s *session) error { return p.open(s, reads, do) })
}

// inSession runs do, and returns the exit status.
func inSession(json bool, do func(s *session) error) int {
	ctx, stop := interruptible()
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	s := &session{ctx: ctx, t: console.Standard(), out: bufio.NewWriter(os.Stdout), json: json}
	s.t.Out = s.out
	err := do(s)
	if flushed := s.out.Flush(); !errors.Is(err, flushed) { // which tells the same error again
		err = errors.Join(err, flushed)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = console.ErrInterrupted
	}

	return failTool(err)
}

func (p *place) open(s *session, reads bool, do func(s *session) error) error {
	address := p.URL
	switch {
	case p.Dir != "" && p.URL != "":
		return placeError("both --url and --dir are given", "give one of them")
	case p.Dir != "":
		return p.openDir(s, reads, do)
	case address == "":
		if address = os.Getenv("HOLDFAST_URL"); address == "" {
			return placeError("there is no server and no directory",
				"name a server with --url or HOLDFAST_URL, or a directory with --dir")
		}
	}
	token := cmp.Or(p.Token, os.Getenv("HOLDFAST_TOKEN"))
	c, err := client.New(address, client.Options{Token: token, Retry: patience, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	s.client = c

	if err = do(s); token == "" && errors.Is(err, client.ErrUnauthorized) {
		return &holdfast.Error{Class: client.ErrUnauthorized, Detail: "the server asks for a token",
			Remedy: "give it by --token or HOLDFAST_TOKEN"}
	}

	return err
}

// noDir is the error of a command that makes no sense on a directory.
func (p *place) noDir(what string) error {
	if p.Dir == "" {
		return nil
	}

	return placeError("nobody else writes to a directory while "+what+" has it open",
		"name a server with --url, or use cat")
}

func placeError(detail, remedy string) error {
	return &holdfast.Error{Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
}

// openDir opens the directory as a server would, and serves it to this process alone. One that is opened for reading
// only has the stores on top of it in memory.
func (p *place) openDir(s *session, reads bool, do func(s *session) error) (err error) {
	logger := warnings()
	engine, closeEngine, err := openEngine(p.Dir, reads, logger)
	if err != nil {
		return serverCan(err, "is reached by --url http://HOST:PORT in place of --dir")
	}
	defer func() { err = errors.Join(err, closeEngine()) }()

	return inside(s.ctx, engine, logger, func(c *client.Client, _ *data.Data) error {
		s.client = c
		return do(s)
	})
}

// inside serves an engine to this process alone, until do returns: to a client that may do everything.
func inside(ctx context.Context, engine holdfast.Engine, logger *slog.Logger,
	do func(c *client.Client, d *data.Data) error) (err error) {
	level := engine.Capabilities().Strongest()
	d, err := data.Open(engine, data.Options{Level: level, Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	admin := auth.Principal{Namespace: auth.Everywhere, Role: auth.Admin}
	served, err := server.New(d, server.Options{Version: readVersion().Version, Logger: logger})
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	for _, rt := range served.Routes() { // without what asks for a token
		mux.HandleFunc(strings.TrimSpace(rt.Method+" "+rt.Pattern), func(w http.ResponseWriter, r *http.Request) {
			known := &route.Request{Principal: admin, Level: level, Stopping: ctx.Done()}
			rt.Handler(w, r.WithContext(route.With(r.Context(), known)))
		})
	}
	c, err := client.New("http://localhost", client.Options{Retry: -1, Logger: logger,
		HTTP: &http.Client{Transport: inprocess.Transport(mux)}})
	if err != nil {
		return err
	}

	return do(c, d)
}

// warnings is a logger for what a person has to know.
func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// openEngine opens the engine of a directory. If it can only be read, what is written to it stays in memory.
func openEngine(address string, reads bool, logger *slog.Logger) (_ holdfast.Engine, closeIt func() error, err error) {
	engine, err := openBare(address, reads, logger)
	if err != nil {
		return nil, nil, err
	}
	closeIt = engine.Close
	if reads && engine.Capabilities().Strongest() == 0 {
		engine = scratch.New(engine)
	}
	return engine, closeIt, nil
}

// openBare opens the engine of a directory, for reading only if that is wanted and it can do so.
func openBare(address string, reads bool, logger *slog.Logger) (holdfast.Engine, error) {
	name, dir, o, err := parseDir(address)
	if err != nil {
		return nil, err
	}
	o.Logger, o.ReadOnly = logger, o.ReadOnly || reads

	return all.OpenDir(name, dir, o)
}

// document writes a value as one document of JSON.
func (s *session) document(v any) error { return console.WriteJSON(s.out, v) }

// line writes a value as a line of JSON.
func (s *session) line(v any) error {
	e := json.NewEncoder(s.out)
	e.SetEscapeHTML(false)

	return e.Encode(v)
}

// list writes a list: as JSON, or as a table of which cells makes the rows. from makes an item of what the client has.
func list[S, T any](s *session, found []S, from func(S) T, t *console.Table, cells func(T) []string) error {
	items := []T{}
	for _, x := range found {
		items = append(items, from(x))
	}
	if s.json {
		return s.document(items)
	}

	for _, item := range items {
		t.Row("", cells(item)...)
	}
	s.table(t)

	return nil
}

// itself is for a list of what the client has.
func itself[T any](x T) T { return x }

// show writes what comes: each as a line of JSON of what from makes, or as text. If it is live, nothing is held back.
func show[S, T any](s *session, seq iter.Seq2[S, error], live bool, from func(*S) T, text func(*S) string) error {
	for x, err := range seq {
		if err != nil {
			return err
		}
		if s.json {
			err = s.line(from(&x))
		} else {
			_, err = fmt.Fprintln(s.out, text(&x))
		}
		if err == nil && live {
			err = s.out.Flush()
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// table shows a table, or says that it has no rows.
func (s *session) table(t *console.Table) {
	if t.Rows() == 0 {
		none()
		return
	}
	s.t.Screen().Table(t)
}

// none says to people that a list is empty. It is no output: what counts lines counts none.
func none() { fmt.Fprintln(os.Stderr, "holdfast: nothing found") }

// columns makes a table of a list.
func columns(names ...string) *console.Table { return console.Columns(1, names...) }

// said writes what was done, in words or as JSON.
func (s *session) said(v any, format string, args ...any) error {
	if s.json {
		return s.document(v)
	}
	_, err := fmt.Fprintf(s.out, format+"\n", args...)

	return err
}

// when writes a time for people.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}

	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// num writes a number.
func num[T int | int64 | uint64](n T) string { return strconv.FormatInt(int64(n), 10) }

// maxText is how many bytes of a payload a line of text shows.
const maxText = 2000

// text writes bytes for people: as they are, if they are text of one line.
func text(b []byte) string {
	more := ""
	if len(b) > maxText {
		b, more = b[:maxText], fmt.Sprintf("... (%d bytes)", len(b))
	}
	if !utf8.Valid(b) || strings.ContainsFunc(string(b), func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.QuoteToASCII(string(b)) + more
	}

	return string(b) + more
}

// input returns an argument, or what the standard input has if it is "-".
func input(arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}

	return io.ReadAll(os.Stdin)
}

// file opens a file to write an export to; "" and "-" are the standard output. done publishes it, or removes it after
// an error.
func (s *session) file(name string) (w io.Writer, done func(error) error, err error) {
	if name == "" || name == "-" {
		return s.out, func(err error) error { return err }, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		if errors.Is(err, os.ErrExist) {
			err = placeError(name+" exists", "name a new file")
		}

		return nil, nil, err
	}

	return f, func(err error) error {
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(name))
		}

		return err
	}, nil
}

// reader opens a file to import from; "" and "-" are the standard input.
func reader(name string) (io.ReadCloser, error) {
	if name == "" || name == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		return nil, placeError(name+" is a directory", "name a file that export has written")
	}

	return os.Open(name)
}

// levelFlag is for commands that write.
type levelFlag struct {
	Level string `help:"What the write must survive: memory, process, power or quorum." enum:",memory,process,power,quorum" default:""`
}

// ctx is the context of the session for a write.
func (l *levelFlag) ctx(s *session) context.Context {
	level, err := holdfast.ParseLevel(l.Level)
	if err != nil { // none
		return s.ctx
	}

	return holdfast.WithLevel(s.ctx, level)
}
