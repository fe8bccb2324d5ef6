// Package all has the engine table, and opens engines by name or by address.
//
//	engine, err := all.OpenURL("logtree:/var/lib/orders?memory=64MiB") // or pebble:, badger:, bbolt:, sqlite:, ...
//	engine, err := all.OpenURL("postgres://app@10.0.0.5/app?space=orders")
//	keys, err := all.Backup(ctx, engine, "/var/backups/orders")
//
// It imports every engine. A program that uses one engine imports that engine's package instead.
package all

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/badger"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/files"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/engine/pebble"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/engine/sqlite"
)

// Default is the engine to use unless there is a reason for another: logtree passes the laws, the crash lab
// and its own simulation, and its log is the database.
const Default = logtree.Name

// Entry is one engine.
type Entry struct {
	Name     string
	Open     func(dir string, o holdfast.Options) (holdfast.Engine, error)
	Describe func() holdfast.Capabilities

	// mark is the engine's name in the directories it makes. Engines with the same one open each other's. It is empty
	// if the engine makes none.
	mark  string
	tools tools
}

// tools is what an engine's package can do with a directory without opening it.
type tools struct {
	// reports whether the files are the engine's; nil: only HOLDFAST identifies them
	recognize func(dir string) bool
	// adds what is in the files; nil: nothing is known of them
	inspect func(dir string, in *InspectResult) error
	// nil: the directory is opened, and everything is read
	verify func(dir string) (*VerifyResult, error)
	// nil: a copy is opened, and what can be read is copied
	repair func(ctx context.Context, dir, into string) (*RepairResult, error)
}

// table lists the engines in the order in which they are shown.
var table = []Entry{
	{logtree.Name, logtree.Open, logtree.Describe, logtree.Name,
		tools{logtree.IsDatabase, inspectLogtree, verifyLogtree, repairLogtree}},
	{pebble.Name, pebble.Open, pebble.Describe, pebble.Name, tools{}},
	{badger.Name, badger.Open, badger.Describe, badger.Name, tools{}},
	{bbolt.Name, bbolt.Open, bbolt.Describe, bbolt.Name, tools{}},
	{sqlite.Name, sqlite.Open, sqlite.Describe, sqlite.Name, tools{}},
	{sqlite.NameGo, sqlite.OpenGo, sqlite.DescribeGo, sqlite.Name, tools{}},
	{files.Name, files.Open, files.Describe, files.Name, tools{}},
	{mem.Name, mem.Open, mem.Describe, "", tools{}},
}

// servers lists the engines in front of servers. Where others have a directory, they have an address.
var servers = []Entry{
	{postgres.Name, postgres.Open, postgres.Describe, "", tools{}},
}

// OnServer reports whether the engine of that name is one in front of a server.
func OnServer(name string) bool {
	return slices.ContainsFunc(servers, func(e Entry) bool { return e.Name == name })
}

// serverOf returns the name of the engine if address is that of a server.
func serverOf(address string) (name string, ok bool) {
	name, rest, _ := strings.Cut(address, ":")
	if name == "postgresql" { // PostgreSQL itself knows both
		name = postgres.Name
	}

	return name, OnServer(name) && strings.HasPrefix(rest, "//")
}

// Shown is an address, or a directory, as it may be shown and logged: without the password that is in it.
func Shown(address string) string {
	if _, ok := serverOf(address); ok {
		return postgres.WithoutPassword(address)
	}

	return address
}

// makerOf returns the engine that opens directories with that mark: if there are several, the first one that is in
// this build. It is empty if there is none.
func makerOf(mark string) (maker Entry) {
	for _, e := range table {
		if e.mark == mark && (maker.Open == nil || maker.Describe().Strongest() == 0) {
			maker = e
		}
	}

	return maker
}

// Engines returns the table: the engines that keep what they store in directories, or in memory. An engine that is not
// in this build is listed too: it refuses every level and says why,
// and its Open fails with ErrUnavailable.
func Engines() []Entry { return append([]Entry(nil), table...) }

// Servers lists the engines in front of servers, which have an address where those of Engines have a directory.
func Servers() []Entry { return slices.Clone(servers) }

// Names returns the names of Engines, in the order of the table.
func Names() []string {
	var names []string
	for _, e := range table {
		names = append(names, e.Name)
	}

	return names
}

// Lookup returns the engine of that name, also one in front of a server, whose Open takes an address; the error is
// ErrBadOption and lists the names.
func Lookup(name string) (Entry, error) {
	names := Names()
	for _, e := range slices.Concat(table, servers) {
		if e.Name == name {
			return e, nil
		}
	}
	for _, e := range servers {
		names = append(names, e.Name)
	}

	return Entry{}, &holdfast.Error{Op: "open", Class: holdfast.ErrBadOption,
		Detail: fmt.Sprintf("there is no engine %q", name),
		Remedy: "the engines are " + strings.Join(names, ", ")}
}

// Open opens the engine of that name in dir.
func Open(name, dir string, o holdfast.Options) (holdfast.Engine, error) {
	e, err := Lookup(name)
	if err != nil {
		return nil, err
	}

	return e.Open(dir, o)
}

