package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/task"
)

// The commands about one directory. They exit with 0 if all is well, 2 if something is damaged or lost, 1 otherwise.

type inspectCommand struct {
	Dir  string `arg:"" help:"Directory of an engine. It may be open elsewhere. Nothing is changed."`
	JSON bool   `name:"json" help:"Write JSON."`
}

type verifyCommand struct {
	Dir  string `arg:"" help:"Directory of an engine, or space of a server, not open elsewhere for writing; or the URL of a continuous backup."`
	JSON bool   `name:"json" help:"Write JSON."`
}

// toolResult is what verify, repair, backup and copy write with --json. What a command does not know is left out.
type toolResult struct {
	Engine    string         `json:"engine,omitempty"`
	How       string         `json:"how,omitempty"`       // what was checked, or what was salvaged from
	Into      string         `json:"into,omitempty"`      // the new directory
	Buckets   *int64         `json:"buckets,omitempty"`   // of a database, written
	Keys      *int64         `json:"keys,omitempty"`      // read or written
	Bytes     *int64         `json:"bytes,omitempty"`     // of keys and values
	Checksums *bool          `json:"checksums,omitempty"` // on everything that the engine stores
	Damage    []string       `json:"damage,omitempty"`
	Lost      []string       `json:"lost,omitempty"`
	Doubt     string         `json:"doubt,omitempty"`
	Notes     []string       `json:"notes,omitempty"`
	Complete  *bool          `json:"complete,omitempty"` // nothing was lost
	Counts    map[string]any `json:"counts,omitempty"`   // of logtree's files
}

func texts(errs []error) (list []string) {
	for _, err := range errs {
		list = append(list, err.Error())
	}

	return list
}

// write writes the result and returns the status, or that of an error.
func (r toolResult) write(status int) int {
	if err := console.WriteJSON(os.Stdout, r); err != nil {
		return fail(err)
	}

	return status
}

type repairCommand struct {
	Dir  string `arg:"" help:"Directory of an engine, not open elsewhere for writing. Nothing in it is changed."`
	Into string `required:"" help:"New directory for what is salvaged." placeholder:"NEW"`
	JSON bool   `name:"json" help:"Write JSON."`
}

type acceptCommand struct {
	Dir     string `arg:"" help:"Directory made by a repair, or space of a server that has lost something in a failover; not open elsewhere."`
	Rebuild bool   `help:"Also rebuild event logs and message stores: readers then skip what is lost."`
}

type backupCommand struct {
	Dir  string `arg:"" help:"Directory of an engine, or space of a server, not open elsewhere for writing."`
	Into string `required:"" help:"New directory for the copy." placeholder:"NEW"`
	JSON bool   `name:"json" help:"Write JSON."`
	Link bool   `help:"Share files with DIR, by hard links on the same file system: at once, and without room, but damage to a shared file is damage to both. logtree and Pebble."`
}

type compactCommand struct {
	Dir    string `arg:"" help:"Directory of an engine, not open elsewhere. Its contents stay the same."`
	From   keyArg `help:"Only keys from this one on. Of a part: logtree and Pebble." placeholder:"KEY"`
	To     keyArg `help:"Only keys before this one." placeholder:"KEY"`
	Prefix keyArg `help:"Only keys that begin so." placeholder:"KEY"`
}

func (compactCommand) Help() string {
	return `Keys are text; bytes that are none are written as in Go: --prefix 'log\x00'.`
}

// keyArg is a key as an argument: text, in which a backslash escapes as in a string of Go.
type keyArg []byte

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *keyArg) UnmarshalText(text []byte) error {
	s := string(text)
	if strings.Contains(s, `\`) {
		var err error
		if s, err = strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`); err != nil {
			return fmt.Errorf(`%q is no key: write a byte as \x00 and a backslash as \\`, text)
		}
	}
	*k = keyArg(s)

	return nil
}

