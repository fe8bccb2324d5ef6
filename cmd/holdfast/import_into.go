package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

// target is where an import goes: a namespace of a server, or of a directory that no server has open.
type target struct {
	Into      string `required:"" help:"URL of a server, or a directory that is not open in any program; created if needed." placeholder:"URL|[ENGINE:]DIR"`
	Namespace string `short:"n" help:"Namespace to copy into. In a directory it is created if needed." default:"default" placeholder:"NS"`
	IntoToken string `help:"Token for the server. Default: $$HOLDFAST_TOKEN." placeholder:"TOKEN"`
}

// open opens the target and lets f work on it.
func (t *target) open(ctx context.Context, f func(c *client.Client) error) error {
	if !isURL(t.Into) {
		return t.openDir(ctx, func(c *client.Client, _ *data.Data) error { return f(c) })
	}
	c, err := client.New(t.Into, client.Options{Token: cmp.Or(t.IntoToken, os.Getenv("HOLDFAST_TOKEN")),
		Retry: patience, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}

	return f(c)
}

// openDir opens a directory, makes it and the namespace if need be, and lets f work on it.
func (t *target) openDir(ctx context.Context, f func(c *client.Client, d *data.Data) error) (err error) {
	name, dir, o, err := parseDir(t.Into)
	if err != nil {
		return err
	}
	o.Logger = warnings()

	var engine holdfast.Engine
	switch _, marked := datadir.ReadMark("import", dir); {
	case marked == nil:
		engine, err = all.OpenDir(name, dir, o)
	case errors.Is(marked, fs.ErrNotExist), errors.Is(marked, holdfast.ErrForeign):
		engine, err = all.Open(cmp.Or(name, all.Default), dir, o) // which refuses what is not empty
	default:
		err = marked
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in(dir, engine.Close())) }()

	return in(dir, inside(ctx, engine, o.Logger, func(c *client.Client, d *data.Data) error {
		_, err := d.Create(ctx, message.NamespaceOptions{ID: t.Namespace}, "")
		if err != nil && !errors.Is(err, message.ErrNamespaceExists) {
			return err
		}

		return f(c, d)
	}))
}

// importing runs an import, which shows how it goes on, and returns the exit status: 2 if what was copied is not the
// same.
func importing(run func(ctx context.Context, show func(format string, args ...any)) error) int {
	ctx, stop := interruptible()
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	p := console.Standard().Progress()
	err := run(ctx, func(format string, args ...any) {
		line := fmt.Sprintf("  "+format, args...)
		p.Show(func() string { return line })
	})
	p.End()
	if err != nil && ctx.Err() != nil {
		err = console.ErrInterrupted
	}

	return failTool(err)
}

// differs is the error of a comparison after an import.
func differs(what, detail string) error {
	return &holdfast.Error{Op: "import", Class: holdfast.ErrCorrupt, Detail: what + " is not as in the source: " + detail,
		Remedy: "import into an empty namespace"}
}
