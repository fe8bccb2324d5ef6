package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
)

// The commands about one directory. They exit with 0 if all is well, 2 if something is damaged or lost, 1 otherwise.

type inspectCommand struct {
	Dir  string `arg:"" help:"Directory that an engine made. It may be open elsewhere; nothing is changed."`
	JSON bool   `name:"json" help:"Write JSON."`
}

type verifyCommand struct {
	Dir string `arg:"" help:"Directory that an engine made, not open elsewhere."`
}

type repairCommand struct {
	Dir  string `arg:"" help:"Directory that an engine made, not open elsewhere. Nothing in it is changed."`
	Into string `required:"" help:"New directory for what is salvaged." placeholder:"NEW"`
}

type backupCommand struct {
	Dir  string `arg:"" help:"Directory that an engine made, not open elsewhere."`
	Into string `required:"" help:"New directory for the copy." placeholder:"NEW"`
}

// failTool is fail for these commands.
func failTool(err error) int {
	if status := fail(err); err == nil || !errors.Is(err, holdfast.ErrCorrupt) {
		return status
	}
	return exitWrong
}

func (c *inspectCommand) run() int {
	in, err := all.Inspect(c.Dir)
	if err != nil {
		return failTool(err)
	}
	if c.JSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(in)
	} else {
		err = printInspection(os.Stdout, in)
	}
	if err == nil && in.Logtree != nil && len(in.Logtree.Damage) > 0 {
		return exitWrong
	}
	return failTool(err)
}

// page collects lines and their first error.
type page struct {
	w   *tabwriter.Writer
	err error
}

func newPage(w io.Writer) *page { return &page{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (p *page) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format+"\n", args...); err != nil && p.err == nil {
		p.err = err
	}
}

func (p *page) end() error { return errors.Join(p.err, p.w.Flush()) }

func printInspection(w io.Writer, in *all.Inspection) error {
	p := newPage(w)
	p.line("directory\t%s", in.Dir)
	p.line("engine\t%s, format %d", in.Engine, in.Format)
	if in.Level != 0 {
		p.line("level\t%v", in.Level)
	}
	p.line("open elsewhere\t%s", map[bool]string{true: "yes", false: "no"}[in.Open])
	p.line("files\t%d, %s on the device", in.Files, size(in.Bytes))
	if c := in.Capabilities; c != nil {
		for _, l := range holdfast.Levels() {
			if g := c.Promise(l); g.Given != 0 {
				p.line("asked for %v\tgives %v: %s", l, g.Given, g.How)
			} else {
				p.line("asked for %v\trefuses: %s", l, g.Why)
			}
		}
		p.line("checksums\t%s", map[bool]string{true: "on everything", false: "not on everything: damage may be read as data"}[c.Checksums])
	}
	if in.Logtree != nil {
		printLogtree(p, in.Logtree)
	}
	for _, n := range in.Notes {
		p.line("note\t%s", n)
	}
	return p.end()
}

func printLogtree(p *page, l *logtree.Inspection) {
	p.line("database\t%s", l.Database)
	if m := l.Manifest; m != nil {
		p.line("manifest\tthe runs hold operations up to %d; the log follows from byte %d of segment %d (lsn %d); synced up to lsn %d",
			m.From.Sequence, m.From.Offset, m.From.Segment, m.From.LSN, m.Synced)
		p.line("log\t%d frames, %d batches, %d operations, %s; torn: %d bytes; it ends at byte %d of segment %d (lsn %d, operation %d)",
			l.Log.Frames, l.Log.Batches, l.Log.Operations, size(l.Log.Bytes), l.Log.TornBytes, l.Log.End.Offset, l.Log.End.Segment, l.Log.End.LSN, l.Log.End.Sequence)
	}
	p.line("\nfile\tbytes\trole\n")
	for _, f := range l.Files {
		p.line("%s\t%d\t%s", f.Name, f.Bytes, f.Role)
	}
	if len(l.Segments) > 0 {
		p.line("\nsegment\tbytes\tused\tkeys and values\talive in runs\tgarbage\trole\n")
	}
	for _, s := range l.Segments {
		garbage := "-"
		if s.Payload > 0 {
			garbage = fmt.Sprintf("%.0f %%", 100*s.Garbage)
		}
		p.line("%d\t%d\t%d\t%d\t%d\t%s\t%s", s.ID, s.Bytes, s.Used, s.Payload, s.Live, garbage, s.Role)
	}
	if len(l.Runs) > 0 {
		p.line("\nrun\tbytes\tentries\ttombstones\tfirst key\tlast key\t\n")
	}
	for _, r := range l.Runs {
		left := ""
		if !r.Named {
			left = "left over"
		}
		p.line("%d\t%d\t%d\t%d\t%s\t%s\t%s", r.ID, r.Bytes, r.Entries, r.Tombstones, key(r.Smallest), key(r.Largest), left)
	}
	if m := l.Manifest; m != nil && len(m.Tiers) > 0 {
		p.line("\ntier\trun\tfrom\tbefore\n")
		for _, t := range m.Tiers {
			for _, r := range t.Refs {
				p.line("%d\t%d\t%s\t%s", t.ID, r.Run, cut(r.Lo), cut(r.Hi))
			}
		}
	}
	if len(l.Damage) > 0 {
		p.line("")
	}
	for _, d := range l.Damage {
		p.line("damage\t%s", d)
	}
}

