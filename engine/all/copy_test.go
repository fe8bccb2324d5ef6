package all_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cockroach "github.com/cockroachdb/pebble/v2"
	dgraph "github.com/dgraph-io/badger/v4"
	bolt "go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/kv"
)

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onDisk runs f on every engine of this build that keeps files, some at once: they wait for the disk. It returns when
// all have ended.
func onDisk(t *testing.T, f func(t *testing.T, e all.Entry)) {
	t.Run("on", func(t *testing.T) {
		onDiskInTurn(t, func(t *testing.T, e all.Entry) {
			t.Parallel()
			f(t, e)
		})
	})
}

// onDiskInTurn is onDisk for tests that share something.
func onDiskInTurn(t *testing.T, f func(t *testing.T, e all.Entry)) {
	for _, e := range all.Engines() {
		if e.Describe().Strongest() >= holdfast.Process {
			t.Run(e.Name, func(t *testing.T) { f(t, e) })
		}
	}
}

// files are all files below a path, with the sums of their contents, and times.
func files(t *testing.T, path string) map[string]string {
	t.Helper()
	found := map[string]string{}
	try(t, filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		if _, err := io.Copy(sum, f); err != nil {
			return err
		}
		st, err := f.Stat()
		found[name] = fmt.Sprint(st.ModTime(), st.Mode(), sum.Sum32())
		return err
	}))
	return found
}

// contents are all keys of a directory.
func contents(t *testing.T, engine, dir string) map[string]string {
	t.Helper()
	e, err := all.OpenDir(engine, dir, holdfast.Options{})
	try(t, err)
	found := map[string]string{}
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		found[string(it.Key())] = string(it.Value())
	}
	try(t, it.Close())
	try(t, e.Close())
	return found
}

