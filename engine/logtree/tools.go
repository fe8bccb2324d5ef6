package logtree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/internal/enginecopy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// InspectResult is what a directory holds; see [Inspect].
type InspectResult = check.Inspection

// VerifyResult is what [Verify] found.
type VerifyResult = check.Verification

// RepairResult is what [Repair] salvaged and what it could not.
type RepairResult = check.Repaired

// Loss is a stretch of a file that Repair could not read.
type Loss = check.Loss

// IsDatabase reports whether dir holds files that only this engine makes, even if HOLDFAST or
// other files are damaged or gone.
func IsDatabase(dir string) bool { return check.IsDatabase(vfs.OS(), dir) }

// Inspect reads what is in dir. It takes no lock, changes nothing, and works on damaged directories; if the database
// is open, parts of what it says may belong to different moments.
func Inspect(dir string) (*InspectResult, error) { return check.Inspect(vfs.OS(), dir) }

// Verify checks every checksum and every reference in dir, and continues after damage, so that all of it is in the
// result. It changes nothing, and keeps writers out until it returns: ErrLocked if the directory is open elsewhere
// for writing. Values are read one by one; it takes about as long as reading the directory twice.
func Verify(dir string) (*VerifyResult, error) {
	release, err := datadir.Hold(dir)
	if err != nil {
		return nil, err
	}
	defer release()
	_, damage, err := checkMark("verify", dir)
	if err != nil {
		return nil, err
	}
	v, err := check.Verify(vfs.OS(), dir)
	if err != nil {
		return nil, err
	}
	if damage != nil {
		v.Damage = append(v.Damage, damage)
	}

	return v, nil
}

// checkMark reads the file HOLDFAST. damage is what is wrong with it; the error is ErrVersion, or one that passes.
func checkMark(op, dir string) (m datadir.Mark, damage, err error) {
	fail := func(class error, detail, remedy string, cause error) error {
		return &holdfast.Error{Op: op, Engine: Name, Path: filepath.Join(dir, "HOLDFAST"), Class: class,
			Detail: detail, Remedy: remedy, Cause: cause}
	}

	m, err = datadir.ReadMark(op, dir)
	switch {
	case errors.Is(err, holdfast.ErrVersion), format.IsTransient(err):
		return m, nil, err
	case err != nil:
		return m, fail(holdfast.ErrCorrupt, "", "salvage what is intact: holdfast repair", err), nil
	case m.Engine != Name:
		return m, fail(holdfast.ErrForeign, "it says that "+m.Engine+" made the directory", "", nil), nil
	case m.Format > dirFormat:
		return m, nil, fail(holdfast.ErrVersion, fmt.Sprintf("it has format %d of %s, this program knows %d",
			m.Format, Name, dirFormat), "use a newer holdfast", nil)
	}

	return m, nil, nil
}

// Repair makes a new database in the directory into from everything intact in dir, which is not changed. The result
// lists what could not be salvaged, which is not an error. into must not exist, or be empty; after an error,
// including the end of ctx, it does not exist. ErrLocked: dir is open elsewhere for writing. ErrVersion: a newer
// format wrote it.
//
// If something was lost, Capabilities of the new database says so until the loss is accepted.
//
// Only data with the right checksum is copied. If the manifest and the tables are intact, the result is the exact state
// without the damaged values; for other cases see [RepairResult].
func Repair(ctx context.Context, dir, into string, o holdfast.Options) (r *RepairResult, err error) {
	// Also if no file identifies dir as a database any more.
	if err := datadir.CheckOverlap("repair", into, dir); err != nil {
		return nil, err
	}
	release, err := datadir.Hold(dir)
	if err != nil {
		return nil, err
	}
	defer release()
	mark, _, err := checkMark("repair", dir) // damaged, it cannot say that an earlier repair lost something
	if err != nil {
		return nil, err
	}
	err = enginecopy.Make(ctx, "repair", into, opener(o), func(e holdfast.Engine, _ string) (datadir.Loss, error) {
		if r, err = check.Repair(vfs.OS(), dir, e); err != nil {
			return datadir.Loss{}, err
		}

		return datadir.Loss{Lost: enginecopy.Lost(mark.Lost, r.Summary()), Accepted: mark.Accepted}, nil
	})
	if err != nil {
		return nil, err
	}

	return r, nil
}

func opener(o holdfast.Options) func(string) (holdfast.Engine, error) {
	return func(dir string) (holdfast.Engine, error) { return Open(dir, o) }
}

// Backup copies the current state of e to the new directory into, while writers continue, and returns the number of
// keys. The copy is an independent database with one consistent state, and survives power loss when Backup returns.
// into must not exist, or be empty; after an error, including the end of ctx, it does not exist. Space of data that
// is deleted during the backup is freed after it.
//
// Writers to e's disk share it with the copy; nothing else slows them.
func Backup(ctx context.Context, e holdfast.Engine, into string) (keys int64, err error) {
	return enginecopy.Backup(ctx, e, into, opener(holdfast.Options{}))
}

// Verify checks every checksum and every reference of one moment of this open database, and returns all damage that
// it finds, each a *holdfast.Error; writers, flushes, merges and Compact continue, and what they write meanwhile is
// not looked at. Files that it checks are kept until it returns. An error means that it could not be checked to the
// end.
//
// It holds one segment at a time in memory, and reads as fast as the disk gives.
func (e *engine) Verify(ctx context.Context) (damage []error, err error) {
	err = e.Life.Long(ctx, func(ctx context.Context) error {
		p, release, err := e.Pin()
		if err != nil {
			return err
		}
		defer release()
		v, err := check.VerifyPinned(p, ctx.Err)
		if err == nil {
			damage = v.Damage
		}

		return err
	})

	return damage, err
}

// Checkpoint implements [holdfast.Checkpointer]. Tables and segments are shared, but for the log's last segment
// and those that merges are writing: they are copied, 64 MiB each at most unless a batch was larger. What merges and
// deletes free here stays in the copy until that compacts, or is removed.
//
// Of a database that is open for reading only, all of the log that is in no table is copied. In memory ([OpenMem]) dir
// is a directory of that file system, empty or new; a power cut during the call may leave a part of it, which Open
// refuses.
func (e *engine) Checkpoint(ctx context.Context, dir string) error {
	return e.Life.Long(ctx, func(ctx context.Context) error {
		return e.publish(ctx, dir, func(made string) error { return e.database.Checkpoint(ctx, made) })
	})
}
