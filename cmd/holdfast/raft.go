package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/raftlog/migrate"
)

// The commands about Raft stores. They exit as those about directories do, and with 130 when interrupted.

type raftCommand struct {
	Import  raftImportCommand  `cmd:"" help:"Copy the log, votes and terms of a raft-boltdb or raft-wal, and compare."`
	Inspect raftInspectCommand `cmd:"" help:"Show the Raft stores in a directory. This opens the directory for writing."`
}

type raftImportCommand struct {
	Source   string   `arg:"" help:"File of raft-boltdb, or directory of raft-wal or with a raft.db. It is not changed."`
	Into     string   `required:"" help:"Directory of the store: new, empty, or an engine's." placeholder:"[ENGINE:]DIR"`
	Name     string   `help:"Name of the store in it. Leave it out unless the program names its stores."`
	Number   []string `help:"Stable keys of a raft-wal that are numbers, in addition to raft's own." placeholder:"KEY"`
	Bytes    []string `help:"Stable keys of a raft-wal that have 8 bytes but are not numbers." placeholder:"KEY"`
	DropTorn bool     `help:"Drop a torn end of a raft-wal, as raft-wal itself would."`
}

type raftInspectCommand struct {
	Dir  string  `arg:"" help:"Directory of an engine, not open elsewhere." placeholder:"[ENGINE:]DIR"`
	Name *string `help:"Only the store of this name."`
	All  bool    `help:"Read and count every entry, and find damage."`
	JSON bool    `name:"json" help:"Write JSON."`
}

// Help implements kong's interface for what follows the flags.
func (raftImportCommand) Help() string {
	return `SOURCE must not be open elsewhere. The import needs room for a copy of it next to DIR.`
}

func (c *raftImportCommand) run() int {
	ctx, stop := interruptible()
	defer stop()
	p := console.Standard().Progress()
	r, at, err := c.copy(ctx, showImport(p))
	p.End()
	if err != nil && ctx.Err() != nil {
		// If the error tells more than that the context ended, it says what is left.
		var e *holdfast.Error
		if errors.As(err, &e) && errors.Is(e.Cause, context.Cause(ctx)) && err.Error() == e.Error() {
			err = console.ErrInterrupted
		} else {
			err = fmt.Errorf("%w: %w", console.ErrInterrupted, err)
		}
	}
	if err != nil {
		return failTool(err)
	}

	return fail(c.print(r, at))
}

// copy imports and says where to.
func (c *raftImportCommand) copy(ctx context.Context,
	show func(phase string, done, of int64)) (r *migrate.Result, at string, err error) {
	name, dir, o, err := parseDir(c.Into)
	if err != nil {
		return nil, "", err
	}
	if o.Level != 0 && o.Level != holdfast.Power {
		return nil, "", &holdfast.Error{Op: "import", Path: dir, Class: holdfast.ErrLevel,
			Detail: "a server's votes must survive power loss", Remedy: "leave the level out"}
	}
	if err := datadir.CheckOverlap("import", dir, sourceFiles(c.Source)); err != nil {
		return nil, "", err
	}

	fill := func(e holdfast.Engine, partial string) (err error) {
		r, err = migrate.Import(ctx, c.Source, e, migrate.Options{
			Name: c.Name, Scratch: datadir.Temp(partial), Numbers: c.Number, Bytes: c.Bytes, DropTorn: c.DropTorn,
			Progress: show,
		})
		at = dir + ", " + e.Capabilities().Engine
		if closed := e.Close(); err == nil {
			err = closed
		}

		return in(dir, err)
	}
	switch _, err := datadir.ReadMark("import", dir); {
	case err == nil:
		e, err := all.OpenDir(name, dir, o)
		if err != nil {
			return nil, "", err
		}
		err = fill(e, dir)

		return r, at, err
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, holdfast.ErrForeign):
		return nil, "", err
	}
	err = datadir.Make("import", dir, func(partial string) (datadir.Loss, error) {
		e, err := all.Open(cmp.Or(name, all.Default), partial, o)
		if err != nil {
			return datadir.Loss{}, err
		}
		if err := datadir.Hide(partial); err != nil {
			return datadir.Loss{}, errors.Join(err, e.Close())
		}

		return datadir.Loss{}, fill(e, partial)
	})

	return r, at, err
}