// refused checks that a copy is answered with that error, and that nothing is made.
func refused(t *testing.T, from string, o all.CopyOptions, class error, say ...string) {
	t.Helper()
	into := filepath.Join(t.TempDir(), "into")
	var before map[string]string
	if class != holdfast.ErrLocked { // reading files that this process has open would give up its locks
		before = files(t, from)
	}
	_, err := all.Copy(t.Context(), from, into, o)
	if !errors.Is(err, class) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want %v", err, class)
	}
	for _, s := range say {
		if err != nil && !strings.Contains(err.Error(), s) {
			t.Errorf("no %q in: %v", s, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(into)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if class != holdfast.ErrLocked && !maps.Equal(before, files(t, from)) {
		t.Error("the source was changed")
	}
}

// copiedTo counts the engines that were copied to.
var copiedTo atomic.Int64

// copied copies to every engine, by day to two of them, which are others each time, and compares what is there with
// want.
func copied(t *testing.T, from string, o all.CopyOptions, want map[string]string, notes ...string) {
	t.Helper()
	before := files(t, from)
	list := slices.DeleteFunc(all.Engines(), func(e all.Entry) bool { return e.Describe().Strongest() < holdfast.Process })
	for range night.Or(len(list), 2) {
		e := list[copiedTo.Add(1)%int64(len(list))]
		into := filepath.Join(t.TempDir(), "into")
		o.Engine = e.Name
		c, err := all.Copy(t.Context(), from, into, o)
		try(t, err)
		if c.Keys != int64(len(want)) || c.Engine != e.Name {
			t.Errorf("%+v, want %d keys", c, len(want))
		}
		for _, n := range notes {
			if !strings.Contains(strings.Join(c.Notes, "\n"), n) {
				t.Errorf("no %q in %q", n, c.Notes)
			}
		}
		if got := contents(t, e.Name, into); !maps.Equal(got, want) {
			t.Errorf("%s: %q, want %q", e.Name, got, want)
		}
		if left, err := os.ReadDir(filepath.Dir(into)); err != nil || len(left) != 1 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	if !maps.Equal(before, files(t, from)) {
		t.Error("the source was changed")
	}
}

func TestCopyBetweenEngines(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		from := filepath.Join(t.TempDir(), "from")
		source, err := e.Open(from, holdfast.Options{})
		try(t, err)
		want := map[string]string{"empty": ""}
		var b holdfast.Batch
		b.Set([]byte("empty"), nil)
		for i := range 1000 {
			k, v := fmt.Sprintf("key/%04d", i), strings.Repeat(fmt.Sprint(i), i%50)
			b.Set([]byte(k), []byte(v))
			want[k] = v
		}
		try(t, holdfast.Commit(source, &b, holdfast.Power))
		refused(t, from, all.CopyOptions{}, holdfast.ErrLocked)
		try(t, source.Close())
		copied(t, from, all.CopyOptions{}, want)
		refused(t, from, all.CopyOptions{Only: "a"}, holdfast.ErrBadOption)
	})
}

func boltFile(t *testing.T, fill func(tx *bolt.Tx) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := bolt.Open(path, 0o600, nil)
	try(t, err)
	try(t, db.Update(fill))
	try(t, db.Close())
	return path
}

func TestCopyBolt(t *testing.T) {
	var users, inner *bolt.Bucket
	path := boltFile(t, func(tx *bolt.Tx) (err error) {
		users, _ = tx.CreateBucket([]byte("users"))
		inner, _ = users.CreateBucket([]byte("by-name"))
		empty, _ := tx.CreateBucket([]byte("none"))
		return errors.Join(users.Put([]byte("1"), []byte("alice")), inner.Put([]byte("alice"), []byte("1")),
			users.Put([]byte("2"), nil), empty.SetSequence(7))
	})
	slash := all.CopyOptions{Separator: '/'}
	copied(t, path, slash, map[string]string{"users/1": "alice", "users/2": "", "users/by-name/alice": "1"},
		`bucket "none/" is empty`, `sequence of bucket "none/" is 7`)
	copied(t, path, all.CopyOptions{Only: "users", Separator: ':'},
		map[string]string{"1": "alice", "2": "", "by-name:alice": "1"})
	copied(t, path, all.CopyOptions{Only: "users/by-name"}, map[string]string{"alice": "1"})
	copied(t, path, all.CopyOptions{Only: "none"}, nil, `bucket "none/" is empty`, `sequence of bucket "none/" is 7`)
	refused(t, path, all.CopyOptions{Only: "users/no"}, holdfast.ErrNotFound, `"users/no"`)
	refused(t, path, all.CopyOptions{Separator: 's'}, holdfast.ErrBadKey, `bucket "users"`)

	same := boltFile(t, func(tx *bolt.Tx) error {
		b, _ := tx.CreateBucket([]byte("b"))
		in, _ := b.CreateBucket([]byte("in"))
		return errors.Join(b.Put([]byte("in/x"), []byte("1")), in.Put([]byte("x"), []byte("2")))
	})
	refused(t, same, slash, holdfast.ErrBadKey, `key "in/x" in bucket "b/"`)
	copied(t, same, all.CopyOptions{Separator: '|'}, map[string]string{"b|in/x": "1", "b|in|x": "2"})

	long := strings.Repeat("k", 20_000)
	refused(t, boltFile(t, func(tx *bolt.Tx) error {
		b, _ := tx.CreateBucket([]byte("b"))
		return b.Put([]byte(long), []byte("v"))
	}), slash, holdfast.ErrBadKey, `"b/kkk`, "20002 bytes", "at most 16384", "--only")

	db, err := bolt.Open(path, 0o600, nil)
	try(t, err)
	refused(t, path, all.CopyOptions{}, holdfast.ErrLocked)
	try(t, db.Close())

	// Damage that the library meets with a panic or a fault.
	b, err := os.ReadFile(same)
	try(t, err)
	for at := 4096 * 2; at < len(b); at += 8 {
		copy(b[at:], bytes.Repeat([]byte{0xff}, 8))
	}
	try(t, os.WriteFile(same, b, 0o600))
	refused(t, same, all.CopyOptions{}, holdfast.ErrCorrupt)
	refused(t, same, slash, holdfast.ErrCorrupt)
}

// buckets are those of a database: by their path, what is in each, and its sequence as the value of no key.
func buckets(tx *kv.Tx) map[string]map[string]string {
	found := map[string]map[string]string{}
	var add func(path []string, names iter.Seq[string])
	add = func(path []string, names iter.Seq[string]) {
		for name := range names {
			path := append(slices.Clip(path), name)
			b, keys := tx.Bucket(path...), map[string]string{}
			for key, value := range b.All() {
				keys[string(key)] = string(value)
			}
			if n, _ := b.Sequence(); n != 0 {
				keys[""] = fmt.Sprint(n)
			}
			found[fmt.Sprintf("%q", path)] = keys
			add(path, b.Buckets())
		}
	}
	add(nil, tx.Buckets())
	return found
}

// TestCopyBoltBuckets: the buckets of a file are those of the database, on every engine that can have one, with what is
// in them, their sequences, and those that have nothing.
func TestCopyBoltBuckets(t *testing.T) {
	long := strings.Repeat("n", kv.MaxNameSize)
	want := map[string]map[string]string{
		`["users"]`: {
			"1":         "alice",
			"2":         "",
			"by-name/x": "no bucket",
			"\x00":      "\x00",
			"":          "18446744073709551615",
		},
		`["users" "by-name"]`:     {"alice": "1", "": "3"},
		`["users" "by-name" "a"]`: {},
		`["none"]`:                {"": "7"},
		`["a/b"]`:                 {"k": strings.Repeat("v", 2<<20)}, // more than one transaction has
		fmt.Sprintf("%q", []string{long, "\x00\xff"}): {"k": "v"},
		fmt.Sprintf("%q", []string{long}):             {},
	}
	many := map[string]string{}
	want[`["many"]`] = many
	path := boltFile(t, func(tx *bolt.Tx) (err error) {
		users, _ := tx.CreateBucket([]byte("users"))
		names, _ := users.CreateBucket([]byte("by-name"))
		_, err = names.CreateBucket([]byte("a"))
		none, _ := tx.CreateBucket([]byte("none"))
		ab, _ := tx.CreateBucket([]byte("a/b"))
		outer, _ := tx.CreateBucket([]byte(long))
		inner, _ := outer.CreateBucket([]byte("\x00\xff"))
		manyIn, _ := tx.CreateBucket([]byte("many"))
		for i := range 5000 {
			k, v := fmt.Sprintf("%05d", i), strings.Repeat("v", i%1000)
			many[k] = v
			err = errors.Join(err, manyIn.Put([]byte(k), []byte(v)))
		}
		return errors.Join(err, users.Put([]byte("1"), []byte("alice")), users.Put([]byte("2"), nil),
			users.Put([]byte("by-name/x"), []byte("no bucket")), users.Put([]byte{0}, []byte{0}),
			users.SetSequence(1<<64-1), names.Put([]byte("alice"), []byte("1")), names.SetSequence(3), none.SetSequence(7),
			ab.Put([]byte("k"), bytes.Repeat([]byte("v"), 2<<20)), inner.Put([]byte("k"), []byte("v")))
	})
	before := files(t, path)
	onDiskInTurn(t, func(t *testing.T, e all.Entry) {
		if !e.Describe().AtomicBatches {
			refused(t, path, all.CopyOptions{Engine: e.Name}, holdfast.ErrBadOption, "no atomic batches", "--separator")
			return
		}
		into := filepath.Join(t.TempDir(), "into")
		c, err := all.Copy(t.Context(), path, into, all.CopyOptions{Engine: e.Name})
		try(t, err)
		if c.Keys != 5000+7 || c.Buckets != int64(len(want)) || len(c.Notes) > 0 || c.Source != "bbolt" {
			t.Errorf("%+v", c)
		}
		engine, err := e.Open(into, holdfast.Options{})
		try(t, err)
		defer engine.Close()
		try(t, kv.On(engine).View(t.Context(), func(tx *kv.Tx) error {
			got := buckets(tx)
			for path, keys := range want {
				if !maps.Equal(got[path], keys) {
					t.Errorf("%.100s: %.200q, want %.200q", path, got[path], keys)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d buckets, want %d", len(got), len(want))
			}
			return nil
		}))
	})
	if !maps.Equal(before, files(t, path)) {
		t.Error("the source was changed")
	}
}

// TestCopyBoltBucketsRefused: what a database cannot have is named, and nothing is made.
func TestCopyBoltBucketsRefused(t *testing.T) {
	name := strings.Repeat("n", kv.MaxNameSize)
	for _, c := range []struct {
		path  []string
		key   string
		class error
		say   []string
	}{
		{[]string{"b"}, strings.Repeat("k", 16_384-6), holdfast.ErrBadKey,
			[]string{`key "kkkk`, `in bucket "b"`, "16378 bytes"}},
		{[]string{"b", name + "n"}, "k", holdfast.ErrBadOption, []string{`bucket "b" > "nnnn`, "1025 bytes"}},
		{slices.Repeat([]string{name}, 16), "k", holdfast.ErrBadKey,
			[]string{`bucket "nnnn`, "(8 more)", "too long together"}},
	} {
		refused(t, boltFile(t, func(tx *bolt.Tx) (err error) {
			at := tx.Cursor().Bucket()
			for _, name := range c.path {
				at, err = at.CreateBucket([]byte(name))
				try(t, err)
			}
			return at.Put([]byte(c.key), []byte("v"))
		}), all.CopyOptions{}, c.class, c.say...)
	}
}

func TestCopyBadger(t *testing.T) {
	dir := t.TempDir()
	options := dgraph.DefaultOptions(dir).WithLogger(nil).WithNumVersionsToKeep(10).WithValueLogFileSize(8 << 20)
	db, err := dgraph.Open(options)
	try(t, err)
	big := strings.Repeat("v", 2<<20)
	try(t, db.Update(func(tx *dgraph.Txn) error {
		return errors.Join(tx.Set([]byte("a"), []byte("old")), tx.Set([]byte("gone"), []byte("x")),
			tx.Set([]byte("big"), []byte(big)),
			tx.SetEntry(dgraph.NewEntry([]byte("t"), []byte("1")).WithTTL(time.Hour).WithMeta(3)))
	}))
	try(t, db.Update(func(tx *dgraph.Txn) error {
		return errors.Join(tx.Set([]byte("a"), []byte("new")), tx.Delete([]byte("gone")))
	}))
	want := map[string]string{"a": "new", "big": big, "t": "1"}
	refused(t, dir, all.CopyOptions{}, holdfast.ErrLocked)
	try(t, db.Close())
	copied(t, dir, all.CopyOptions{}, want, "1 keys have a time to live", "1 keys have user metadata")
	refused(t, dir, all.CopyOptions{Only: "a"}, holdfast.ErrBadOption, "badger has neither")

	// The library leaves out a damaged table and opens.
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	b, err := os.ReadFile(tables[0])
	try(t, err)
	b[10] ^= 1
	try(t, os.WriteFile(tables[0], b, 0o600))
	refused(t, dir, all.CopyOptions{}, holdfast.ErrCorrupt)

	secret := t.TempDir()
	db, err = dgraph.Open(dgraph.DefaultOptions(secret).WithLogger(nil).WithValueLogFileSize(8 << 20).
		WithEncryptionKey(make([]byte, 32)).WithIndexCacheSize(1 << 20))
	try(t, err)
	try(t, db.Close())
	refused(t, secret, all.CopyOptions{}, holdfast.ErrCorrupt, "Encryption key mismatch")
}

func TestCopyPebble(t *testing.T) {
	dir := t.TempDir()
	db, err := cockroach.Open(dir, &cockroach.Options{Logger: quiet{},
		FormatMajorVersion: cockroach.FormatVirtualSSTables})
	try(t, err)
	try(t, db.Set([]byte("a"), []byte("1"), cockroach.Sync))
	try(t, db.Flush())
	try(t, db.Merge([]byte("a"), []byte("2"), cockroach.Sync))
	try(t, db.Set([]byte("b"), nil, cockroach.Sync))
	try(t, db.Set([]byte("c"), []byte("3"), cockroach.Sync))
	try(t, db.DeleteRange([]byte("c"), []byte("d"), cockroach.Sync))
	try(t, db.Close())
	copied(t, dir, all.CopyOptions{}, map[string]string{"a": "12", "b": ""})

	db, err = cockroach.Open(dir, &cockroach.Options{Logger: quiet{}, FormatMajorVersion: cockroach.FormatVirtualSSTables})
	try(t, err)
	try(t, db.RangeKeySet([]byte("x"), []byte("z"), nil, []byte("v"), cockroach.Sync))
	if runtime.GOOS == "linux" { // the system tells who has it locked
		refused(t, dir, all.CopyOptions{}, holdfast.ErrLocked, "by this process")
	}
	try(t, db.Close())
	refused(t, dir, all.CopyOptions{}, holdfast.ErrBadKey, `range key ["x", "z")`)

	other := t.TempDir()
	db, err = cockroach.Open(other, &cockroach.Options{Logger: quiet{}, Merger: &cockroach.Merger{Name: "mine"}})
	try(t, err)
	try(t, db.Close())
	refused(t, other, all.CopyOptions{}, holdfast.ErrCorrupt, "merger name")
}

type quiet struct{ cockroach.Logger }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}

func sqliteFile(t *testing.T, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app with % and ?.sqlite")
	run(t, path, statements...)
	return path
}

func run(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", " ", "%20").Replace(path))
	try(t, err)
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	try(t, db.Close())
}

func TestCopySQLite(t *testing.T) {
	for _, encoding := range []string{"UTF-8", "UTF-16le"} {
		path := sqliteFile(t, "PRAGMA encoding = '"+encoding+"'", "PRAGMA journal_mode = WAL",
			"CREATE TABLE kv(k TEXT PRIMARY KEY, v BLOB)", "INSERT INTO kv VALUES('ä', x'00ff'), ('b', 'tëxt'), ('n', 17)",
			"CREATE TABLE orders(id INTEGER PRIMARY KEY, name TEXT, price REAL, at DATETIME, raw BLOB, no)",
			"INSERT INTO orders VALUES(258, 'a\"<b>', 0.1, '2024-01-02 03:04:05', x'01', NULL), (1, '', 2, 5, x'', 3)",
			"CREATE TABLE plain(text)", "INSERT INTO plain VALUES('one')", "CREATE VIEW seen AS SELECT * FROM kv",
			"CREATE INDEX i ON orders(name)")
		copied(t, path, all.CopyOptions{}, map[string]string{
			"kv/ä": "\x00\xff", "kv/b": "tëxt", "kv/n": "17", "plain/\x00\x00\x00\x00\x00\x00\x00\x01": "one",
			"orders/\x00\x00\x00\x00\x00\x00\x01\x02": `{"name":"a\"\u003cb\u003e","price":0.1,"at":"2024-01-02 ` +
				`03:04:05","raw":{"base64":"AQ=="},"no":null}`,
			"orders/\x00\x00\x00\x00\x00\x00\x00\x01": `{"name":"","price":2,"at":5,"raw":{"base64":""},"no":3}`,
		})
		copied(t, path, all.CopyOptions{Only: "kv"}, map[string]string{"ä": "\x00\xff", "b": "tëxt", "n": "17"})
		refused(t, path, all.CopyOptions{Only: "no"}, holdfast.ErrNotFound, `"no"`)
	}
	for _, c := range []struct {
		class      error
		say        string
		statements []string
	}{
		{holdfast.ErrBadOption, `table "t" has 2 columns`, []string{"CREATE TABLE t(a, b, c, PRIMARY KEY(a, b))"}},
		{holdfast.ErrBadOption, `and 0 others`, []string{"CREATE TABLE t(a PRIMARY KEY)"}},
		{holdfast.ErrBadOption, `is a virtual table`, []string{"CREATE VIRTUAL TABLE f USING fts5(x)"}},
		{holdfast.ErrBadKey, `"s/t" has the separator`, []string{`CREATE TABLE "s/t"(a PRIMARY KEY, b)`}},
		{holdfast.ErrBadKey, `primary key -1`,
			[]string{"CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "INSERT INTO t VALUES(-1, 1)"}},
		{holdfast.ErrBadKey, `type blob, and others of type text`,
			[]string{"CREATE TABLE t(a PRIMARY KEY, b)", "INSERT INTO t VALUES('x', 1), (x'78', 2)"}},
		{holdfast.ErrBadKey, `primary key of type null`,
			[]string{"CREATE TABLE t(a TEXT PRIMARY KEY, b)", "INSERT INTO t VALUES(NULL, 1)"}},
		{holdfast.ErrBadOption, `key "t/x" has NULL`,
			[]string{"CREATE TABLE t(a PRIMARY KEY, b)", "INSERT INTO t VALUES('x', NULL)"}},
		{holdfast.ErrBadOption, `real in column "b"`,
			[]string{"CREATE TABLE t(a PRIMARY KEY, b, c)", "INSERT INTO t VALUES('x', 9e999, 1)"}},
	} {
		refused(t, sqliteFile(t, c.statements...), all.CopyOptions{}, c.class, c.say)
	}
}

// TestCopySQLiteInUse: in the log there are rows that the file lacks.
func TestCopySQLiteInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sqlite")
	db, err := sql.Open("sqlite", path)
	try(t, err)
	db.SetMaxOpenConns(1)
	for _, s := range []string{"PRAGMA journal_mode = WAL", "PRAGMA wal_autocheckpoint = 0",
		"CREATE TABLE kv(k PRIMARY KEY, v)", "INSERT INTO kv VALUES('a', 'b')"} {
		_, err := db.Exec(s)
		try(t, err)
	}
	if runtime.GOOS == "linux" {
		refused(t, path, all.CopyOptions{}, holdfast.ErrLocked, "by this process")
	}
	// As a crash leaves them.
	crashed := filepath.Join(t.TempDir(), "app.sqlite")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		try(t, err)
		try(t, os.WriteFile(crashed+suffix, b, 0o600))
	}
	try(t, db.Close())
	copied(t, crashed, all.CopyOptions{}, map[string]string{"kv/a": "b"})
}

// TestCopyKeepsLoss: what a repair could not salvage is not forgotten on another engine.
func TestCopyKeepsLoss(t *testing.T) {
	from, into := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "into")
	e, err := all.Open("bbolt", from, holdfast.Options{})
	try(t, err)
	try(t, e.Close())
	mark, err := os.OpenFile(filepath.Join(from, "HOLDFAST"), os.O_WRONLY|os.O_APPEND, 0)
	try(t, err)
	_, err = mark.WriteString("lost two keys\n")
	try(t, err)
	try(t, mark.Close())
	_, err = all.Copy(t.Context(), from, into, all.CopyOptions{Engine: "pebble"})
	try(t, err)
	if in, err := all.Inspect(into); err != nil || in.Lost != "two keys" || in.Engine != "pebble" {
		t.Errorf("%+v, %v", in, err)
	}
}

