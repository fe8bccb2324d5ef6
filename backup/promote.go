package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// A follower's directory changes to a newer base while its log goes on, and at last becomes one of its own. The files
// that this is told by are described in follow.go.

// prepare fetches what is not here of a base's files. Meanwhile log may be added, behind what it looks at.
func (f *Follower) prepare(next *Base) error {
	into := filepath.Join(f.dir, followFiles)
	if err := datadir.MkdirAll(into); err != nil {
		return err
	}
	old := map[string][]Piece{}
	if f.base != nil {
		for _, file := range f.base.Files {
			old[file.Name] = file.Pieces
		}
	}
	wanted := map[string]bool{}
	work, ctx := errgroup.WithContext(f.ctx)
	work.SetLimit(readers)
	for _, file := range next.Files {
		// The manifest is small, and another one in each base.
		here := filepath.Join(f.dir, file.Name)
		var covered int64
		if file.Name != "MANIFEST" {
			var err error
			if covered, err = same(here, file.Pieces, old[file.Name]); err != nil {
				return err
			}
			if covered == file.Bytes {
				continue
			}
		}
		wanted[file.Name] = true
		work.Go(func() error { return f.fetchFile(ctx, file, filepath.Join(into, file.Name), here, covered) })
	}
	if err := work.Wait(); err != nil {
		return err
	}

	// What another attempt has left for another base.
	there, err := names(into)
	if err != nil {
		return err
	}
	for _, name := range there {
		if !wanted[name] {
			if err := os.RemoveAll(filepath.Join(into, name)); err != nil {
				return err
			}
		}
	}

	return datadir.SyncDir(into)
}

// same returns how many of the first bytes of a file are those of the first of the pieces. Those that the file is known
// to have, because it was made of them, are not read.
func same(name string, pieces, known []Piece) (covered int64, err error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	for i, p := range pieces {
		if covered+p.Bytes > st.Size() {
			break
		}
		if i >= len(known) || known[i].Bytes != p.Bytes || known[i].Sum != p.Sum {
			known = nil
			h := sha256.New()
			if _, err := copyTo(h, io.NewSectionReader(file, covered, p.Bytes)); err != nil {
				return 0, err
			}
			if hexSum(h) != p.Sum {
				break
			}
		}
		covered += p.Bytes
	}

	return covered, nil
}

// fetchFile makes the file name of what is here of it already, its first bytes, and the bucket. One that an attempt
// before has finished is taken as it is.
func (f *Follower) fetchFile(ctx context.Context, want File, name, here string, covered int64) (err error) {
	if done, err := same(name, want.Pieces, nil); err != nil || done == want.Bytes && want.Bytes > 0 {
		return err
	}
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = to.Sync()
		}
		err = datadir.Full(errors.Join(err, to.Close()))
	}()
	if covered > 0 {
		from, err := os.Open(here)
		if err != nil {
			return err
		}
		_, err = copyTo(to, io.NewSectionReader(from, 0, covered))
		if err = errors.Join(err, from.Close()); err != nil {
			return err
		}
	}
	at := int64(0)
	for _, p := range want.Pieces {
		if at += p.Bytes; at <= covered {
			continue
		}
		if err := fetch(ctx, f.bucket, p, func() io.Writer { return io.NewOffsetWriter(to, at-p.Bytes) }); err != nil {
			return err
		}
		f.mu.Lock()
		f.status.Bytes += p.Bytes
		f.mu.Unlock()
	}

	return nil
}

// turn makes a base whose files are all there the one that is here.
func (f *Follower) turn(next *Base) error {
	// The log that has been added goes on behind the base, if it is the same log. But a file that was fetched, because
	// what is here is not what it was, has only the base's part of it.
	to := followed{Generation: next.Generation, Log: next.Log, At: next.At, Time: next.Time}
	fetched, err := names(filepath.Join(f.dir, followFiles))
	if err != nil {
		return err
	}
	mixed := slices.ContainsFunc(fetched, func(name string) bool { return f.at.Wrote[name] > next.Log })
	if f.base != nil && f.at.Generation == next.Generation && !mixed &&
		(f.at.Log > next.Log || f.at.Log == next.Log && f.at.At == next.At) {
		to = f.at
		to.Wrote = maps.Clone(f.at.Wrote)
		maps.DeleteFunc(to.Wrote, func(_ string, n int) bool { return n <= next.Log })
	}

	return f.change(func() error {
		change := &turn{next, to}
		if err := f.write(followNext, followMagic, change); err != nil {
			return err
		}
		followStep(f.dir)
		if err := f.finish(change); err != nil {
			return err
		}
		f.parts, f.stuck = nil, ""
		f.mu.Lock()
		f.status.Bases++
		f.mu.Unlock()
		f.o.Logger.Info("changed to a newer base", "generation", next.Generation,
			"time", next.Time.Format(time.RFC3339Nano), "state", to.Time.Format(time.RFC3339Nano))

		return os.RemoveAll(filepath.Join(f.dir, followLog))
	})
}

