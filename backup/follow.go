package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// A directory that follows a bucket is a database at each moment, of a base and the log behind it. Besides its files,
// it has
//
//	FOLLOW          a followed: up to where the log is here
//	FOLLOW.base     the base whose files are here, as it is in the bucket
//	FOLLOW.next     a turn: the next base, whose files are all here, those that differ in FOLLOW.files
//	FOLLOW.files    files that are fetched
//	FOLLOW.log      log whose state is not complete yet
//	FOLLOW.lock     locked by the follower
//
// The log is appended to its segments, and then FOLLOW says so. From time to time there is a newer base. What is not
// here of its files is fetched, while the log goes on; then FOLLOW.next is written, and from then on the change can be
// finished by whoever comes: files get their names, those that nothing names go, and FOLLOW.next goes last.
const (
	followName  = "FOLLOW"
	followBase  = followName + ".base"
	followNext  = followName + ".next"
	followFiles = followName + ".files"
	followLog   = followName + ".log"
	followLock  = followName + ".lock"
	followMagic = "holdfast-follow-1"
)

// followed is how far a directory has followed.
type followed struct {
	Generation string         `json:"generation"`
	Log        int            `json:"log"` // the last number that is here
	At         Place          `json:"at"`
	Time       time.Time      `json:"time"`  // of the state
	Wrote      map[string]int `json:"wrote"` // files, by the last number of the log behind the base that has written them
}

// turn is a change to another base.
type turn struct {
	Base *Base    `json:"base"`
	To   followed `json:"to"`
}

// FollowOptions are the settings of a follower. The zero value is a good choice.
type FollowOptions struct {
	// Every is how often the follower looks for new log, 1 s by default, and LookEvery for newer bases, 10 s.
	Every, LookEvery time.Duration

	// Source is what the directory says that it follows, in words; "a backup" by default.
	Source string

	// Identities open what is encrypted; see age.ParseIdentities of filippo.io/age.
	Identities []age.Identity

	Logger *slog.Logger // slog.Default() if nil
}

// FollowStatus says how far a follower is.
type FollowStatus struct {
	Generation string    // that is followed, "" before there is a state
	Time       time.Time // of the state that is here: it has all that was visible then; zero before there is one
	Checked    time.Time // when all that was in the bucket was here, of the generations known then; zero if it never was
	Err        error     // of the last attempt, nil if that worked
	Bases      int64     // that it has changed to since the start
	Objects    int64     // of the log, that were added
	Bytes      int64     // that were fetched, of both
	Baseless   []string  // later generations of which nothing can be followed, as in Restored

	started time.Time
}

// Lag is how long ago the copy had all that was in the bucket; before it ever had, since the start. How far the bucket
// is behind its source that one's [Status.Lag] says.
func (s FollowStatus) Lag() time.Duration {
	if s.Checked.IsZero() {
		return time.Since(s.started)
	}

	return max(time.Since(s.Checked), 0)
}

// Follower keeps a directory up to date with a bucket.
type Follower struct {
	bucket source
	dir    string
	o      FollowOptions
	unlock func() error

	ctx   context.Context
	stop  context.CancelFunc
	ended chan struct{}

	// Of run alone.
	loaded    bool // what is below is read
	at        followed
	base      *Base  // whose files are here; nil before the first
	parts     []part // log behind at, without a gap
	stuck     string // why the log does not go on, "" if it does
	looked    time.Time
	preparing *Base      // a base whose files are being fetched
	prepared  chan error // what became of that

	unprepared error // why the files of a base could not be fetched, until they are
	ready      *Base // one whose files are there

	mu     sync.Mutex
	status FollowStatus
}

// followStep is called between the steps that change a directory, so that tests see what a kill would leave.
var followStep = func(dir string) {}

// part is an object of the log that is not added yet.
type part struct {
	entry
	body []byte // nil if it is in FOLLOW.log, by its number
}

