//lint:file-ignore SA4006 the snippets of the README leave the errors to the reader

package examples_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/task"
)

// The code of the README and the pages in docs: TestDocsCode checks that all of it is in a test file, so that it
// compiles.

var (
	ctx       = context.Background()
	data      []byte
	config    *raft.Config
	machine   raft.FSM
	snapshots raft.SnapshotStore
	transport raft.Transport
)

func Example_open() {
	engine, err := logtree.Open("/var/lib/orders", holdfast.Options{})
	// or, with the choice left to a setting:
	engine, err = all.OpenURL("logtree:/var/lib/orders") // or pebble:, badger:, bbolt:, sqlite:, sqlite-go:, files:, mem:

	var batch holdfast.Batch
	batch.Set([]byte("order/17"), data)
	batch.Delete([]byte("cart/alice"))

	receipt, err := engine.Apply(&batch, holdfast.Power) // its place is fixed
	err = receipt.Wait()                                 // it, and all before it, survive power loss

	err = holdfast.Commit(engine, &batch, holdfast.Process) // both in one call
	_ = err
}

func Example_postgres() {
	engine, err := postgres.Open("postgres://app@10.0.0.5/app?space=orders", holdfast.Options{})
	_, _ = engine, err
}

func Example_quorum() {
	engine, err := postgres.Open("postgres://app@pg1,pg2,pg3/app?space=orders", holdfast.Options{Level: holdfast.Quorum})
	orders, err := message.Open(kv.On(engine), message.Options{}) // each write is on two machines when it returns
	_, _ = orders, err
}

func Example_scan() {
	var engine holdfast.Engine
	it := engine.Scan(holdfast.Prefix([]byte("order/")))
	defer it.Close()
	for it.Next() {
		fmt.Printf("%s %s\n", it.Key(), it.Value())
	}
	if err := it.Err(); err != nil {
		fmt.Println(err)
	}
}

func Example_ask() {
	var engine holdfast.Engine
	fmt.Println(engine.Capabilities().Power.How) // write to the log and fdatasync, shared by all that wait
	fmt.Println(engine.Metrics().Syncs)          // how often the device was asked
}

func Example_backup() {
	var engine holdfast.Engine
	keys, err := all.Backup(ctx, engine, "/var/backups/orders")
	_, _ = keys, err
}

func Example_backupOfOneEngine() {
	var engine holdfast.Engine
	keys, err := logtree.Backup(ctx, engine, "/var/backups/orders")
	_, _ = keys, err
}

func Example_checkpoint() {
	var engine holdfast.Engine
	err := holdfast.Checkpoint(ctx, engine, "/var/lib/orders-before-upgrade") // on the same file system
	_ = err
}

func Example_metrics() {
	var engine holdfast.Engine
	m := engine.Metrics()
	if m.Poison != nil {
		fmt.Println("writing has ended; close the engine, find the cause, open it again:", m.Poison)
	}
	if m.Trouble != nil {
		fmt.Println("look at the directory:", m.Trouble)
	}
}

func Example_done() {
	var engine holdfast.Engine
	go func() {
		<-engine.Done()
		if err := engine.Err(); errors.Is(err, holdfast.ErrPoisoned) {
			fmt.Println("writing has ended:", err)
		}
	}()
}

func Example_memory() {
	engine, err := logtree.Open("/var/lib/orders", holdfast.Options{MemoryBytes: 64 << 20})
	engine, err = all.OpenURL("logtree:/var/lib/orders?memory=64MiB")
	_, _ = engine, err
}

func Example_event() {
	_ = readmeEvent // an example returns nothing
}

func readmeEvent() error {
	engine, err := logtree.Open("/var/lib/orders", holdfast.Options{})
	log, err := event.Open(kv.On(engine), event.Options{Level: holdfast.Power})

	placed := event.Event{Type: "OrderPlaced", Data: data, ID: "order-17"}
	result, err := log.Append(ctx, placed) // returns once it survives power loss
	fmt.Println(result.First)              // its position, from 1
	fmt.Println(result.Repeated)           // true if that was appended before, with the same content: nothing was added

	_, err = log.AppendAfter(ctx, 17, event.Event{Type: "OrderPaid"}) // if 17 is still the last, else event.ErrConflict

	for e, err := range log.Follow(ctx, 1) { // what is there, then what comes; no polling
		if err != nil {
			return err
		}
		fmt.Println(e.Position, e.Type)
	}
	err = log.Close()    // stores first,
	err = engine.Close() // then their engine
	return err
}