// keys is the range that the command names.
func (c *compactCommand) keys() (holdfast.Range, error) {
	r := holdfast.Range{Lo: c.From, Hi: c.To}
	switch {
	case len(c.Prefix) > 0 && len(c.From)+len(c.To) > 0:
		return r, &holdfast.Error{Op: "compact", Class: holdfast.ErrBadOption,
			Detail: "--prefix is given together with --from or --to", Remedy: "name the keys in one way"}
	case len(c.Prefix) > 0:
		return holdfast.Prefix(c.Prefix), nil
	case len(c.To) > 0 && string(c.From) >= string(c.To):
		return r, &holdfast.Error{Op: "compact", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("no key is from %q on and before %q", c.From, c.To), Remedy: "name the smaller key in --from"}
	}

	return r, nil
}

// failTool is fail for these commands.
func failTool(err error) int {
	if status := fail(err); err == nil || !errors.Is(err, holdfast.ErrCorrupt) {
		return status
	}

	return exitWrong
}

// serverCan adds to the error of a directory that is in use what a server can that has it open.
func serverCan(err error, what string) error {
	if errors.Is(err, holdfast.ErrLocked) {
		return fmt.Errorf("%w; if a server has it open, that %s", err, what)
	}

	return err
}

func (c *inspectCommand) run() int {
	in, err := all.Inspect(c.Dir)
	if err != nil {
		return failTool(err)
	}

	ctx, stop := interruptible()
	defer stop()
	found := &inspection{InspectResult: in}
	found.inspectStores(ctx)
	if c.JSON {
		err = console.WriteJSON(os.Stdout, found)
	} else {
		err = printInspection(os.Stdout, found)
	}
	if err == nil && in.Logtree != nil && len(in.Logtree.Damage) > 0 {
		return exitWrong
	}

	return failTool(err)
}

// page collects lines of cells, which tabs separate.
type page struct {
	out   io.Writer
	width int // columns, 0 where it is no terminal
	lines []string
}

func newPage(out io.Writer) *page {
	p := &page{out: out}
	if t := console.Standard(); out == os.Stdout && t.OutWidth != nil {
		p.width = t.OutWidth()
	}

	return p
}

