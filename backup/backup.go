// Package backup copies an open database to object storage, all the time, so that a lost machine costs seconds; and
// makes a directory of any moment that is kept there.
//
//	bucket, err := backup.OpenBucket(ctx, "s3://my-bucket/orders?region=eu-central-1")
//	b, err := backup.Start(engine, bucket, backup.Options{})
//	...
//	err = b.Close(ctx) // before the engine; uploads what is left
//
//	restored, err := backup.Restore(ctx, bucket, "/var/lib/orders", backup.RestoreOptions{})
//
// The engine is one of logtree, whose files never change once they are complete. What is in a bucket is drawn in
// layout.go. A program imports the driver of its bucket: gocloud.dev/blob/s3blob, fileblob, gcsblob, azureblob.
//
// # What it promises
//
// A state that is in the bucket has everything that was visible at one moment, and nothing that a power cut could have
// taken from the original. States are made every [Options.Every]; [Status.Safe] is the moment of the last one. So a
// lost machine costs what was written after Safe. A kill, of the program or of an upload, leaves the states before.
package backup

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/logtree"
)

// Options are the settings of a backup. The zero value is a good choice.
type Options struct {
	// Every is how often the log's new end is uploaded, if there is one; 1 s by default.
	Every time.Duration

	// A base, which names all files, is made when so many bytes of log have come since the last one (256 MiB by default),
	// or so much time has passed (1 h) and anything has been written. A restore replays the log since a base.
	BaseBytes int64
	BaseEvery time.Duration

	// HeldBytes is how much log is kept on the disk when it cannot be uploaded; 1 GiB by default. With more than that the
	// log is let go, and a new base is made when uploads work again.
	HeldBytes int64

	// Compress compresses what is uploaded, by zstd, in its fastest way.
	Compress bool
	// Recipients are public keys of age, as age-keygen makes them, for which what is uploaded is encrypted; none if empty.
	// Names, times and lengths of files, and where the log ends, are not.
	Recipients []string

	// Rate is how many bytes of bases are uploaded a second, less what the log takes, but at least a quarter of it; at
	// least LeastRate, and without a limit if zero. The log is never held up.
	Rate int64

	// Keep says which states stay in the bucket; the zero value keeps all. Once an hour the others are removed.
	Keep Keep

	// VerifyEvery is how often everything in the bucket is read and checked, as by Verify, but one object at a time and no
	// faster than Rate; never if zero. It goes by the last time that all was good, whoever found that. What is damaged of
	// the present state is uploaded again.
	VerifyEvery time.Duration

	// CopyEvery is how often an engine that is not of logtree is copied as a whole; 0 refuses such an engine. What is
	// above about the log and about bases says nothing of those then. A copy is made in CopyDir before it is uploaded,
	// which is the system's directory for temporary files by default, and needs room for all keys and values there.
	CopyEvery time.Duration
	CopyDir   string

	Logger *slog.Logger // slog.Default() if nil
}

// Status says how far a backup is.
type Status struct {
	Generation string    // "" until the bucket has answered
	Safe       time.Time // all that was visible then is in the bucket; zero before the first base is there
	Err        error     // of the last attempt, nil if that worked
	Objects    int64     // uploaded since Start
	Bytes      int64     // of these objects
	Bases      int64     // how many of them are bases

	Verified time.Time // when all in the bucket was last found to be good; zero if never, or without VerifyEvery
	Damage   int       // how much the last verification has found that is damaged or missing

	started time.Time
}

// Lag is how much the loss of the machine would cost now, as time; before there is a state, since Start.
func (s Status) Lag() time.Duration {
	if s.Safe.IsZero() {
		return time.Since(s.started)
	}

	return max(time.Since(s.Safe), 0)
}

