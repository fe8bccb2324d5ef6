package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

var fullCases = []lawCase{
	{name: "full while writing", onDisk: true, needs: seam, run: fullWriting},
	{name: "full while opening", onDisk: true, needs: seam, run: fullOpening},
	{name: "full while closing", onDisk: true, needs: seam, run: fullClosing},
	{name: "a disk that is really full", onDisk: true, once: byDay, needs: directory, run: reallyFull},
}

// The engine fails with what the disk said, and is well again when it is reopened.
func fullWriting(a *trial) {
	for i, before := range []uint64{0, 7, 60} {
		a.poisoned(syscall.ENOSPC, before, i == 1, (*Faults).FailWrites, holdfast.Process)
	}
}

// Open on a full disk fails or needs no room, and changes nothing that it cannot finish.
func fullOpening(a *trial) {
	dir := a.dir()
	n := uint64(0)

	for range 3 {
		var faults Faults
		faults.FailWrites(syscall.ENOSPC)
		e, err := a.s.OpenFaulty(dir, a.options(), &faults)
		if err == nil {
			a.wantsScript(e, n, n)
			_ = e.Close()
		} else {
			a.wantsErr("Open on a full disk", err, syscall.ENOSPC)
		}
		e = a.open(dir)
		a.wantsScript(e, n, n)
		a.commitScript(e, n+1, n+10)
		n += 10
		a.close(e)
	}
}

// Close on a full disk may fail, and loses nothing that had been acknowledged.
func fullClosing(a *trial) {
	var faults Faults
	dir := a.dir()
	e := a.openFaulty(dir, a.options(), &faults)
	const batches = 25
	a.commitScript(e, 1, batches)
	faults.FailWrites(syscall.ENOSPC)
	faults.FailSyncs(syscall.ENOSPC)
	least := uint64(batches)
	if err := e.Close(); err != nil {
		a.wantsErr("Close on a full disk", err, syscall.ENOSPC)
		if a.given() < holdfast.Process {
			least = 0
		}
	}
	faults.FailWrites(nil)
	faults.FailSyncs(nil)
	a.goesOn(dir, least, batches)
}

// reallyFull lets the operating system run out of room: a child in a file system of its own,
// which another file fills up, or with a limit on how long its files may get.
func reallyFull(a *trial) {
	if runtime.GOOS == "windows" {
		a.Skipf("there is no way to fill a disk for one process on Windows")
	}
	root := a.TempDir()
	o := order{Role: "full", Dir: filepath.Join(root, "engine"), Fill: filepath.Join(root, "ballast")}
	lines, err := a.roomless(o, root)
	if err != nil {
		a.Errorf("the process that watches over the full disk failed: %v", err)
	}

	// The child tells line by line what happened. It may have been killed by the full disk, so what it does not say counts
	// too.
	acked := uint64(0)
	var failed, after, limited bool
	for _, line := range lines {
		kind, rest, _ := strings.Cut(line, " ")
		if kind != "ack" {
			a.Logf("after %d batches: %s", acked, line)
		}

		switch kind {
		case "ack":
			if acked, err = strconv.ParseUint(rest, 10, 64); err != nil {
				a.Fatalf("the child said %q", line)
			}
		case "limited":
			limited = true
		case "refused":
			failed = true
			if !saysFull(rest) && !limited {
				a.Errorf("the error does not say that the disk is full: %s", rest)
			}
		case "crashed":
			failed = true
			if !a.s.caps.FullDiskKills {
				a.Errorf("the process did not survive a full disk, and Capabilities.FullDiskKills does not say so: %s", rest)
			}
		case "after":
			after = true
			n, err := strconv.ParseUint(rest, 10, 64)
			if err != nil {
				a.Fatalf("the child said %q", line)
			}
			if n < acked && a.given() >= holdfast.Process {
				a.Errorf("batch %d was acknowledged, and reopened with room again, only %d are there", acked, n)
			}
		case "breach", "error":
			a.Errorf("%s", rest)
		}
	}

	switch {
	case failed:
	case limited && a.s.caps.FullDiskKills:
		a.Logf("does not apply: a limit on the length of files does not bind an engine that writes through a memory map")
	default:
		a.Errorf("nothing failed though there was no room: up to batch %d everything was acknowledged", acked)
	}
	if !after {
		a.Errorf("it was not opened again once there was room")
	}
}

// saysFull reports whether an error's text says that the disk is full.
func saysFull(text string) bool {
	for _, s := range []string{syscall.ENOSPC.Error(), "full", "no space"} {
		if strings.Contains(strings.ToLower(text), s) {
			return true
		}
	}

	return false
}

func (s *suite) fatScript() script {
	sc := s.script
	sc.Extra = 16 << 10

	return sc
}

// childFull keeps the room, starts a process that fills it, makes room again and starts
// one that looks at what is there.
func (s *suite) childFull(o order, t *reporter) error {
	leave, err := o.enterRoom()
	if err != nil {
		return err
	}
	defer leave()
	o.Role = "fill"
	if err := o.again(); err != nil {
		t.say("crashed %v", err)
	}
	if err := os.Remove(o.Fill); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	o.Role = "after"

	return o.again()
}

// childFills writes until that fails for want of room.
func (s *suite) childFills(o order, t *reporter) error {
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err != nil {
		return err
	}

	const before, most = 20, 1000
	var acked uint64
	for n := uint64(1); n <= most; n++ {
		if err = holdfast.Commit(e, s.fatScript().batch(n), o.Level); err != nil {
			break
		}
		acked = n
		if n <= before || n%20 == 0 || s.caps.FullDiskKills {
			t.say("ack %d", n)
		}
		if n == before {
			if err := o.takeRoom(); err != nil {
				return err
			}
			if o.Mount == "" {
				t.say("limited")
			}
		}
	}
	t.say("ack %d", acked)
	if err == nil {
		err = e.Sync()
	}
	if err == nil {
		return nil
	}
	t.say("refused %s", strings.ReplaceAll(err.Error(), filepath.Dir(o.Dir), "..."))
	state, err := commits.Contents(e, holdfast.Range{})
	if err != nil {
		return fmt.Errorf("reading on a full disk: %w", err)
	}

	n, breaches := s.fatScript().judge(state)
	for _, b := range breaches {
		t.say("breach on the full disk: %s", b.text)
	}
	if n < acked {
		t.say("breach on the full disk, %d batches were acknowledged, and %d can be read", acked, n)
	}
	_ = e.Close() // which may fail

	return nil
}

// childAfter looks at what is there and writes on.
func (s *suite) childAfter(o order, t *reporter) error {
	n, told := uint64(0), false
	for range 2 {
		e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
		if err != nil {
			return fmt.Errorf("opening with room again: %w", err)
		}
		state, err := commits.Contents(e, holdfast.Range{})
		if err != nil {
			return fmt.Errorf("reading with room again: %w", err)
		}

		found, breaches := s.fatScript().judge(state)
		for _, b := range breaches {
			t.say("breach with room again: %s", b.text)
		}
		if told && found != n {
			t.say("breach with room again, %d batches are there, %d were", found, n)
		}
		if n = found; !told {
			t.say("after %d", n)
			told = true
		}

		for range 5 {
			n++
			if err := holdfast.Commit(e, s.fatScript().batch(n), o.Level); err != nil {
				return fmt.Errorf("writing with room again: %w", err)
			}
		}
		if err := e.Close(); err != nil {
			return fmt.Errorf("closing with room again: %w", err)
		}
	}

	return nil
}
