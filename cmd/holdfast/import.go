package main

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/eventodb/move"
	"github.com/holdfastdb/holdfast/store/message"
)

// The commands that move data over from other servers.

type importCommand struct {
	EventoDB  importEventoDB  `cmd:"" name:"eventodb" help:"Copy a namespace of an EventoDB server, or its export, and compare."`
	Ebuse     importEbuse     `cmd:"" name:"ebuse" help:"Copy the events of an ebuse tenant, and compare."`
	MessageDB importMessageDB `cmd:"" name:"messagedb" help:"Copy the messages of a message-db (PostgreSQL), and compare."`
}

type importEventoDB struct {
	From      string `arg:"" help:"Export of EventoDB (also gzip), or URL of a running server."`
	Token     string `help:"Token of the namespace, for a server." env:"EVENTODB_TOKEN" placeholder:"TOKEN"`
	Into      string `required:"" help:"URL of a server, or its data directory." placeholder:"URL|[ENGINE:]DIR"`
	IntoToken string `help:"Token of the namespace at --into, for a server." env:"HOLDFAST_TOKEN" placeholder:"TOKEN"`
	Namespace string `help:"Namespace in the directory, created if needed. Default: default." placeholder:"ID"`
}

// Help implements kong's interface for what follows the flags.
func (importEventoDB) Help() string {
	return `Messages keep their positions, ids and times. Then each is compared with its copy. An interrupted import ` +
		`can be repeated: messages that are already there are skipped. A directory must not be open elsewhere.`
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

func (c *importEventoDB) run() int {
	var r move.Result
	status := importing(func(ctx context.Context, show func(string, ...any)) (err error) {
		r, err = c.copy(ctx, func(phase string, messages int64) { show("%d messages %s", messages, phase) })
		return err
	})
	if status != exitOK {
		return status
	}
	page := newPage(os.Stdout)
	page.line("source\t%s", c.From)
	page.line("target\t%s", c.Into)
	page.line("messages\t%d imported, %d were there", r.Imported, r.Known)
	if r.Skipped > 0 {
		page.line("resumed\tbehind global position %d, to which an earlier import had come", r.Skipped)
	}
	page.line("verified\tall %d messages of the source are the same in the target, which has %d", r.Compared, r.Total)

	return fail(page.end())
}

func (c *importEventoDB) copy(ctx context.Context, show move.Progress) (r move.Result, err error) {
	var from move.Source = move.File(c.From)
	if isURL(c.From) {
		from = move.Server{URL: c.From, Token: c.Token}
	} else if _, err := os.Stat(c.From); err != nil { // before the target is made
		return r, err
	}
	if isURL(c.Into) {
		if c.Namespace != "" {
			return r, &holdfast.Error{Op: "import", Class: holdfast.ErrBadOption,
				Detail: "--namespace is for directories", Remedy: "give the token of the namespace as --into-token"}
		}

		return move.Copy(ctx, from, move.Server{URL: c.Into, Token: c.IntoToken}, show)
	}
	to := target{Into: c.Into, Namespace: cmp.Or(c.Namespace, message.Default)}
	err = to.openDir(ctx, func(_ *client.Client, d *data.Data) error {
		n, err := d.Messages().Namespace(ctx, to.Namespace)
		if err == nil {
			r, err = move.Copy(ctx, from, move.Namespace{N: n}, show)
		}

		return err
	})

	return r, err
}