// Backup is a running one.
type Backup struct {
	feed   *logtree.Feed   // nil if all is copied each time
	engine holdfast.Engine // which is copied
	bucket *blob.Bucket
	o      Options
	codec  codec
	limit  *limit // nil if there is none
	gen    string // "" until the bucket has answered; of run, and of the goroutines that it starts

	ctx     context.Context    // of uploads
	stop    context.CancelFunc // ends them
	finish  chan struct{}      // closed by Close: one more round, and the end
	ended   chan struct{}      // closed when run has returned
	closing sync.Once
	others  sync.WaitGroup // goroutines but run

	// Of run alone.
	log     int   // number of the last log object that was made
	at      Place // where it ends
	pending []object
	buffer  []byte // has the bytes of the last object that was made
	plain   []byte // what they are, if they are encoded
	since   int64  // bytes of log since the last base was begun
	baseAt  time.Time
	safe    time.Time // when the last round began that has uploaded all
	chain   int       // how often the log was let go
	based   bool      // there is a base of this chain
	making  bool
	made    chan attempt // what became of the base that is being made
	tried   int          // bases that were begun
	looked  time.Time    // when the last base was there

	mu     sync.Mutex
	pieces map[string][]Piece // what is in the bucket of each file, from its first byte on
	named  map[string]bool    // directories of the bucket, if it is one, whose own names are durable
	errs   [2]error           // of the log, and of bases
	other  error              // another program has begun a generation since
	status Status
	last   string // the key of the last base

	lastAt  time.Time  // when it was there, by the clock here
	lastLog int        // the number of the log object that it follows
	broken  bool       // the last base, or what it names, or the log behind it is damaged
	sweep   sync.Mutex // held while the bucket is verified, or states are removed
}

// object is one of the log that is to be uploaded, always with the same bytes.
type object struct {
	key   string
	data  []byte
	of    entry
	piece Piece // what it is for a base, if it is large enough
}

// attempt is what became of a base.
type attempt struct {
	chain int
	err   error
}

// OpenBucket opens a bucket by its URL. A path in the URL of a bucket, as in s3://bucket/orders, is a prefix of what is
// kept there; file:///var/backups is a directory. The driver must be imported.
func OpenBucket(ctx context.Context, address string) (*blob.Bucket, error) {
	return openBucket(ctx, address, false)
}

// MakeBucket is OpenBucket, and makes a directory that is not there.
func MakeBucket(ctx context.Context, address string) (*blob.Bucket, error) {
	return openBucket(ctx, address, true)
}

// Directory returns the directory that a bucket is, "" if it is none.
func Directory(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "file" {
		return ""
	}
	dir := u.Path
	if u.Host == "." || os.PathSeparator != '/' {
		dir = strings.TrimPrefix(dir, "/")
	}

	return filepath.FromSlash(dir)
}

func openBucket(ctx context.Context, address string, create bool) (*blob.Bucket, error) {
	bad := func(detail string, cause error) (*blob.Bucket, error) {
		return nil, &holdfast.Error{Op: "open a bucket", Path: address, Class: holdfast.ErrBadOption, Detail: detail,
			Cause: cause, Remedy: "write it as s3://BUCKET/PREFIX?region=REGION or file:///DIRECTORY"}
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return bad("it is no URL", nil)
	}
	q := u.Query()
	if u.Scheme == "file" {
		// The driver would take what is behind the host for the directory, and without a path the one it runs in.
		if u.Host != "" && u.Host != "." && u.Host != "localhost" {
			return bad(fmt.Sprintf("it names the host %q, and no directory begins so", u.Host), nil)
		}
		if strings.Trim(u.Path, "/") == "" {
			return bad("it names no directory", nil)
		}
		q.Set("no_tmp_dir", "true") // its rename must not cross file systems
		q.Set("metadata", "skip")
		if create {
			q.Set("create_dir", "true")
		}
	} else if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		u.Path = ""
		q.Set("prefix", prefix+"/")
	}
	u.RawQuery = q.Encode()

	// The driver makes it, too, but does not sync its name.
	if dir := Directory(address); dir != "" && create {
		if err := datadir.MkdirAll(dir); err != nil {
			return bad("", err)
		}
	}
	bucket, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return bad("", err)
	}

	return bucket, nil
}

