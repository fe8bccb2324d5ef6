package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

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

// open opens the target and lets f work on it: with a client, or with the data of a directory.
func (t *target) open(ctx context.Context, f func(c *client.Client, d *data.Data) error) (err error) {
	if strings.HasPrefix(t.Into, "http://") || strings.HasPrefix(t.Into, "https://") {
		c, err := client.New(t.Into, client.Options{Token: cmp.Or(t.IntoToken, os.Getenv("HOLDFAST_TOKEN")),
			Retry: patience, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}

		return f(c, nil)
	}
	name, dir, o, err := parseDir(t.Into)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.Logger = logger

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
	d, err := data.Open(engine, data.Options{Level: engine.Capabilities().Strongest(), Logger: logger})
	if err != nil {
		return in(dir, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()

	switch _, err := d.Messages().Info(ctx, t.Namespace); {
	case errors.Is(err, message.ErrNoNamespace):
		if _, err := d.Create(ctx, message.NamespaceOptions{ID: t.Namespace}, ""); err != nil {
			return in(dir, err)
		}
	case err != nil:
		return in(dir, err)
	}

	return in(dir, f(nil, d))
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