func Example_message() {
	_ = readmeMessage
}

func readmeMessage(engine holdfast.Engine) error {
	store, err := message.Open(kv.On(engine), message.Options{Level: holdfast.Power})
	orders, err := store.Namespace(ctx, message.Default)

	placed := message.Message{Type: "Placed", Data: []byte(`{"items": 3}`)}
	r, err := orders.WriteAfter(ctx, "order-17", message.NoStream, placed) // else message.ErrConflict
	fmt.Println(r.Position, r.Global)

	for m, err := range orders.Follow(ctx, message.Query{Category: "order"}) {
		if err != nil {
			return err
		}
		fmt.Println(m.Stream, m.Position, m.Global, m.Type)
	}

	work, err := orders.Subscribe(ctx, "mails", message.SubscriptionOptions{Query: message.Query{Category: "order"}})
	deliveries, err := work.Claim(ctx, 10) // shared by any number of workers; delivered again until acknowledged
	err = work.Ack(ctx, deliveries...)
	return err
}

func Example_tasks() {
	_ = readmeTasks
}

func readmeTasks(engine holdfast.Engine) error {
	db := kv.On(engine) // at Power
	tasks, err := task.Open(db, task.Options{})
	err = tasks.SetQueue(ctx, "mail", task.QueueOptions{KeyConcurrency: 2, KeyRate: task.Rate{N: 10, Per: time.Minute}})

	mail := task.Spec{Queue: "mail", Kind: "welcome", Payload: data, Key: "customer-17", Unique: "welcome-17"}
	err = db.Update(ctx, func(tx *kv.Tx) error { // all of it, or nothing
		if err := tx.Bucket("customers").Put([]byte("17"), data); err != nil {
			return err
		}
		_, err := tasks.In(tx).Enqueue(mail)
		return err
	})

	leases, err := tasks.Claim(ctx, task.ClaimOptions{Queues: []string{"mail"}, Wait: true}) // no polling
	err = tasks.Complete(ctx, leases...)                                                     // else task.ErrLeaseLost
	return err
}

func Example_raft() {
	var engine holdfast.Engine
	store, err := raftlog.Open(engine, raftlog.Options{})
	node, err := raft.NewRaft(config, machine, store, store, snapshots, transport)
	_, _ = node, err
}

func Example_errors() {
	_ = readmeErrors
}

func readmeErrors(events *event.Store, last uint64, e event.Event) {
	switch _, err := events.AppendAfter(ctx, last, e); {
	case errors.Is(err, event.ErrConflict): // somebody was faster: read, decide again
	case errors.Is(err, holdfast.ErrFull): // nothing was written: make room, or answer 507
	case errors.Is(err, holdfast.ErrPoisoned): // writing has ended: reopen
	}
}

// TestMain works in the directory above, in which the pages are.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	m.Run()
}