// sourceFiles is what an import reads: of a directory that holds a raft.db and no raft-wal only that file, so that the
// store can be made next to it.
func sourceFiles(source string) string {
	db := filepath.Join(source, "raft.db")
	if _, err := os.Stat(filepath.Join(source, "wal-meta.db")); err == nil {
		return source
	}
	if st, err := os.Stat(db); err == nil && st.Mode().IsRegular() {
		return db
	}

	return source
}

// in adds the directory to an error about the engine in it that names none.
func in(dir string, err error) error {
	if e, ok := err.(*holdfast.Error); ok && e.Engine != "" && e.Path == "" {
		e.Path = dir
	}

	return err
}

// parseDir reads [ENGINE:]DIR, with the options of an address behind it if there is an engine. No engine is the
// empty name.
func parseDir(s string) (name, dir string, o holdfast.Options, err error) {
	before, _, ok := strings.Cut(s, ":")
	// C:\data is a directory too.
	if !ok || strings.ContainsAny(before, `/\`) || len(before) == 1 && runtime.GOOS == "windows" {
		return "", s, o, nil
	}

	return all.ParseURL(s)
}

func (c *raftImportCommand) print(r *migrate.Result, at string) error {
	p := newPage(os.Stdout)
	p.line("source\t%s, %s", c.Source, r.Kind)
	p.line("store\t%q in %s", c.Name, at)
	p.line("entries\t%s", extent(r.Entries, r.First, r.Last, r.Gaps))
	p.line("data\t%s", size(r.Bytes))
	p.line("stable keys\t%s", names(r.Keys))
	if slices.Contains(r.Keys, "CurrentTerm") {
		p.line("current term\t%d; the last entry's is %d", r.CurrentTerm, r.LastTerm)
	}
	if r.Dropped != "" {
		p.line("left out\t%s", r.Dropped)
	}

	for _, n := range r.Notes {
		p.line("note\t%s", n)
	}
	p.line("verified\tevery entry and every key was read back and is the same")
	p.line("took\t%.2f s", r.Took.Seconds())

	return p.end()
}

func extent(n int64, first, last uint64, gaps int64) string {
	if n == 0 {
		return "none"
	}
	s := fmt.Sprintf("%d, of index %d to %d", n, first, last)
	if gaps > 0 {
		s += fmt.Sprintf(", with %d gaps", gaps)
	}

	return s
}

func names(list []string) string {
	if len(list) == 0 {
		return "none"
	}

	var shown []string
	for _, k := range list {
		if q := key([]byte(k)); q != `"`+k+`"` || strings.ContainsAny(k, " ,") {
			k = q
		}
		shown = append(shown, k)
	}

	return strings.Join(shown, ", ")
}

// showImport returns what shows how an import goes on, a few times a second.
func showImport(p *console.Progress) func(phase string, done, of int64) {
	var last time.Time

	return func(phase string, done, of int64) {
		if time.Since(last) < 100*time.Millisecond {
			return
		}
		last = time.Now()
		line := fmt.Sprintf("  %s: %d of %d entries", phase, done, of)
		if of == 0 {
			line = fmt.Sprintf("  %s: %s", phase, size(done))
		}
		p.Show(func() string { return line })
	}
}

// noStore is a Raft store that cannot be shown.
type noStore struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

func (c *raftInspectCommand) run() int {
	name, dir, o, err := parseDir(c.Dir)
	if err != nil {
		return failTool(err)
	}
	e, err := all.OpenDir(name, dir, o)
	if err != nil {
		return failTool(hintInspect(dir, err))
	}
	engine := e.Capabilities().Engine
	list, err := c.inspect(dir, e)
	if closed := e.Close(); closed != nil {
		err = errors.Join(err, closed)
	}
	if len(list) == 0 {
		return failTool(err)
	}
	var printed error
	if c.JSON {
		printed = console.WriteJSON(os.Stdout, list)
	} else {
		p := newPage(os.Stdout)
		p.line("engine\t%s", engine)

		for _, store := range list {
			switch store := store.(type) {
			case *raftlog.Inspection:
				printStore(p, store)
			case noStore:
				p.line("\nstore\t%q", store.Name)
				p.line("error\t%s", store.Error)
			}
		}
		printed = p.end()
	}

	return failTool(errors.Join(err, printed))
}

// hintInspect adds advice to an error: what works while the directory is open elsewhere, or to import a directory that
// no engine made, if it is a source.
func hintInspect(dir string, err error) error {
	e, ok := err.(*holdfast.Error)
	if !ok {
		return err
	}
	if errors.Is(err, holdfast.ErrLocked) {
		e.Remedy = "close it there first; while it is open, holdfast inspect shows what can be seen from outside, and not " +
			"its stores"
		return e
	}

	for _, source := range []string{filepath.Join(dir, "raft.db"), filepath.Join(dir, "wal-meta.db"), dir} {
		if st, err := os.Stat(source); err == nil && st.Mode().IsRegular() {
			e.Remedy = "holdfast raft import makes a Raft store of a raft-boltdb or a raft-wal"
			break
		}
	}

	return e
}

// inspect returns what there is to be shown of the stores, each an Inspection or a noStore: one that cannot be shown
// does not hide the others. Why it cannot is the error, too.
func (c *raftInspectCommand) inspect(dir string, e holdfast.Engine) (list []any, err error) {
	stores := []string{}
	if c.Name != nil {
		stores = append(stores, *c.Name)
	} else {
		if stores, err = raftlog.Stores(e); err != nil {
			return nil, in(dir, err)
		}
		if len(stores) == 0 {
			return nil, &holdfast.Error{Op: "inspect", Engine: e.Capabilities().Engine, Path: dir, Class: holdfast.ErrNotFound,
				Detail: "there is no Raft store in it"}
		}
	}

	var errs []error
	for _, name := range stores {
		store, err := raftlog.Inspect(e, name, c.All)
		if err == nil {
			list = append(list, store)
			continue
		}
		err = in(dir, err)
		errs = append(errs, err)
		list = append(list, noStore{name, strings.ReplaceAll(err.Error(), "\n", "; ")})
	}
	if c.Name != nil && len(errs) > 0 { // it is all there is to say
		list = nil
	}

	return list, errors.Join(errs...)
}

func printStore(p *page, in *raftlog.Inspection) {
	p.line("\nstore\t%q", in.Name)
	if in.Last == 0 {
		p.line("log\tempty")
	} else {
		p.line("log\tindex %d to %d, term %d to %d", in.First, in.Last, in.FirstTerm, in.LastTerm)

		for _, end := range []struct {
			what string
			at   *time.Time
		}{{"first", in.Oldest}, {"last", in.Newest}} {
			if end.at != nil {
				p.line("%s appended\t%s", end.what, end.at.Format(time.RFC3339Nano))
			}
		}
	}
	if in.CommitIndex > 0 {
		p.line("commit index\t%d", in.CommitIndex)
	}

	for _, k := range in.Keys {
		value := key(k.Value)
		if k.Number != nil {
			value = fmt.Sprint(*k.Number)
		}
		p.line("stable %s\t%s", names([]string{k.Name}), value)
	}
	if f := in.Full; f != nil {
		p.line("entries\t%d, with %d gaps, in %d terms, %s of data", f.Entries, f.Gaps, f.Terms, size(f.Bytes))
		var types []string

		for t := range f.Types {
			types = append(types, t)
		}
		slices.Sort(types)

		for _, t := range types {
			p.line("%s\t%d", t, f.Types[t])
		}
	}
}