// Follow keeps dir, which must not be there, or be empty, or follow this bucket already, up to date with the last
// generation in the bucket until Close. Like a restore, it makes a copy of the last base; then it adds the log as that
// comes, and changes to newer bases. What it needs of the network is what is new.
//
// The directory can be opened for reading at any time, and shows the state of that moment. While it is open it is not
// changed: who reads for long makes the copy old. Nobody can write to it before [Promote]. After a kill, of the process
// or of the machine, Follow goes on where it was.
//
// If the source begins a new generation, that is followed, with what is here already. If the log that is needed is not
// in the bucket any more, the follower goes on from a newer base.
//
// It does not wait for the bucket: errors show in Status and in the log, and it tries again. ErrLocked: another follows
// into dir. ErrBadOption: dir is something else.
func Follow(bucket *blob.Bucket, dir string, o FollowOptions) (*Follower, error) {
	o.Every, o.LookEvery = cmp.Or(o.Every, time.Second), cmp.Or(o.LookEvery, 10*time.Second)
	o.Logger, o.Source = cmp.Or(o.Logger, slog.Default()), cmp.Or(o.Source, "a backup")
	f := &Follower{bucket: source{Bucket: bucket, identities: o.Identities, readers: readers}, o: o,
		ended: make(chan struct{}), prepared: make(chan error, 1), status: FollowStatus{started: time.Now()}}
	if err := f.open(dir); err != nil {
		return nil, err
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	go f.run()

	return f, nil
}

// Status returns how far the follower is.
func (f *Follower) Status() FollowStatus {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.status
}

// Close ends it. What is there stays, and another Follow goes on.
func (f *Follower) Close() error {
	f.stop()
	<-f.ended

	return f.unlock()
}

// open locks dir and reads how far it is.
func (f *Follower) open(dir string) (err error) {
	if err := datadir.CheckOverlap("follow", dir); err != nil {
		if _, known := os.Stat(filepath.Join(dir, followName)); known != nil {
			return err
		}
	}
	if f.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	bad := func(detail, remedy string) error {
		return &holdfast.Error{Op: "follow", Path: f.dir, Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
	}
	if err := datadir.MkdirAll(f.dir); err != nil {
		return &holdfast.Error{Op: "follow", Path: f.dir, Cause: err}
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return &holdfast.Error{Op: "follow", Path: f.dir, Cause: err}
	}
	mark, marked := datadir.ReadMark("follow", f.dir)
	other := slices.IndexFunc(entries, func(e os.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), followName) && e.Name() != "lost+found" && e.Name() != "LOCK"
	})
	switch {
	case marked == nil && mark.Follows == "":
		return bad("it is a database of its own, or was promoted", "name another directory")
	case marked != nil && !errors.Is(marked, holdfast.ErrForeign):
		return marked
	case marked != nil && other >= 0:
		return bad("it holds "+entries[other].Name(), "name a directory that is new or empty")
	}
	if f.unlock, err = datadir.LockName(filepath.Join(f.dir, followLock)); err != nil {
		return err
	}
	if err := f.load(); err != nil && !errors.Is(err, holdfast.ErrLocked) { // whoever reads it will end
		return errors.Join(err, f.unlock())
	}

	return nil
}

// load reads how far the directory is, and mends what a kill has left.
func (f *Follower) load() error {
	if err := f.change(f.mend); err != nil {
		return err
	}
	f.loaded = true
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Time, f.status.Generation = f.at.Time, f.at.Generation

	return nil
}