// names lists what is in a directory, which need not be there.
func names(dir string) (list []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}

	return list, err
}

// finish makes the change that is in FOLLOW.next, from whichever of its steps on it was interrupted. It is called in
// change.
func (f *Follower) finish(change *turn) error {
	next, to := change.Base, change.To
	if err := datadir.Follow(f.dir, []byte(next.Mark), f.o.Source, false); err != nil {
		return datadir.Full(err)
	}

	// Files that were fetched get their names.
	from := filepath.Join(f.dir, followFiles)
	fetched, err := names(from)
	if err != nil {
		return err
	}
	named := map[string]int64{}
	for _, file := range next.Files {
		named[file.Name] = file.Bytes
	}
	for _, name := range fetched {
		if _, ok := named[name]; ok {
			if err := os.Rename(filepath.Join(from, name), filepath.Join(f.dir, name)); err != nil {
				return err
			}
			followStep(f.dir)
		}
	}

	// What nothing names goes, and so does what lies behind the base in its files but for the log that has been added.
	here, err := names(f.dir)
	if err != nil {
		return err
	}
	for _, name := range here {
		if !isOurs(name) || to.Wrote[name] > 0 {
			continue
		}
		path := filepath.Join(f.dir, name)
		bytes, ok := named[name]
		if !ok {
			err = os.Remove(path)
		} else {
			err = cut(path, bytes)
		}
		if err != nil {
			return err
		}
		followStep(f.dir)
	}
	if err := datadir.SyncDir(f.dir); err != nil {
		return err
	}

	// From here on it is a database again.
	if err := f.write(followBase, baseMagic, next); err != nil {
		return err
	}
	followStep(f.dir)
	if err := f.write(followName, followMagic, to); err != nil {
		return err
	}
	followStep(f.dir)
	if err := datadir.Follow(f.dir, []byte(next.Mark), f.o.Source, true); err != nil {
		return datadir.Full(err)
	}
	followStep(f.dir)
	if err := errors.Join(os.RemoveAll(from), os.Remove(filepath.Join(f.dir, followNext))); err != nil {
		return err
	}
	f.at, f.base = to, next
	followStep(f.dir)

	return datadir.SyncDir(f.dir)
}

// Promote makes a directory that has followed a bucket one of its own, which can be written to. Its logs begin another
// part of their history, as those of a restored copy do, so that consumers who have read more than it has notice.
//
// It needs nothing but the directory, and returns the time of the state. ErrLocked: it is still followed, or open.
// ErrNotFound: there is no state in it yet. ErrBadOption: it follows nothing, as one that was promoted.
func Promote(dir string) (at time.Time, err error) {
	mark, err := datadir.ReadMark("promote", dir)
	if err == nil && mark.Follows == "" {
		_, err := os.Stat(filepath.Join(dir, followName))
		if errors.Is(err, fs.ErrNotExist) {
			return at, &holdfast.Error{Op: "promote", Path: dir, Class: holdfast.ErrBadOption,
				Detail: "it follows nothing", Remedy: "it can be opened as it is"}
		}

		return at, errors.Join(err, removeFollowed(dir)) // a kill has come between the last two steps
	}
	if err != nil {
		// A follower that has no state yet has made no mark. Anything else is left as it is.
		if _, none := os.Stat(filepath.Join(dir, followLock)); none != nil || !errors.Is(err, holdfast.ErrForeign) {
			return at, err
		}
	}
	f := &Follower{dir: dir, o: FollowOptions{Source: mark.Follows}}
	unlock, err := datadir.LockName(filepath.Join(dir, followLock))
	if err != nil {
		return at, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	err = f.change(func() error {
		if err := f.mend(); err != nil {
			return err
		}
		if f.base == nil {
			return &holdfast.Error{Op: "promote", Path: dir, Class: holdfast.ErrNotFound, Detail: "there is no state in it",
				Remedy: "follow until there is one"}
		}
		if err := datadir.Unfollow(dir); err != nil {
			return datadir.Full(err)
		}

		return removeFollowed(dir)
	})

	return f.at.Time, err
}

// removeFollowed removes a follower's own files, but for its lock.
func removeFollowed(dir string) (err error) {
	for _, name := range []string{followNext, followFiles, followLog, followBase, followName} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
	}

	return errors.Join(err, datadir.SyncDir(dir))
}