// Start begins to back up e, an open database of logtree, until Close. It begins a generation of its own in the bucket,
// so that nothing that is there is written over, whoever made it. What the last generation of the same database has is
// compared with the files here by its checksums, and not uploaded again.
//
// It does not wait for the bucket: errors show in Status and in the log, and uploads are tried again. ErrUnavailable:
// the engine is open for reading only, or is not of logtree and o has no CopyEvery.
func Start(e holdfast.Engine, bucket *blob.Bucket, o Options) (*Backup, error) {
	o.Every, o.BaseEvery = cmp.Or(o.Every, time.Second), cmp.Or(o.BaseEvery, time.Hour)
	o.BaseBytes, o.HeldBytes = cmp.Or(o.BaseBytes, 256<<20), cmp.Or(o.HeldBytes, 1<<30)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	codec, err := newCodec(o.Compress, o.Recipients)
	if err != nil {
		return nil, err
	}
	limit, err := newLimit(o.Rate)
	if err != nil {
		return nil, err
	}

	now := time.Now()
	b := &Backup{engine: e, bucket: bucket, o: o, codec: codec, limit: limit, finish: make(chan struct{}),
		ended: make(chan struct{}), baseAt: now, pieces: map[string][]Piece{}, named: map[string]bool{},
		made: make(chan attempt, 1), status: Status{started: now}}
	run := b.runCopies
	if o.CopyEvery <= 0 || e.Capabilities().Engine == logtree.Name {
		if b.feed, err = logtree.OpenFeed(e, o.HeldBytes); err != nil {
			return nil, err
		}
		b.at, run = place(b.feed.Begin()), b.run
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	go run()
	if o.Keep != (Keep{}) {
		b.others.Go(b.prune)
	}
	if o.VerifyEvery > 0 {
		b.others.Go(b.verifies)
	}

	return b, nil
}

// Status returns how far the backup is.
func (b *Backup) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.status
}

// Close uploads what is left and ends the backup, which it must before the engine is closed. When ctx ends it does not
// wait for uploads. Of an engine that is copied as a whole, a last copy is made. The error says why the bucket has not
// everything that was written before Close.
func (b *Backup) Close(ctx context.Context) error {
	b.closing.Do(func() { close(b.finish) })
	select {
	case <-b.ended:
	case <-ctx.Done():
	}
	b.stop()
	<-b.ended
	b.others.Wait()
	if b.feed != nil {
		b.feed.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()

	return cmp.Or(b.errs[0], b.errs[1])
}

// run uploads until Close.
func (b *Backup) run() {
	defer close(b.ended)
	for last := false; ; {
		err := b.round()
		b.note(0, err)
		if last {
			break
		}
		wait := b.o.Every
		if err != nil {
			wait = max(wait, retryEvery)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case a := <-b.made:
			b.baseMade(a)
		case <-b.finish:
			last = true
		}
		t.Stop()
	}

	// The first base is waited for: without it the log is of no use. A later one is not worth the time.
	if !b.making {
		return
	}
	if b.based {
		b.stop()
		<-b.made
		return
	}
	b.baseMade(<-b.made)
}

// pruneEvery is how often it is looked what need not be kept.
const pruneEvery = time.Hour

// lookEvery is how often it is looked whether the last base is there, and the last one.
var lookEvery = time.Hour

// prune removes what need not be kept, from time to time.
func (b *Backup) prune() {
	t := time.NewTicker(pruneEvery)
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		var p Pruned
		err := b.clock()
		if err == nil {
			b.mu.Lock()
			own := b.last
			b.mu.Unlock()
			b.sweep.Lock()
			p, err = prune(b.ctx, b.bucket, b.o.Keep, own, time.Now(), usual)
			b.sweep.Unlock()
		}
		switch {
		case b.ctx.Err() != nil:
			return
		case err != nil:
			b.o.Logger.Error("not all can be removed that need not be kept", "error", err.Error())
		default:
			b.o.Logger.Info("removed what need not be kept", "bases", p.Bases, "objects", p.Objects)
		}
	}
}

// retryEvery is the least time between two attempts after one that failed.
const retryEvery = 2 * time.Second

// baseMade notes what became of a base.
func (b *Backup) baseMade(a attempt) {
	b.making = false
	if a.err == nil && a.chain == b.chain {
		b.based = true
		b.isSafe()
	}
	b.note(1, a.err)
}

// isSafe makes the last round's moment the one that is safe.
func (b *Backup) isSafe() {
	if b.based {
		b.mu.Lock()
		b.status.Safe = b.safe
		b.mu.Unlock()
	}
}

// note makes what became of the log (0) or a base (1) the status, and tells of what is new.
func (b *Backup) note(which int, err error) {
	b.mu.Lock()
	was := cmp.Or(b.errs[0], b.errs[1])
	b.errs[which] = err
	now, lag := cmp.Or(b.errs[0], b.errs[1]), b.status.Lag()
	b.status.Err = cmp.Or(now, b.other)
	b.mu.Unlock()

	switch {
	case now != nil && was == nil:
		b.o.Logger.Error("the backup is behind, and tries again", "error", now.Error(),
			"lag", lag.Round(time.Second).String())
	case now == nil && was != nil:
		b.o.Logger.Info("the backup works again")
	}
}

