package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/console"
)

// TestMain plays the child when a test starts this binary again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		os.Exit(Child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func TestSoak(t *testing.T) {
	for _, engine := range []string{"logtree", "pebble"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // it waits for the time to pass
			dir := t.TempDir()
			var out bytes.Buffer
			err := Command(t.Context(), Request{Engine: engine, Level: holdfast.Process, Bytes: 2 << 20, Writers: 4,
				For: 3 * time.Second, Seed: 1, Dir: dir}, console.Terminal{Out: &out, Err: &out})
			if err != nil || Status(err) != console.ExitOK {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, want := range []string{"killed", "all ", "after everything was deleted", "nothing was lost"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	var out bytes.Buffer
	for name, change := range map[string]func(q *Request){
		"no such engine":    func(q *Request) { q.Engine = "nosuch" },
		"no whole batches":  func(q *Request) { q.Engine = "files" },
		"nothing on a disk": func(q *Request) { q.Engine = "mem" },
		"memory":            func(q *Request) { q.Level = holdfast.Memory },
		"no writers":        func(q *Request) { q.Writers = 0 },
		"too many writers":  func(q *Request) { q.Writers = 1000 },
		"no time":           func(q *Request) { q.For = 0 },
		"a negative time":   func(q *Request) { q.For = -time.Second },
		"a negative size":   func(q *Request) { q.Bytes = -1 << 20 },
		"too little memory": func(q *Request) { q.RAM = 1 << 20 },
		"negative memory":   func(q *Request) { q.RAM = -1 << 20 },
	} {
		q := Request{Engine: "logtree", Level: holdfast.Process, Bytes: 1 << 20, Writers: 1, For: time.Second,
			Dir: t.TempDir()}
		change(&q)
		err := Command(t.Context(), q, console.Terminal{Out: &out, Err: &out})
		if !errors.Is(err, holdfast.ErrBadOption) || Status(err) != console.ExitUse {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKeepsWhatIsBroken: what a run has found broken stays when the next one works in the same place.
func TestKeepsWhatIsBroken(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no sh on Windows")
	}
	dir := t.TempDir()
	script := `read request; dir=$(printf '%s' "$request" | sed 's/.*"Dir":"\([^"]*\)".*/\1/'); mkdir -p "$dir"; ` +
		`echo left >"$dir/file"; echo '{"Wrong":"key 7 is missing"}'`
	var out bytes.Buffer
	for range 2 {
		err := Command(t.Context(), Request{Engine: "logtree", Level: holdfast.Process, Bytes: 1 << 20, Writers: 1,
			For: time.Second, Dir: dir, Child: []string{"sh", "-c", script}}, console.Terminal{Out: &out, Err: &out})
		if !errors.Is(err, ErrBroken) || Status(err) != console.ExitWrong ||
			!strings.Contains(err.Error(), "key 7 is missing") {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	kept, err := filepath.Glob(filepath.Join(dir, "holdfast-evidence-*", "data", "file"))
	all, err2 := os.ReadDir(dir)
	if len(kept) != 2 || len(all) != 2 || err != nil || err2 != nil {
		t.Errorf("%v is kept, %v is there, %v, %v\n%s", kept, all, err, err2, out.String())
	}
}

// TestFindsOut: whatever is wrong with what is left is found out.
func TestFindsOut(t *testing.T) {
	s := script{Seed: 1, Writers: 2, Keys: 500}
	const batches = 400
	model := s.replay(1, batches)
	there := func(i int) int { // the first key from i on that is there
		for model[i] == 0 {
			i++
		}
		return i
	}
	gone := 0
	for model[gone] != 0 {
		gone++
	}
	set := func(i int, value []byte) func(b *holdfast.Batch) {
		return func(b *holdfast.Batch) { b.Set(key(1, i), value) }
	}
	for name, x := range map[string]struct {
		harm func(b *holdfast.Batch)
		want string
	}{
		"nothing":          {nil, ""},
		"a key is lost":    {func(b *holdfast.Batch) { b.Delete(key(1, there(100))) }, "is missing"},
		"the last is lost": {func(b *holdfast.Batch) { b.DeleteRange(key(1, 490), key(1, 500)) }, "is missing"},
		"an old value":     {set(there(100), s.value(nil, 1, there(100), model[there(100)]-1)), "has the value of batch"},
		"a deleted key":    {set(gone, s.value(nil, 1, gone, 1)), "has the value of batch 1, not of 0"},
		"a torn value":     {set(there(7), s.value(nil, 1, there(7), model[there(7)])[:10]), "never written"},
		"another's value":  {set(there(7), s.value(nil, 1, there(7)+1, model[there(7)])), "never written"},
		"an unknown key":   {set(501, []byte("x")), "was never written"},
		"a batch is lost": {func(b *holdfast.Batch) { b.Set(marker(1), make([]byte, 8)) },
			"batches acknowledged, and 0 are there"},
	} {
		e, err := mem.Open("", holdfast.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b holdfast.Batch
		var pcg rand.PCG
		for w := range s.Writers {
			for n := range uint64(batches) {
				s.fill(&b, w, n+1, &pcg, nil)
				if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
					t.Fatal(err)
				}
			}
		}
		if b.Reset(); x.harm != nil {
			x.harm(&b)
			if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		v := &victim{out: json.NewEncoder(&out), request: request{Script: s, Full: true, Acked: []uint64{batches, batches}}}
		_, err = v.check(e, time.Now())
		if x.want == "" && err != nil ||
			x.want != "" && (!errors.Is(err, errWrong) || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
