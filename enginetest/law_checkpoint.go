package enginetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfastdb/holdfast"
)

// A checkpoint has what was visible when it was asked for, and perhaps what came while it was made, and nothing that is
// done later to what it was made of changes it; nor the other way round. It can be checkpointed itself.
func checkpointed(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	copies := a.TempDir()
	at := func(name string) string { return filepath.Join(copies, name) }
	c, ok := e.(holdfast.Checkpointer)
	if !ok {
		a.Logf("does not apply: the engine is no Checkpointer")
		a.wantsErr("Checkpoint of an engine that cannot", holdfast.Checkpoint(context.Background(), e, at("one")),
			holdfast.ErrUnavailable)
		a.close(e)

		return
	}
	a.refusesCheckpoints(e, c, dir, copies)
	const n = 100
	a.commitScript(e, 1, n)
	a.checkpoint(e, at("one"))

	var group sync.WaitGroup
	group.Go(func() { a.commitScript(e, n+1, 2*n) })
	a.checkpoint(e, at("deep/two")) // while there are writers
	group.Wait()
	a.checkpoint(e, at("three"))

	// What shares files with others is written to, and they are not.
	one := a.open(at("one"))
	a.wantsScript(one, n, n)
	a.commitScript(one, n+1, n+20)
	a.checkpoint(one, at("of one"))
	var b holdfast.Batch
	b.DeleteRange(nil, nil)
	a.commit(e, &b)
	a.compactIfItCan(e)
	a.commitScript(e, 1, 3)
	a.wantsScript(one, n+20, n+20)
	a.close(one)
	a.closeAndCheck(e, dir, func(e holdfast.Engine) { a.wantsScript(e, 3, 3) })

	for name, least := range map[string]uint64{"one": n + 20, "of one": n + 20, "deep/two": n, "three": 2 * n} {
		most := least
		if name == "deep/two" {
			most = 2 * n
		}

		for range 2 {
			e := a.open(at(name))
			a.wantsScript(e, least, most)
			a.close(e)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		a.Fatalf("removing a directory whose engine is closed: %v", err)
	}
	three := a.open(at("three"))
	a.compactIfItCan(three)
	a.commitScript(three, 2*n+1, 3*n)
	a.closeAndCheck(three, at("three"), func(e holdfast.Engine) { a.wantsScript(e, 3*n, 3*n) })
	a.wantsErr("Checkpoint after Close", c.Checkpoint(context.Background(), at("late")), holdfast.ErrClosed)
}

// refusesCheckpoints asks for checkpoints that cannot be, and looks that none leaves anything.
func (a *trial) refusesCheckpoints(e holdfast.Engine, c holdfast.Checkpointer, dir, copies string) {
	a.Helper()
	var none context.Context
	ended, end := context.WithCancel(context.Background())
	end()

	for _, x := range []struct {
		what string
		ctx  context.Context
		dir  string
		want error
	}{
		{"without a context", none, filepath.Join(copies, "not"), holdfast.ErrBadOption},
		{"with a context that has ended", ended, filepath.Join(copies, "not"), context.Canceled},
		{"into no directory", context.Background(), "", holdfast.ErrBadOption},
		{"into its own directory", context.Background(), dir, holdfast.ErrBadOption},
		{"below its own directory", context.Background(), filepath.Join(dir, "not"), holdfast.ErrBadOption},
	} {
		a.wantsErr("Checkpoint "+x.what, c.Checkpoint(x.ctx, x.dir), x.want)
	}
	left, err := os.ReadDir(copies)
	if err != nil || len(left) > 0 {
		a.Errorf("checkpoints that were refused leave %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "not")); !errors.Is(err, fs.ErrNotExist) {
		a.Errorf("a checkpoint that was refused has left something in the engine's directory: %v", err)
	}
	full := filepath.Join(a.TempDir(), "full")
	if err := errors.Join(os.Mkdir(full, 0o755), os.WriteFile(filepath.Join(full, "file"), nil, 0o644)); err != nil {
		a.Fatalf("%v", err)
	}
	a.wantsErr("Checkpoint into a directory that is not empty", c.Checkpoint(context.Background(), full),
		holdfast.ErrBadOption)
	a.set(e, "after", "it")
	var b holdfast.Batch
	b.Delete([]byte("after"))
	a.commit(e, &b)
}

// checkpoint makes a checkpoint that must succeed.
func (a *trial) checkpoint(e holdfast.Engine, dir string) {
	a.Helper()
	if err := holdfast.Checkpoint(context.Background(), e, dir); err != nil {
		a.Fatalf("Checkpoint: %v", err)
	}
}

func (a *trial) compactIfItCan(e holdfast.Engine) {
	a.Helper()
	if _, ok := e.(holdfast.Compactor); ok {
		if err := holdfast.Compact(context.Background(), e, holdfast.Range{}); err != nil {
			a.Errorf("Compact: %v", err)
		}
	}
}