// pages are the files that users read.
func pages(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md", "DESIGN.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	for _, folder := range []string{"docs", "lab/results"} {
		err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
			if strings.HasSuffix(name, ".md") {
				list = append(list, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// plain is text without what differs between a page and a test: indentation and empty lines.
func plain(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// TestDocsCode: every block of Go is in a test file, where only := may be =.
func TestDocsCode(t *testing.T) {
	var tests string
	for _, pattern := range []string{"*_test.go", "examples/*_test.go", "store/*/*_test.go", "engine/all/*_test.go",
		"backup/*_test.go",
		"client/*_test.go", "server/*/*_test.go", "examples/start/*/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			tests += plain(strings.ReplaceAll(readPage(t, name), " := ", " = ")) + "\n"
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, page := range pages(t) {
		for _, block := range blocks.FindAllStringSubmatch(readPage(t, page), -1) {
			if code := plain(strings.ReplaceAll(block[1], " := ", " = ")); !strings.Contains(tests, code) {
				t.Errorf("%s: this is in no test:\n%s", page, block[1])
			}
		}
	}
}

// TestDocsLinks: every relative link leads to a file, and to a heading if it names one.
func TestDocsLinks(t *testing.T) {
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, page := range pages(t) {
		for _, link := range links.FindAllStringSubmatch(readPage(t, page), -1) {
			if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(link[1], "#")
			target := filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
			if file == "" {
				target = page
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if anchor == "" {
				continue
			}
			found := slices.ContainsFunc(headings.FindAllStringSubmatch(readPage(t, target), -1), func(h []string) bool {
				h[1] = strings.ToLower(h[1])
				return strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(h[1], ""), " ", "-") == anchor
			})
			if !found {
				t.Errorf("%s: %s has no heading for #%s", page, target, anchor)
			}
		}
	}
}

// TestErrorsPage: docs/errors.md names each class of errors of the packages that users import, and each code of the
// API.
func TestErrorsPage(t *testing.T) {
	page := readPage(t, "docs/errors.md")
	class := regexp.MustCompile(`(?m)^(?:var|)\s*(Err\w+)\s+= (?:errors\.New|event\.Err)`)
	code := regexp.MustCompile(`(?m)^\tCode\w+\s+= "(\w+)"`)
	names := 0
	for _, pattern := range []string{"*.go", "store/*/*.go", "store/*/*/*.go", "client/*.go", "api/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "internal") {
				continue
			}
			folder := path.Base(path.Dir(filepath.ToSlash(file)))
			text := readPage(t, file)
			for _, m := range class.FindAllStringSubmatch(text, -1) {
				names++
				// Those of events, and of package holdfast, stand under a heading that names the package.
				named := "| `" + folder + "." + m[1] + "` |"
				if folder == "." || folder == "event" {
					named = "| `" + m[1] + "` |"
				}
				if !strings.Contains(page, named) {
					t.Errorf("docs/errors.md has no row for %s of %s", m[1], file)
				}
			}
			for _, m := range code.FindAllStringSubmatch(text, -1) {
				names++
				if !strings.Contains(page, "| `"+m[1]+"` |") {
					t.Errorf("docs/errors.md has no row for the code %s", m[1])
				}
			}
		}
	}
	if names < 60 {
		t.Errorf("only %d classes and codes were found", names)
	}
}

// TestPackageComments: the comment of each package that users import begins with its shortest use.
func TestPackageComments(t *testing.T) {
	// They are parts of the server, or of tests, which nobody imports alone.
	parts := []string{"enginetest/commits", "server/clienttest", "server/ebuse", "server/eventodb", "server/fanout",
		"server/nodes/nodestest", "server/page", "server/problem", "server/route", "server/v1", "store/message/importtest"}
	use := regexp.MustCompile(`(?m)\A(//.*\n){1,9}//\t`)
	packages := 0
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		dir = filepath.ToSlash(dir)
		others := []string{"cmd", "examples", "lab", "tools", "internal", "testdata", "node_modules"}
		if dir != "." && strings.HasPrefix(d.Name(), ".") || slices.Contains(others, d.Name()) {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || slices.Contains(parts, dir) {
			return err
		}
		for _, file := range files {
			if _, comment, ok := strings.Cut("\n"+readPage(t, file), "\n// Package "); ok {
				packages++
				if !use.MatchString("// Package " + comment) {
					t.Errorf("the comment of %s does not begin with a use", file)
				}
			}
		}
		return nil
	})
	if err != nil || packages < 25 {
		t.Error(packages, err)
	}
}

// TestDesignNamesEveryPackage, in its list of the layout.
func TestDesignNamesEveryPackage(t *testing.T) {
	_, layout, ok := strings.Cut(readPage(t, "DESIGN.md"), "## Layout")
	layout, _, end := strings.Cut(layout, "\n## ")
	if !ok || !end {
		t.Fatal("DESIGN.md has no layout")
	}
	named := strings.FieldsFunc(layout, func(r rune) bool { return strings.ContainsRune(" \n\t`,;:()", r) })
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || dir == "." {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if code, err := filepath.Glob(filepath.Join(dir, "*.go")); err != nil || len(code) == 0 {
			return err
		}
		if dir = filepath.ToSlash(dir); !slices.Contains(named, dir+"/") {
			t.Errorf("DESIGN.md does not name %s/", dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