// OpenDir opens a directory that an engine made, with that engine, which must be name unless that is empty. An
// Options.Level of 0 is the one to which the directory is bound. Options.ReadOnly is ignored by engines that do not
// have it. ErrUnavailable: the engine is not in this build. Of an engine in front of a server, dir is an address, and
// this is Open.
func OpenDir(name, dir string, o holdfast.Options) (holdfast.Engine, error) {
	if OnServer(name) {
		o.ReadOnly = false
		return Open(name, dir, o)
	}
	if err := onlyDirectories("open", dir); err != nil {
		return nil, err
	}
	mark, err := datadir.ReadMark("open", dir)
	if err != nil {
		return nil, err
	}
	e := makerOf(mark.Engine)
	if name != "" {
		if e, err = Lookup(name); err != nil {
			return nil, err
		}
	}

	switch {
	case name != "" && e.mark != mark.Engine:
		return nil, &holdfast.Error{Op: "open", Engine: name, Path: dir, Class: holdfast.ErrForeign,
			Detail: "it was made by engine " + mark.Engine, Remedy: "leave the engine out"}
	case e.Open == nil:
		return nil, notInBuild(mark.Engine, dir)
	}
	if o.Level == 0 {
		o.Level = mark.Level
	}
	o.ReadOnly = o.ReadOnly && e.Describe().ReadOnly

	return e.Open(dir, o)
}

func notInBuild(engine, dir string) error {
	return &holdfast.Error{Op: "open", Engine: engine, Path: dir, Class: holdfast.ErrUnavailable,
		Detail: "the engine is not in this build"}
}

// OpenURL opens an engine by its address, as [ParseURL] reads it.
func OpenURL(address string) (holdfast.Engine, error) {
	name, dir, o, err := ParseURL(address)
	if err != nil {
		return nil, err
	}

	return Open(name, dir, o)
}

// ParseURL reads an address of the form
//
//	ENGINE:DIR?level=LEVEL&sync-every=DURATION&memory=SIZE&read-only=true
//
// in which an empty ENGINE is [Default], everything from the question mark on may be missing, SIZE is a number of bytes
// or one with a suffix KiB, MiB or GiB, and sync-every=never turns the loss window off. Opening refuses a SIZE below
// [holdfast.MinMemoryBytes], or below what the engine can keep to. DIR is used literally, except that %3F means a
// question mark and %25 a percent sign. It does not begin with two slashes: an address has no host, and ENGINE://data
// would be /data.
//
// The address of a server begins as in postgres://USER@HOST/DATABASE?space=NAME, and has the same options besides its
// own. dir is what is left of it.
func ParseURL(address string) (name, dir string, o holdfast.Options, err error) {
	bad := func(detail, remedy string) (string, string, holdfast.Options, error) {
		return "", "", holdfast.Options{}, &holdfast.Error{Op: "parse address", Path: Shown(address),
			Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
	}
	server, onServer := serverOf(address)
	name, rest, ok := strings.Cut(address, ":")
	if !ok {
		return bad("it has no colon", `write it as "pebble:DIR?level=process"`)
	}
	switch {
	case onServer:
		name, rest = server, address
	case name == "":
		name = Default
	case OnServer(name):
		return bad("it has no two slashes", "write it as "+name+"://USER@HOST/DATABASE?space=NAME")
	}
	if _, err := Lookup(name); err != nil {
		return "", "", o, err
	}
	if plain := strings.TrimLeft(rest, "/"); strings.HasPrefix(rest, "//") && !onServer {
		forms := fmt.Sprintf("%q", name+":/"+plain)
		if !strings.HasPrefix(rest, "///") {
			forms = fmt.Sprintf("%q for a directory below the current one, %s for one below the root", name+":"+plain, forms)
		}

		return bad("there are two slashes behind the engine", "write "+forms)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if onServer {
		dir, query = ownParameters(rest, query)
	} else if dir, err = url.PathUnescape(rest); err != nil {
		return bad(err.Error(), "write %25 for a percent sign")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad(err.Error(), "")
	}

	for key, list := range values {
		if len(list) > 1 {
			return bad(key+" is given twice", "give it once")
		}

		value := list[0]
		switch key {
		case "level":
			if o.Level, err = holdfast.ParseLevel(value); err != nil {
				return "", "", o, err
			}
		case "sync-every":
			if value == "never" {
				o.SyncEvery = -1
				break
			}
			if o.SyncEvery, err = time.ParseDuration(value); err != nil || o.SyncEvery <= 0 {
				return bad(fmt.Sprintf("sync-every=%q is no duration", value), "write it as 500ms, 2s or never")
			}
		case "memory":
			if o.MemoryBytes, err = ParseSize(value); err != nil {
				return bad(fmt.Sprintf("memory=%q is no size", value), "write it as 268435456 or 256MiB")
			}
		case "read-only":
			if o.ReadOnly, err = strconv.ParseBool(value); err != nil {
				return bad(fmt.Sprintf("read-only=%q is neither", value), "write it as true or false")
			}
		default:
			return bad(fmt.Sprintf("there is no option %q", key), "the options are level, sync-every, memory, read-only")
		}
	}

	return name, dir, o, nil
}

// ownParameters takes the options of an engine out of the query of a server's address, which keeps the others.
func ownParameters(rest, query string) (address, options string) {
	var kept, taken []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if slices.Contains([]string{"level", "sync-every", "memory", "read-only"}, name) {
			taken = append(taken, part)
		} else if part != "" {
			kept = append(kept, part)
		}
	}
	if len(kept) > 0 {
		rest += "?" + strings.Join(kept, "&")
	}

	return rest, strings.Join(taken, "&")
}

// ParseSize reads a number of bytes, or one with a suffix KiB, MiB or GiB. It is above 0 and below 2^62. Any error
// means that s is none.
func ParseSize(s string) (int64, error) {
	unit := int64(1)
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if head, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = head, int64(1)<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return 0, strconv.ErrRange
	}

	return n * unit, nil
}
