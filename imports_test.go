package holdfast_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/holdfastdb/holdfast"

// light lists the packages that, with all they import, need nothing but the standard
// library and golang.org/x/sys, so that a program that uses only those compiles nothing else.
var light = []string{
	"", "vfs", "kv", "engine/mem", "engine/logtree", "engine/logtree/simulate", "enginetest/commits", "store/event",
	"store/message", "store/message/aggregate", "store/projection", "store/task", "store/task/worker",
	"client",
}

// layers says what a folder may import of this repository; the longest prefix counts. Imports run
// downwards only; a store imports no engine.
var layers = map[string][]string{
	"":          {},
	"vfs":       {},
	"internal/": {"", "internal/"},
	"driver/":   {"", "driver/"}, // what engines are built on, here and elsewhere
	// The turn is a lock that many want, as engines have one.
	"internal/txn": {"", "driver/crowded"},
	// Never another engine.
	"engine/":                 {"", "driver/", "engine/internal/", "internal/", "vfs"},
	"engine/bbolt/":           {"", "driver/", "engine/bbolt/boltpages", "engine/internal/", "internal/"},
	"engine/internal/":        {"", "driver/", "engine/internal/"},
	"engine/logtree/":         {"", "driver/", "engine/internal/", "engine/logtree/", "vfs"},
	"engine/logtree/simulate": {"", "engine/logtree/internal/", "enginetest/commits", "vfs"},
	"backup/":                 {"", "driver/datadir", "engine/logtree"},
	"engine/all":              {"", "driver/", "engine/", "internal/pgserver", "kv"},
	"enginetest":              {"", "engine/mem", "enginetest/commits", "internal/child", "internal/night"},
	"enginetest/commits":      {""}, // what checks engines depends on none
	"kv":                      {"", "internal/"},
	"store/":                  {"", "driver/lifecycle", "internal/", "kv", "store/internal/"},
	"store/event/eventbus":    {"", "store/event"},
	"store/message/": {
		"",
		"driver/lifecycle",
		"internal/",
		"kv",
		"store/event",
		"store/message/",
		"store/internal/",
	},
	"store/message/aggregate": {"", "internal/failure", "kv", "store/message"},
	"store/task/":             {"", "driver/lifecycle", "internal/", "kv", "store/task/", "store/internal/"},
	"store/task/worker":       {"", "kv", "store/task"},
	"store/task/workertest":   {"", "engine/mem", "kv", "store/task"}, // for tests
	"store/projection":        {"", "internal/", "kv", "store/event", "store/message", "store/internal/"},
	"store/raftlog/": {"", "driver/lifecycle", "engine/bbolt/boltpages", "internal/", "store/raftlog",
		"store/internal/"},
	"store/etcdraft/": {"", "driver/lifecycle", "internal/", "store/etcdraft/", "store/internal/"},
	// For tests.
	"internal/storetest": {"", "driver/", "engine/logtree", "engine/mem", "internal/child", "vfs"},
	"lab/": {"", "api", "client", "driver/datadir", "engine/all", "enginetest/commits", "internal/child",
		"internal/console", "internal/pgserver", "internal/wrapped", "lab/", "server/", "kv", "store/"},
	// The libraries' own options are behind the engines that run them.
	"lab/contender": {"", "driver/", "engine/", "internal/child", "internal/console", "internal/pgserver",
		"internal/wrapped", "lab/", "kv", "store/"},
	"api":            {"store/"}, // whose types it converts
	"server/":        {"", "api", "driver/datadir", "internal/", "server/", "kv", "store/"},
	"server/auth":    {"", "internal/names", "internal/txn", "kv", "store/message"},
	"server/route":   {"", "server/auth"},
	"server/data":    {"", "internal/names", "kv", "store/", "server/auth", "server/fanout"},
	"server/fanout":  {"server/problem"},
	"server/page":    {"server/route"},
	"server/metrics": {"", "internal/wrapped", "kv", "store/"}, // for programs that embed the library, too
	"server/tracing": {},
	"client":         {"", "api", "kv", "store/"},

	"server/nodes/onpostgres": {"", "engine/postgres", "server/nodes"},
	"cmd/": {
		"",
		"api",
		"backup",
		"client",
		"driver/",
		"engine/",
		"internal/",
		"lab/",
		"server",
		"kv",
		"store/",
	},
	"examples/": {"", "client", "engine/", "server/", "kv", "store/"},
	"tools/":    {},

	// With its library, for whoever asks for it: no other package of the server imports it.
	"server/query": {"", "api", "engine/mem", "internal/scratch", "kv", "store/"},
	// What is written to what can only be read is in memory.
	"internal/scratch": {"", "engine/mem", "internal/layers"},
	// For tests.
	"examples/internal/": {"internal/testkit"},

	// The layers of logtree, each of which knows only what is below it.
	"engine/logtree/internal/format": {""},
	"engine/logtree/internal/policy": {}, // it decides from plain numbers
	"engine/logtree/internal/files":  {"", "engine/logtree/internal/format", "vfs"},
	"engine/logtree/internal/check": {"", "engine/logtree/internal/files", "engine/logtree/internal/format",
		"engine/logtree/internal/table",
		"engine/logtree/internal/tree", "engine/logtree/internal/wal", "vfs"},
	"engine/logtree/internal/db": {"", "driver/", "engine/logtree/internal/files",
		"engine/logtree/internal/format",
		"engine/logtree/internal/memtable", "engine/logtree/internal/policy", "engine/logtree/internal/table",
		"engine/logtree/internal/tree", "engine/logtree/internal/wal", "vfs"},
	"engine/logtree/internal/tree": {"", "engine/logtree/internal/files", "engine/logtree/internal/format",
		"engine/logtree/internal/memtable",
		"engine/logtree/internal/table", "vfs"},
	"engine/logtree/internal/wal": {"", "driver/groupcommit", "engine/logtree/internal/files",
		"engine/logtree/internal/format", "vfs"},

	// What a victim does and how it is crashed know of each other only the protocol.
	"lab/crash/internal/protocol": {"", "enginetest/commits"},
	"lab/crash/internal/subjects": {
		"",
		"api",
		"backup",
		"client",
		"enginetest/commits",
		"server",
		"kv",
		"store/",
		"lab/contender",
		"internal/wrapped",
		"lab/internal/clock",
		"lab/crash/internal/protocol",
	},
	"lab/crash/internal/kinds": {"", "driver/datadir", "enginetest/commits", "internal/console", "internal/child",
		"engine/postgres", "lab/blockdev", "lab/crash/internal/fleet", "lab/crash/internal/protocol",
		"lab/internal/machines"},
	"lab/crash/internal/fleet": {"", "api", "client", "engine/postgres", "server", "store/", "lab/internal/clock",
		"lab/crash/internal/protocol"},
	"lab/crash/internal/flawed":   {"", "driver/lifecycle", "engine/mem", "vfs"},
	"lab/crash/internal/evidence": {"", "lab/blockdev", "lab/crash/internal/kinds", "lab/crash/internal/protocol"},
}