func TestCopyRefuses(t *testing.T) {
	newer := filepath.Join(t.TempDir(), "newer")
	e, err := all.Open("pebble", newer, holdfast.Options{})
	try(t, errors.Join(err, e.Close()))
	try(t, os.WriteFile(filepath.Join(newer, "HOLDFAST"), []byte("holdfast 1\nengine pebble\nformat 99\n"), 0o644))
	refused(t, newer, all.CopyOptions{}, holdfast.ErrVersion, newer+": ")

	text := filepath.Join(t.TempDir(), "text")
	try(t, os.WriteFile(text, []byte("no store"), 0o600))
	refused(t, text, all.CopyOptions{}, holdfast.ErrForeign, "neither by holdfast nor by")
	refused(t, t.TempDir(), all.CopyOptions{}, holdfast.ErrForeign)
	bolt := boltFile(t, func(tx *bolt.Tx) error { return nil })
	refused(t, bolt, all.CopyOptions{Engine: "mem"}, holdfast.ErrBadOption)
	refused(t, bolt, all.CopyOptions{Engine: "rocks"}, holdfast.ErrBadOption, "rocks")
	refused(t, bolt, all.CopyOptions{Open: holdfast.Options{ReadOnly: true}}, holdfast.ErrBadOption)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	into := filepath.Join(t.TempDir(), "into")
	if _, err := all.Copy(ctx, bolt, into, all.CopyOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := all.Copy(t.Context(), filepath.Join(into, "gone"), into, all.CopyOptions{}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Error(err)
	}
	try(t, os.MkdirAll(filepath.Join(into, "x"), 0o700))
	if _, err := all.Copy(t.Context(), bolt, into, all.CopyOptions{}); !errors.Is(err, holdfast.ErrBadOption) ||
		!strings.Contains(err.Error(), "not empty") {
		t.Error(err)
	}
}