// change calls what changes files while nobody has them open. It waits a moment for that: readers come and go.
func (f *Follower) change(do func() error) (err error) {
	release, err := datadir.Change(f.dir)
	for end := time.Now().Add(f.o.Every); errors.Is(err, holdfast.ErrLocked) && time.Now().Before(end); {
		if f.ctx != nil && !sleep(f.ctx, lockEvery) {
			return f.ctx.Err()
		}
		release, err = datadir.Change(f.dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()

	return do()
}

// lockEvery is how often it is looked whether somebody still reads.
const lockEvery = 5 * time.Millisecond

// mend reads how far the directory is, finishes a change that was begun, and cuts off what is behind the state. It is
// called in change.
func (f *Follower) mend() error {
	f.at, f.base = followed{}, nil
	if err := f.read(followBase, baseMagic, &f.base); err != nil {
		return err
	}
	if err := f.read(followName, followMagic, &f.at); err != nil {
		return err
	}
	var next *turn
	if err := f.read(followNext, followMagic, &next); err != nil {
		return err
	}
	if next != nil {
		if err := f.finish(next); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(f.dir, followLog)); err != nil || f.base == nil {
		return err
	}

	return f.trim()
}

// read reads a file of the follower's own, if it is there.
func (f *Follower) read(name, magic string, into any) error {
	path := filepath.Join(f.dir, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		b, err = unseal(magic, path, b)
	}
	if err == nil {
		err = decode(path, b, into)
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok {
		e.Op, e.Remedy = "follow", "remove the directory, or follow into another one"
	}

	return err
}

// write replaces a file of the follower's own.
func (f *Follower) write(name, magic string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}

	return datadir.Full(datadir.Replace(filepath.Join(f.dir, name), seal(magic, text)))
}

// isOurs reports whether a file is one of the database's that bases and the log bring.
func isOurs(name string) bool {
	return strings.HasSuffix(name, ".seg") || strings.HasSuffix(name, ".run")
}

// trim removes what is behind the state: log that was being added when the program was killed.
func (f *Follower) trim() error {
	named := map[string]int64{}
	for _, file := range f.base.Files {
		named[file.Name] = file.Bytes
	}
	here, err := names(f.dir)
	if err != nil {
		return err
	}
	for _, name := range here {
		if _, ok := named[name]; isOurs(name) && !ok && f.at.Wrote[name] == 0 {
			if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
				return err
			}
		}
	}
	if f.at.At.File == "" {
		return nil
	}

	// What a base has reaches behind where its log begins, by what came while it was begun.
	return cut(filepath.Join(f.dir, f.at.At.File), max(f.at.At.Offset, named[f.at.At.File]))
}

// cut makes a file as long as that, if it is longer.
func cut(name string, size int64) error {
	st, err := os.Stat(name)
	if err != nil || st.Size() <= size {
		return err
	}
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}

	return errors.Join(file.Truncate(size), file.Sync(), file.Close())
}

// run follows until Close.
func (f *Follower) run() {
	defer close(f.ended)
	for {
		began := time.Now()
		err := f.round()
		if f.ctx.Err() == nil {
			f.note(began, err)
		}
		wait := f.o.Every
		if err != nil {
			wait = max(wait, min(retryEvery, 4*f.o.Every))
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case err := <-f.prepared:
			f.isPrepared(err)
		case <-f.ctx.Done():
			t.Stop()
			if f.preparing != nil {
				<-f.prepared
			}

			return
		}
		t.Stop()
	}
}

// isPrepared notes what became of the files of a base.
func (f *Follower) isPrepared(err error) {
	next := f.preparing
	f.preparing, f.unprepared = nil, err
	if err == nil {
		f.ready = next
	}
}

// note makes what became of a round the status.
func (f *Follower) note(began time.Time, err error) {
	f.mu.Lock()
	was := f.status.Err
	f.status.Err = err
	f.status.Time, f.status.Generation = f.at.Time, f.at.Generation
	coming := cmp.Or(f.preparing, f.ready)
	if err == nil && f.base != nil && f.stuck == "" && (coming == nil || coming.Generation == f.at.Generation) {
		f.status.Checked = began
	}
	lag := f.status.Lag()
	f.mu.Unlock()

	switch {
	case err != nil && was == nil && errors.Is(err, holdfast.ErrLocked):
		f.o.Logger.Info("the copy is being read, and is not changed meanwhile", "reader", err.Error())
	case err != nil && was == nil:
		f.o.Logger.Error("the copy is not kept up to date, tries again", "error", err.Error(),
			"lag", lag.Round(time.Second).String())
	case err == nil && was != nil:
		f.o.Logger.Info("the copy is kept up to date again")
	}
}