func (p *page) line(format string, args ...any) {
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

// end writes the lines. On a terminal the second of two cells is folded to its width.
func (p *page) end() error {
	indent := 0
	for _, l := range p.lines {
		if key, _, _ := strings.Cut(l, "\t"); strings.Count(l, "\t") == 1 {
			indent = max(indent, len(strings.TrimSpace(key))+2)
		}
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)

	for _, l := range p.lines {
		if key, value, _ := strings.Cut(l, "\t"); strings.Count(l, "\t") == 1 && p.width > indent {
			var folded strings.Builder
			console.Screen{W: &folded, Width: p.width - indent}.Hanging("", value, 0)
			l = key + "\t" + strings.ReplaceAll(strings.TrimSpace(folded.String()), "\n", "\n\t")
		}
		fmt.Fprintln(w, l)
	}
	_ = w.Flush()
	_, err := p.out.Write(text.Bytes())

	return err
}

func printInspection(w io.Writer, in *inspection) error {
	p := newPage(w)
	p.line("directory\t%s", in.Dir)
	p.line("engine\t%s, format %d", in.Engine, in.Format)
	if in.Level != 0 {
		p.line("level\t%v", in.Level)
	}
	if in.Lost != "" {
		p.line("lost\tby a repair, not accepted yet: %s", in.Lost)
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
		p.line("checksums\t%s", map[bool]string{true: "on everything",
			false: "not on everything: damage may be read as data"}[c.Checksums])
	}
	if in.Logtree != nil {
		printLogtree(p, in.Logtree)
	}

	for _, n := range in.Notes {
		p.line("note\t%s", n)
	}
	if in.Stores != nil {
		in.Stores.print(p)
	}

	return p.end()
}

func printLogtree(p *page, l *logtree.InspectResult) {
	p.line("database\t%s", l.Database)
	if m := l.Manifest; m != nil {
		p.line("manifest\tthe tables hold operations up to %d; the log follows from byte %d of segment %d (lsn %d); synced "+
			"up to lsn %d",
			m.From.Sequence, m.From.Offset, m.From.Segment, m.From.LSN, m.Synced)
		p.line("log\t%d frames, %d batches, %d operations, %s; torn: %d bytes; it ends at byte %d of segment %d (lsn %d, "+
			"operation %d)",
			l.Log.Frames, l.Log.Batches, l.Log.Operations, size(l.Log.Bytes), l.Log.TornBytes, l.Log.End.Offset,
			l.Log.End.Segment, l.Log.End.LSN, l.Log.End.Sequence)
	}
	p.line("\nfile\tbytes\trole")

	for _, f := range l.Files {
		p.line("%s\t%d\t%s", f.Name, f.Bytes, f.Role)
	}
	if len(l.Segments) > 0 {
		p.line("\nsegment\tbytes\tused\tkeys and values\talive in tables\tgarbage\trole")
	}

	for _, s := range l.Segments {
		garbage := "-"
		if s.Payload > 0 {
			garbage = fmt.Sprintf("%.0f %%", 100*s.Garbage)
		}
		p.line("%d\t%d\t%d\t%d\t%d\t%s\t%s", s.ID, s.Bytes, s.Used, s.Payload, s.Live, garbage, s.Role)
	}
	if len(l.Tables) > 0 {
		p.line("\ntable\tbytes\tentries\ttombstones\tfirst key\tlast key\t")
	}

	for _, r := range l.Tables {
		left := ""
		if !r.Named {
			left = "left over"
		}
		p.line("%d\t%d\t%d\t%d\t%s\t%s\t%s", r.ID, r.Bytes, r.Entries, r.Tombstones, key(r.Smallest), key(r.Largest), left)
	}
	if m := l.Manifest; m != nil && len(m.Tiers) > 0 {
		p.line("\ntier\ttable\tfrom\tbefore")

		for _, t := range m.Tiers {
			for _, r := range t.Refs {
				p.line("%d\t%d\t%s\t%s", t.ID, r.Table, cut(r.Lo), cut(r.Hi))
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
	if isBucket(c.Dir) {
		return c.verifyBucket()
	}
	v, err := all.Verify(c.Dir)
	if err != nil {
		return failTool(serverCan(err, "checks itself: POST /v1/server/verify"))
	}

	status := exitOK
	for _, d := range v.Damage {
		if !c.JSON {
			fmt.Fprintln(os.Stderr, "damage:", strings.ReplaceAll(d.Error(), "\n", "; "))
		}
		if status != exitWrong {
			status = exitError
		}
		if errors.Is(d, holdfast.ErrCorrupt) {
			status = exitWrong
		}
	}
	if c.JSON {
		r := toolResult{Engine: v.Engine, How: v.Checked, Checksums: &v.Checksums, Damage: texts(v.Damage)}
		if l := v.Logtree; l != nil {
			r.Notes = l.Notes
			r.Counts = map[string]any{"tables": l.Tables, "entries": l.Entries, "values": l.Values,
				"value_bytes": l.ValueBytes, "segments": l.Segments, "frames": l.Frames, "batches": l.Batches,
				"frame_bytes": l.FrameBytes, "torn_bytes": l.TornBytes}
		} else {
			r.Keys, r.Bytes = &v.Keys, &v.Bytes
		}

		return r.write(status)
	}
	p := newPage(os.Stdout)
	p.line("engine\t%s", v.Engine)
	p.line("checked\t%s", v.Checked)
	if l := v.Logtree; l != nil {
		p.line("tables\t%d, with %d entries", l.Tables, l.Entries)
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
	r, err := untilSignal(func(ctx context.Context) (*all.RepairResult, error) { return all.Repair(ctx, c.Dir, c.Into) })
	if err != nil {
		return failTool(err)
	}
	if c.JSON {
		complete, status := r.Complete(), exitOK
		out := toolResult{Engine: r.Engine, How: r.How, Into: c.Into, Keys: &r.Keys, Lost: texts(r.Lost), Complete: &complete}
		if l := r.Logtree; l != nil {
			for _, x := range l.Lost {
				out.Lost = append(out.Lost, loss(x))
			}
			out.Doubt = l.Doubt
			out.Counts = map[string]any{"values": l.Values, "operations": l.Operations, "torn_bytes": l.TornBytes}
		}
		if !complete {
			status = exitWrong
		}

		return out.write(status)
	}

	for _, err := range first(r.Lost, "errors") {
		fmt.Fprintln(os.Stderr, "lost:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	p := newPage(os.Stdout)
	p.line("engine\t%s", r.Engine)
	p.line("how\t%s", r.How)
	p.line("keys\t%d in %s", r.Keys, c.Into)
	if l := r.Logtree; l != nil {
		for _, x := range first(l.Lost, "damaged places") {
			fmt.Fprintln(os.Stderr, "lost:", loss(x))
		}
		if l.Doubt != "" {
			fmt.Fprintln(os.Stderr, "doubt:", l.Doubt)
		}
		p.line("from tables\t%d values", l.Values)
		p.line("from the log\t%d operations", l.Operations)
		p.line("torn\t%d bytes, which opening would have cut off too", l.TornBytes)
		if l.LostKeys > 0 {
			p.line("lost values\t%d, of keys that are missing now", l.LostKeys)
		}
	}
	if r.Complete() {
		p.line("lost\tnothing")
		return failTool(p.end())
	}
	p.line("lost\t%s", r.Loss)

	return c.lost(p)
}

// lost says what a new directory lacks, and what to do about it.
func (c *repairCommand) lost(p *page) int {
	err := printStores(p, c.Into)
	p.line("next\tstores refuse to open in %s until you accept the loss: holdfast accept %s", c.Into, c.Into)
	if err = errors.Join(err, p.end()); err != nil {
		return failTool(err)
	}

	return exitWrong
}

// maxShown is how many of many are shown.
const maxShown = 10

// first yields the first of a list, and says on standard error how many more there are.
func first[T any](list []T, what string) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, x := range list[:min(len(list), maxShown)] {
			if !yield(i, x) {
				return
			}
		}
		if n := len(list) - maxShown; n > 0 {
			fmt.Fprintf(os.Stderr, "... and %d more %s\n", n, what)
		}
	}
}

// printStores says of each store in dir what it lacks.
func printStores(p *page, dir string) error {
	e, err := all.OpenDir("", dir, holdfast.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer e.Close()
	logs, err := event.Examine(e)
	if err != nil {
		return err
	}

	for _, l := range logs {
		p.line("%s\t%s", cmp.Or(message.LogName(l.Name), fmt.Sprintf("log %q", l.Name)), describeLog(l))
	}
	stores, err := raftlog.Examine(e)
	if err != nil {
		return err
	}

	for _, s := range stores {
		p.line("raft store %q\t%s", s.Name, describeRaft(s))
	}

	return nil
}

func describeLog(l event.Report) string {
	var spans []string
	lost := uint64(0)

	for _, g := range l.Lost {
		lost += g.Next - g.Position
		spans = append(spans, stretch(g.Position, g.Next-1))
	}
	text := "no events"
	if l.Last >= l.First {
		text = fmt.Sprintf("events %d to %d: %d are there", l.First, l.Last, l.Events)
	}
	if lost > 0 {
		text += fmt.Sprintf(", %d lost: %s", lost, some(spans))
	}
	if l.Undescribed {
		return text + "; its description is lost, so that it cannot be opened"
	}

	return text + fmt.Sprintf("; events behind %d may be lost too", l.Last)
}

func describeRaft(s raftlog.Report) string {
	var spans []string
	for _, g := range s.Gaps {
		spans = append(spans, stretch(g.First, g.Last))
	}
	text := fmt.Sprintf("entries %d to %d: %d are there", s.First, s.Last, s.Entries)
	if len(spans) > 0 {
		text += ", no " + some(spans)
	}
	if text += fmt.Sprintf("; %d stable values", s.Stable); len(s.Damaged) > 0 {
		text += "; damaged: " + some(s.Damaged)
	}
	if s.Undescribed {
		return text + "; its description is lost, so that it cannot be opened"
	}

	return text + "; entries behind, votes and terms may be lost too: " +
		"rather rebuild this server from the others of its cluster"
}

func stretch(from, to uint64) string {
	if from == to {
		return fmt.Sprint(from)
	}

	return fmt.Sprintf("%d to %d", from, to)
}

// some joins the first of a list.
func some(list []string) string {
	if n := len(list) - maxShown; n > 0 {
		return strings.Join(list[:maxShown], ", ") + fmt.Sprintf(" and %d more", n)
	}

	return strings.Join(list, ", ")
}

// keyName says whose key k is, or shows it.
func keyName(k []byte) string {
	return cmp.Or(event.KeyName(k), message.KeyName(k), raftlog.KeyName(k), task.KeyName(k), "key "+key(k))
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
		s += ", " + keyName(l.Key)
	}

	s += ": " + l.Why
	for i, k := range l.Maybe {
		s += []string{"; it seems to be about ", ", "}[min(i, 1)] + keyName(k)
	}

	return s
}

func (c *acceptCommand) run() int {
	lost, err := all.AcceptLoss(c.Dir)
	if err != nil {
		return failTool(err)
	}
	p := newPage(os.Stdout)
	if lost == "" {
		p.line("lost\tnothing, or it was accepted before")
	} else {
		p.line("lost\t%s", lost)
		err = printStores(p, c.Dir)
		p.line("accepted\tstores open in %s", c.Dir)
	}
	if c.Rebuild && err == nil {
		_, err = untilSignal(func(ctx context.Context) (any, error) { return nil, rebuildStores(ctx, p, c.Dir) })
	}

	return failTool(errors.Join(err, p.end()))
}

// rebuildStores makes all event logs and message stores in a directory whole again.
func rebuildStores(ctx context.Context, p *page, dir string) (err error) {
	e, err := all.OpenDir("", dir, holdfast.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	level := e.Capabilities().Strongest()
	logs, err := event.Examine(e)
	if err != nil {
		return err
	}

	for _, l := range logs {
		if message.LogName(l.Name) != "" { // the message store's
			continue
		}
		if l, err = event.Rebuild(ctx, e, event.Options{Name: l.Name, Level: level}, 0); err != nil {
			return err
		}
		p.line("rebuilt\tlog %q, positions %d to %d: %d events are there", l.Name, l.First, l.Last, l.Events)
	}
	stores, err := message.Stores(e)
	if err != nil {
		return err
	}

	for _, name := range stores {
		list, err := message.Rebuild(ctx, e, message.Options{Name: name, Level: level})
		for _, r := range list {
			p.line("rebuilt\tnamespace %q of message store %q, positions %d to %d: %d messages are there", r.ID, name,
				r.Log.First, r.Log.Last, r.Log.Events)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

func (c *backupCommand) run() int {
	if c.Link {
		_, err := untilSignal(func(ctx context.Context) (any, error) { return nil, all.CheckpointDir(ctx, c.Dir, c.Into) })
		if err != nil {
			return failTool(serverCan(err, "sends a copy: GET /v1/server/backup?link=true"))
		}
		if c.JSON {
			return toolResult{How: "files are shared by hard links", Into: c.Into}.write(exitOK)
		}
		_, err = fmt.Printf("%s shares its files with %s, by hard links\n", c.Into, c.Dir)

		return fail(err)
	}
	keys, err := untilSignal(func(ctx context.Context) (int64, error) { return all.BackupDir(ctx, c.Dir, c.Into) })
	if err != nil {
		return failTool(serverCan(err, "sends a copy: GET /v1/server/backup"))
	}
	if c.JSON {
		return toolResult{How: "every key was copied", Into: c.Into, Keys: &keys}.write(exitOK)
	}
	_, err = fmt.Printf("%d keys in %s\n", keys, c.Into)

	return fail(err)
}

func (c *compactCommand) run() int {
	keys, err := c.keys()
	if err != nil {
		return failTool(err)
	}
	var before, after int64
	_, err = untilSignal(func(ctx context.Context) (_ any, err error) {
		name, dir, o, err := parseDir(c.Dir)
		if err != nil {
			return nil, err
		}
		e, err := all.OpenDir(name, dir, o)
		if err != nil {
			return nil, err
		}
		before = e.Metrics().DiskBytes
		err = holdfast.Compact(ctx, e, keys)
		after = e.Metrics().DiskBytes

		return nil, errors.Join(err, e.Close())
	})
	if err != nil {
		return failTool(serverCan(err, "does it while it serves: POST /v1/server/compact"))
	}
	_, err = fmt.Printf("%s before, %s now\n", size(before), size(after))

	return fail(err)
}