// goFiles calls visit with the name of every file of Go in this module, whatever system it is built for.
func goFiles(t *testing.T, visit func(name string) error) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" ||
			d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		return visit(name)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLineLength holds lines at 120 columns, but for help texts: they stand in tags of fields and cannot be folded.
func TestLineLength(t *testing.T) {
	help := regexp.MustCompile("[ `](help|doc):\"")
	goFiles(t, func(name string) error {
		b, err := os.ReadFile(name)
		for i, line := range strings.Split(string(b), "\n") {
			if len(line) > 120 && !help.MatchString(line) {
				t.Errorf("%s:%d: %d bytes long, at most 120", name, i+1, len(line))
			}
		}
		return err
	})
}

// TestImports checks the layers over all files, whatever system they are built for. Tests may
// import anything.
func TestImports(t *testing.T) {
	imports := map[string][]string{} // package folder to import paths
	goFiles(t, func(name string) error {
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), ".")
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[folder] = append(imports[folder], p)
		}
		return nil
	})
	for folder, list := range imports {
		layer, allowed := "", layers[""]
		for prefix, a := range layers {
			if strings.HasPrefix(folder+"/", prefix) && prefix != "" && len(prefix) > len(layer) {
				layer, allowed = prefix, a
			}
		}
		if layer == "" && folder != "" {
			t.Errorf("folder %s is in no layer: add it to the table", folder)
			continue
		}
		for _, p := range list {
			own, ok := strings.CutPrefix(p, module)
			own = strings.TrimPrefix(own, "/")
			if !ok || slices.ContainsFunc(allowed, func(a string) bool {
				return own == strings.TrimSuffix(a, "/") || a != "" && strings.HasPrefix(own, strings.TrimSuffix(a, "/")+"/")
			}) || strings.HasPrefix(own, folder+"/internal/") {
				continue
			}
			t.Errorf("%s imports %q; folders below %q may import only %q of this module", folder, own, layer, allowed)
		}
	}
	for _, folder := range light {
		seen := map[string]bool{}
		var visit func(folder, trail string)
		visit = func(folder, trail string) {
			if seen[folder] {
				return
			}
			seen[folder] = true
			for _, p := range imports[folder] {
				first, _, _ := strings.Cut(p, "/")
				switch own, ok := strings.CutPrefix(p, module); {
				case ok:
					visit(strings.TrimPrefix(own, "/"), trail+" > "+p)
				case strings.Contains(first, ".") && !strings.HasPrefix(p, "golang.org/x/sys/"):
					t.Errorf("%q must need only the standard library and golang.org/x/sys, but%s imports %s", folder, trail, p)
				}
			}
		}
		visit(folder, "")
	}
}

// TestModule holds what the library's own module may require, for users and for its tests. What the other modules
// require is kept from it by go mod tidy, which .ci/run asks without the workspace.
func TestModule(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	direct, _, _ := strings.Cut(string(text), ")")
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v`).FindAllStringSubmatch(direct, -1) {
		got = append(got, m[1])
	}
	want := []string{"github.com/anishathalye/porcupine", "github.com/netresearch/go-cron", "go.uber.org/goleak",
		"golang.org/x/sys", "pgregory.net/rapid"}
	if !slices.Equal(got, want) || strings.Contains(string(text), "replace") {
		t.Errorf("the library requires %q, want %q and no replace directive", got, want)
	}
}
