package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

type copyCommand struct {
	From      string `arg:"" help:"Source, not open in any program. It is not changed."`
	To        string `arg:"" help:"New directory, as [ENGINE:]DIR, or space of a server. Default engine: logtree."`
	Only      string `help:"Only this bucket (OUTER/INNER if nested) or table; its keys get no prefix." placeholder:"NAME"`
	JSON      bool   `name:"json" help:"Write JSON."`
	Separator string `help:"One character between bucket or table and key. Default: a slash. Of bbolt, this makes keys, and no database." placeholder:"C"`
}

// Help implements kong's interface for what follows the flags.
func (copyCommand) Help() string {
	return `FROM is a directory of an engine, a file of bbolt or SQLite, or a directory of Badger or Pebble, or a ` +
		`space of a server (postgres://USER@HOST/DATABASE?space=NAME). ` +
		`It is opened read-only, or as a copy beside TO. The buckets of bbolt become those of TO's database, ` +
		`which kv.On opens; with --only or --separator they become keys.`
}

func (c *copyCommand) run() int {
	copied, err := untilSignal(c.copy)
	if err != nil {
		return failTool(err)
	}
	if c.JSON {
		r := toolResult{Engine: copied.Engine, How: "from " + copied.Source + "; every key was read back and is the same",
			Into: all.Shown(c.To), Keys: &copied.Keys, Bytes: &copied.Bytes, Notes: copied.Notes}
		if copied.Buckets >= 0 {
			r.Buckets = &copied.Buckets
		}
		return r.write(exitOK)
	}
	p := newPage(os.Stdout)
	p.line("source\t%s, %s", all.Shown(c.From), copied.Source)
	p.line("copy\t%s, %s", all.Shown(c.To), copied.Engine)
	if copied.Buckets >= 0 {
		p.line("buckets\t%d, in the database", copied.Buckets)
	}
	p.line("keys\t%d, %s with their values", copied.Keys, size(copied.Bytes))

	for _, n := range copied.Notes {
		p.line("note\t%s", n)
	}
	p.line("verified\tevery key was read back and is the same")

	return fail(p.end())
}

func (c *copyCommand) copy(ctx context.Context) (*all.CopyResult, error) {
	name, dir, o, err := parseDir(c.To)
	if err != nil {
		return nil, err
	}
	options := all.CopyOptions{Engine: name, Open: o, Only: c.Only}
	if len(c.Separator) > 1 {
		return nil, &holdfast.Error{Op: "copy", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("the separator %q has %d bytes", c.Separator, len(c.Separator)),
			Remedy: "name one of one byte"}
	}
	if c.Separator != "" {
		options.Separator = c.Separator[0]
	}
	copied, err := all.Copy(ctx, c.From, dir, options)
	if errors.Is(err, holdfast.ErrForeign) {
		return nil, fmt.Errorf("%w; see holdfast copy --help", err)
	}

	return copied, err
}