// key shows the beginning of a key.
func key(k []byte) string {
	if len(k) > 40 {
		return strconv.QuoteToASCII(string(k[:40])) + "..."
	}
	return strconv.QuoteToASCII(string(k))
}

func cut(k []byte) string {
	if len(k) == 0 {
		return "-"
	}
	return key(k)
}

func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

func (c *verifyCommand) run() int {
	v, err := all.Verify(c.Dir)
	if err != nil {
		return failTool(err)
	}
	status := exitOK
	for _, d := range v.Damage {
		fmt.Fprintln(os.Stderr, "damage:", strings.ReplaceAll(d.Error(), "\n", "; "))
		if status != exitWrong {
			status = exitError
		}
		if errors.Is(d, holdfast.ErrCorrupt) {
			status = exitWrong
		}
	}
	p := newPage(os.Stdout)
	p.line("engine\t%s", v.Engine)
	p.line("checked\t%s", v.Checked)
	if l := v.Logtree; l != nil {
		p.line("runs\t%d, with %d entries", l.Runs, l.Entries)
		p.line("values\t%d, %s", l.Values, size(l.ValueBytes))
		p.line("segments\t%d, with %d frames, %d of them batches, %s", l.Segments, l.Frames, l.Batches, size(l.FrameBytes))
		p.line("torn\t%d bytes", l.TornBytes)
		for _, n := range l.Notes {
			p.line("note\t%s", n)
		}
	} else {
		p.line("keys\t%d, %s with their values", v.Keys, size(v.Bytes))
		if !v.Checksums {
			p.line("note\t%s has no checksums on everything it stores: damage may have been read as data", v.Engine)
		}
	}
	p.line("damage\t%d", len(v.Damage))
	if err := p.end(); err != nil {
		return fail(err)
	}
	return status
}

func (c *repairCommand) run() int {
	r, err := all.Repair(c.Dir, c.Into)
	if err != nil {
		return failTool(err)
	}
	for _, err := range r.Lost {
		fmt.Fprintln(os.Stderr, "lost:", err)
	}
	p := newPage(os.Stdout)
	p.line("engine\t%s", r.Engine)
	p.line("how\t%s", r.How)
	p.line("keys\t%d in %s", r.Keys, c.Into)
	if l := r.Logtree; l != nil {
		stretches := 0
		for _, x := range l.Lost {
			fmt.Fprintln(os.Stderr, "lost:", loss(x))
			if x.Operations == 0 {
				stretches++
			}
		}
		for _, x := range l.Unsure {
			fmt.Fprintln(os.Stderr, "unsure:", x)
		}
		for _, k := range l.Examples {
			fmt.Fprintln(os.Stderr, "doubtful:", key(k))
		}
		if more := l.Doubtful - int64(len(l.Examples)); more > 0 {
			fmt.Fprintln(os.Stderr, "doubtful: and", more, "more keys")
		}
		p.line("from runs\t%d values", l.Values)
		p.line("from the log\t%d batches with %d operations; %d frames of moved values", l.Batches, l.Operations, l.Moved)
		p.line("torn\t%d bytes, which opening would have cut off too", l.TornBytes)
		p.line("lost\t%d stretches, %d of them values of keys, which are missing now", stretches, l.LostKeys)
		if l.Gone > 0 {
			p.line("gone\toperations of the log: %d; which keys they changed is not known", l.Gone)
		}
		p.line("doubtful\t%d keys: an operation that is gone may have given them a newer value, or deleted them", l.Doubtful)
	}
	if err := p.end(); err != nil {
		return fail(err)
	}
	if !r.Complete() {
		return exitWrong
	}
	return exitOK
}

func loss(l logtree.Loss) string {
	s := l.Path
	if l.Offset > 0 || l.Bytes > 0 {
		s += fmt.Sprintf(" at byte %d", l.Offset)
	}
	if l.Bytes > 0 {
		s += fmt.Sprintf(", %d bytes", l.Bytes)
	}
	if l.Key != nil {
		s += ", key " + key(l.Key)
	}
	s += ": " + l.Why
	for i, k := range l.Maybe {
		s += []string{"; it seems to be about ", ", "}[min(i, 1)] + key(k)
	}
	return s
}

func (c *backupCommand) run() int {
	keys, err := all.BackupDir(c.Dir, c.Into)
	if err != nil {
		return failTool(err)
	}
	_, err = fmt.Printf("%d keys in %s\n", keys, c.Into)
	return fail(err)
}