// round adds the log that has come, and changes to a newer base if its files are there.
func (f *Follower) round() error {
	if !f.loaded {
		if err := f.load(); err != nil {
			return err
		}
	}
	select {
	case err := <-f.prepared:
		f.isPrepared(err)
	default:
	}
	if next := f.ready; next != nil {
		if err := f.turn(next); err != nil {
			return err
		}
		f.ready = nil
	}
	var damaged error // which a newer base helps against
	if f.base != nil {
		if damaged = f.add(); damaged != nil && f.stuck == "" {
			return damaged
		}
	}
	if f.preparing != nil || f.ready != nil || time.Since(f.looked) < f.o.LookEvery && f.stuck == "" {
		return cmp.Or(damaged, f.standing())
	}

	next, err := f.newer()
	if err != nil {
		return err
	}
	f.looked = time.Now()
	if next == nil {
		return cmp.Or(damaged, f.standing())
	}
	f.preparing = next
	go func() { f.prepared <- f.prepare(next) }()

	return f.unprepared
}

// standing is the error if the log does not go on here and nothing helps yet.
func (f *Follower) standing() error {
	switch {
	case f.unprepared != nil:
		return f.unprepared
	case f.preparing != nil || f.ready != nil:
		return nil
	case f.base == nil:
		return &holdfast.Error{Op: "follow", Path: f.dir, Class: holdfast.ErrNotFound,
			Detail: "there is no state in the bucket yet", Remedy: "is it the right bucket and prefix?"}
	case f.stuck != "":
		return &holdfast.Error{Op: "follow", Path: logKey(f.at.Generation, f.next()), Class: holdfast.ErrNotFound,
			Detail: f.stuck, Remedy: "the copy goes on from the source's next base"}
	}

	return nil
}

// next is the number of the log that comes next.
func (f *Follower) next() int { return f.at.Log + len(f.parts) + 1 }

// newer returns a base to change to, nil if there is none.
func (f *Follower) newer() (*Base, error) {
	gens, err := generations(f.ctx, f.bucket.Bucket)
	if err != nil {
		return nil, failed("follow", "", err)
	}
	var baseless []string
	defer func() {
		f.mu.Lock()
		f.status.Baseless = baseless
		f.mu.Unlock()
	}()
	for _, gen := range slices.Backward(gens) {
		names, err := bases(f.ctx, f.bucket.Bucket, gen)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			baseless = append(baseless, gen)
			continue
		}
		last := names[len(names)-1]
		if f.base != nil && gen == f.at.Generation {
			if err := f.look(last.log); err != nil {
				return nil, err
			}

			// Of the same base there is nothing to fetch. One that is ahead is only of use if the log does not go on.
			if last.key == baseKey(gen, f.base.Log, f.base.Time) || last.log > f.at.Log && f.stuck == "" {
				return nil, nil
			}
		}
		next, err := readBase(f.ctx, f.bucket.Bucket, last.key)
		if err != nil {
			return nil, err
		}
		if next.Copy != nil {
			return nil, &holdfast.Error{Op: "follow", Engine: next.Copy.Engine, Path: f.dir, Class: holdfast.ErrForeign,
				Detail: "the bucket has copies of an engine that has no log to follow", Remedy: "restore the last one"}
		}
		if f.base != nil && next.Database != f.base.Database {
			return nil, &holdfast.Error{Op: "follow", Path: f.dir, Class: holdfast.ErrForeign,
				Detail: "the bucket now has states of another database",
				Remedy: "promote this copy or leave it, and follow the other one into another directory"}
		}
		for _, file := range next.Files {
			if !plain(file.Name) || total(file.Pieces) != file.Bytes || !isOurs(file.Name) && file.Name != "MANIFEST" {
				return nil, corrupt(last.key, fmt.Sprintf("file %q makes no sense", file.Name), nil)
			}
		}
		switch {
		case f.base == nil:
			f.o.Logger.Info("making a copy", "generation", gen, "time", next.Time.Format(time.RFC3339))
		case gen != f.at.Generation:
			f.o.Logger.Warn("the source has begun another generation, which is followed from its base on",
				"was", f.at.Generation, "generation", gen)
		case f.stuck != "":
			f.o.Logger.Warn("the log does not go on from what is here, which is followed from a newer base on",
				"generation", gen, "reason", f.stuck)
		}

		return next, nil
	}

	return nil, nil
}

