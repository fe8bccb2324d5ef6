package crash

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/crash/internal/fleet"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// Child plays a victim, or checks what one has left, as told on stdin. It is what a child process
// runs, and returns its exit status.
func (l Lab) Child(stdin io.Reader, stdout io.Writer) int {
	var s protocol.Spec
	if err := child.Serve("crash", stdin, &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	// From here on errors go to the supervisor as messages: it judges them, and the exit status says little.
	t := protocol.NewReporter(stdout)
	if s.Node != nil {
		if err := fleet.Serve(s, t); err != nil {
			t.Failed(err)
			return 1
		}

		return 0
	}
	subject, err := subjectOf(s.Subject)

	// The filter is set before the engine is opened, so that calls of opening count.
	if err == nil && s.Role == "work" && s.DieAt.N > 0 {
		err = kinds.KillBefore(s.DieAt.Name, s.DieAt.N)
	}
	if err == nil {
		do := subject.Victim
		switch s.Role {
		case "check":
			do = subject.Check
		case "reread":
			do = subject.Reread
		}
		err = do(s, t, func() (holdfast.Engine, error) { return l.open(s) })
	}
	if err != nil {
		t.Failed(err)
		return 1
	}

	return 0
}

// open opens the engine as spec says.
func (l Lab) open(s protocol.Spec) (holdfast.Engine, error) {
	find := l.engine
	if s.Address != "" {
		find = onMachine // among peers there may be one of the same name
	}
	entry, err := find(s.Engine)
	if err != nil {
		return nil, err
	}

	o := holdfast.Options{
		Level: s.Level, MemoryBytes: max(s.Memory, entry.Describe().MinMemoryBytes), SyncEvery: time.Duration(s.Window),
	}
	if s.Address != "" {
		return entry.Open(s.Address, o)
	}

	// The engine has a directory below the victim's, which also holds what the subject keeps beside it.
	dir := filepath.Join(s.Dir, protocol.EngineDir)
	if entry.Describe().Strongest() == holdfast.Memory {
		dir = "" // nothing on disk
	}

	return entry.Open(dir, o)
}