// begin begins the generation, once.
func (b *Backup) begin() error {
	if b.gen != "" {
		return nil
	}
	gen, err := newGeneration(b.ctx, b.bucket, time.Now())
	if err != nil {
		return failed("begin a backup", "", err)
	}
	b.mu.Lock()
	b.gen, b.status.Generation = gen, gen
	b.mu.Unlock()

	return nil
}

// round uploads what the log has grown by, and begins a base if one is due.
func (b *Backup) round() error {
	if err := b.begin(); err != nil {
		return err
	}
	if err := b.flush(); err != nil {
		return err
	}
	now := time.Now()
	if err := b.catchUp(now); err != nil {
		return err
	}

	select {
	case a := <-b.made:
		b.baseMade(a)
	default:
	}
	if err := b.look(now); err != nil {
		return err
	}
	due := !b.based || b.since >= b.o.BaseBytes || b.since > 0 && now.Sub(b.baseAt) >= b.o.BaseEvery
	if b.making || !due {
		return nil
	}
	state, err := b.feed.State()
	if err != nil {
		return err
	}

	// The log that has come since is uploaded before the files, so that they are made of it and not uploaded twice. The
	// log behind the base begins before that: it has this once more, which does no harm.
	base := &Base{Generation: b.gen, Log: b.log, At: b.at, End: place(state.End), Time: time.Now().UTC(),
		LSN: state.End.LSN, Database: database(state.Manifest), Keys: b.codec.keys, Mark: string(b.feed.Mark())}
	before, chain := b.since, b.chain
	if err := b.catchUp(time.Now()); err != nil || b.chain != chain {
		state.Release()
		return err
	}
	b.making, b.since, b.baseAt, b.tried = true, b.since-before, now, b.tried+1
	try := b.tried
	go func() {
		defer state.Release()
		b.made <- attempt{chain, b.makeBase(base, state, try)}
	}()

	return nil
}

// catchUp uploads what the log has grown by.
func (b *Backup) catchUp(now time.Time) error {
	list, end, ok, err := b.feed.Log()
	if err != nil {
		return err
	}
	if !ok {
		b.o.Logger.Warn("too much log has come since an upload worked, and was let go: a new base is made")
		b.at, b.based, b.chain = place(b.feed.Advance(end)), false, b.chain+1

		return nil
	}
	if err := b.ship(list, end, now); err != nil {
		return err
	}
	b.feed.Advance(end)
	b.safe = now
	b.isSafe()

	return nil
}

// look finds out, from time to time, whether the last base is still there, and whether this generation still is the
// last one. Who removes objects of a backup that is still running, by mistake, would otherwise leave a log that follows
// nothing; and who has given the place to another program, too, would restore and follow what that one has.
func (b *Backup) look(now time.Time) error {
	if b.making {
		return nil // it may name what is damaged or gone
	}
	b.mu.Lock()
	broken := b.broken
	b.broken = false
	b.mu.Unlock()
	if broken && b.based {
		b.o.Logger.Warn("the present state is damaged in the bucket; another base is made")
		b.based = false
	}
	if !b.based || now.Sub(b.looked) < lookEvery {
		return nil
	}
	b.mu.Lock()
	key := b.last
	b.mu.Unlock()
	there, err := exists(b.ctx, b.bucket, key)
	if err != nil {
		return failed("get", key, err)
	}
	if err := b.alone(); err != nil {
		return err
	}
	b.looked = now
	if !there {
		b.o.Logger.Warn("somebody has removed the last base; another one is made", "key", key)
		b.mu.Lock()
		clear(b.pieces)
		b.mu.Unlock()
		b.based = false
	}

	return nil
}

// alone finds out whether another program has begun a generation since this one has.
func (b *Backup) alone() error {
	gens, err := generations(b.ctx, b.bucket)
	if err != nil {
		return failed("list", "", err)
	}
	if len(gens) == 0 || gens[len(gens)-1] <= b.gen {
		return nil
	}
	b.mu.Lock()
	known := b.other != nil
	b.other = &holdfast.Error{Op: "back up", Path: gens[len(gens)-1], Class: holdfast.ErrUnavailable,
		Detail: "another program has begun to back up to the same place, and restores and followers take what that one has",
		Remedy: "give it another place, and start this one again, which makes its states the last ones"}
	if !known {
		b.o.Logger.Error("the backup is not the last one in its place", "error", b.other.Error())
	}
	b.status.Err = cmp.Or(b.errs[0], b.errs[1], b.other)
	b.mu.Unlock()

	return nil
}