// look finds out whether the log that comes next is only to come. last is the number of the last base.
func (f *Follower) look(last int) error {
	key := logKey(f.at.Generation, f.next())
	behind := last >= f.next() // whose log was there before it
	if !behind {
		var err error
		if behind, err = exists(f.ctx, f.bucket.Bucket, logKey(f.at.Generation, f.next()+1)); err != nil {
			return failed("get", key, err)
		}
	}
	if !behind || f.stuck != "" {
		return nil
	}
	there, err := exists(f.ctx, f.bucket.Bucket, key)
	if err != nil {
		return failed("get", key, err)
	}
	if !there {
		f.stuck = "it is not in the bucket, and there is more behind it"
	}

	return nil
}

// add adds the log that is in the bucket, state by state.
func (f *Follower) add() error {
	for {
		n := f.next()
		e, body, found, err := readLog(f.ctx, f.bucket, f.at.Generation, n)
		if err == nil && found && !isOurs(e.File) {
			err = corrupt(logKey(f.at.Generation, n), "it makes no sense", nil)
		}
		if errors.Is(err, holdfast.ErrCorrupt) {
			f.stuck = "it is damaged"
		}
		if err != nil || !found {
			return err
		}
		end := f.at.At
		if len(f.parts) > 0 {
			end = f.parts[len(f.parts)-1].end()
		}
		if e.Prev != end {
			f.stuck = "the source has let go of log that it could not upload"
			return nil
		}
		f.stuck = ""
		f.mu.Lock()
		f.status.Objects++
		f.status.Bytes += e.Bytes
		f.mu.Unlock()

		// What is behind the last state is of no use until there is another one, which may take long.
		if !e.State {
			name := filepath.Join(f.dir, followLog, fmt.Sprint(n))
			if err := datadir.MkdirAll(filepath.Dir(name)); err != nil {
				return err
			}
			if err := os.WriteFile(name, body, 0o644); err != nil {
				return datadir.Full(err)
			}
			f.parts = append(f.parts, part{e, nil})
			continue
		}
		parts := append(slices.Clip(f.parts), part{e, body})
		if err := f.change(func() error { return f.append(parts) }); err != nil {
			return err
		}
		f.parts = nil
	}
}

// append adds log up to a state. It is called in change.
func (f *Follower) append(parts []part) (err error) {
	at := f.at
	at.Wrote = maps.Clone(at.Wrote)
	if at.Wrote == nil {
		at.Wrote = map[string]int{}
	}
	defer func() {
		if err != nil && at.Log != f.at.Log { // half a state is taken back, so that no reader meets it
			err = errors.Join(err, f.trim())
		}
	}()
	files := map[string]bool{}
	for _, p := range parts {
		at.Log++
		spooled := filepath.Join(f.dir, followLog, fmt.Sprint(at.Log))
		if p.body == nil {
			if p.body, err = os.ReadFile(spooled); err != nil {
				return err
			}
		}
		if err := writeAt(filepath.Join(f.dir, p.File), p.body, p.From); err != nil {
			return datadir.Full(err)
		}
		at.At, at.Time, at.Wrote[p.File], files[p.File] = p.end(), p.Time, at.Log, true
		followStep(f.dir)
	}

	// Only when all of a state is on the device it counts.
	for name := range files {
		if err := syncFile(filepath.Join(f.dir, name)); err != nil {
			return err
		}
	}
	if err := datadir.SyncDir(f.dir); err != nil {
		return err
	}
	if err := f.write(followName, followMagic, at); err != nil {
		return err
	}
	f.at = at
	followStep(f.dir)
	if len(parts) > 1 {
		return os.RemoveAll(filepath.Join(f.dir, followLog))
	}

	return nil
}

func syncFile(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}

	return errors.Join(file.Sync(), file.Close())
}