// database is a sum of the id of the database in a manifest, where it is behind the header. The id itself, which all
// files have, makes the sums of encrypted files say nothing to who guesses their contents.
func database(manifest []byte) string {
	return sum(append([]byte("the database of a backup: "), manifest[20:36]...))[:32]
}

// place is a position as a name of a file has it.
func place(p logtree.Position) Place {
	if p.Segment == 0 {
		return Place{}
	}

	return Place{logtree.SegmentFile(p.Segment), p.Offset}
}

// maxLogObject is how many bytes of log are in one object.
const maxLogObject = 8 << 20

// ship makes objects of what the log has grown by, and uploads them. The last one says that there is a state.
func (b *Backup) ship(list []logtree.Stretch, end logtree.Position, now time.Time) error {
	list = after(list, b.at)
	for i, s := range list {
		for s.From < s.To {
			n := min(s.To-s.From, maxLogObject)
			e := entry{Prev: b.at, File: s.Name, From: s.From, Bytes: n, Time: now.UTC(), LSN: end.LSN,
				State: i == len(list)-1 && s.From+n == s.To, Codec: b.codec.name()}
			o, err := b.logObject(e)
			if err != nil {
				return err
			}
			b.pending = append(b.pending, o)
			b.at, b.since, s.From = e.end(), b.since+n, s.From+n
			if err := b.flush(); err != nil {
				return err
			}
		}
	}

	return nil
}

// logObject reads the bytes of an entry, and makes the next object of the log of them. From then on the object has its
// number and its bytes, whatever becomes of the upload. They are in a buffer that the object after it uses again.
func (b *Backup) logObject(e entry) (o object, err error) {
	into := append(b.buffer[:0], make([]byte, headRoom)...)
	plain := &into
	if e.Codec != "" {
		b.plain = b.plain[:0]
		plain = &b.plain
	}
	begin := len(*plain)
	*plain = slices.Grow(*plain, int(e.Bytes))
	part := logtree.Stretch{Name: e.File, From: e.From, To: e.From + e.Bytes}
	if err := b.feed.Read(b.ctx, part, func(p []byte) error { *plain = append(*plain, p...); return nil }); err != nil {
		return o, err
	}
	if e.Codec != "" {
		if into, err = b.codec.encode(into, b.plain); err != nil {
			return o, err
		}
	}
	b.buffer = into
	e.Sum = sum(into[headRoom:])
	data, skip, err := sealLog(e, into)
	if err != nil {
		return o, err
	}

	b.log++
	o = object{key: logKey(b.gen, b.log), data: data, of: e}
	if e.Bytes >= leastPiece {
		o.piece = Piece{Object: o.key, Skip: skip, Bytes: e.Bytes, Sum: e.Sum, Codec: e.Codec}
		if e.Codec != "" {
			o.piece.Sum, o.piece.Stored, o.piece.StoredSum = sum((*plain)[begin:]), int64(len(into)-headRoom), e.Sum
		}
	}

	return o, nil
}

// after returns what is behind a place; a list does not begin behind it.
func after(list []logtree.Stretch, at Place) []logtree.Stretch {
	for i, s := range list {
		if s.Name != at.File {
			continue
		}
		list = append([]logtree.Stretch{}, list[i:]...)
		if list[0].From = max(s.From, at.Offset); list[0].From >= s.To {
			list = list[1:]
		}

		break
	}

	return list
}

// flush uploads what is pending.
func (b *Backup) flush() error {
	for len(b.pending) > 0 {
		o := b.pending[0]
		if err := b.put(b.ctx, o.key, o.data); err != nil {
			return err
		}
		b.limit.took(len(o.data))
		b.pending = b.pending[1:]
		if o.of.Bytes >= leastPiece {
			b.know(o.of.File, o.of.From, o.piece)
		}
	}

	return nil
}

// count counts an object that was uploaded.
func (b *Backup) count(bytes int64) {
	b.mu.Lock()
	b.status.Objects++
	b.status.Bytes += bytes
	b.mu.Unlock()
}
