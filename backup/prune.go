package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast"
)

// Keep says which states stay in a bucket. The zero value keeps all. The last state always stays.
type Keep struct {
	All    time.Duration // every state of this time until now
	Hourly int           // one of each of so many hours with states, the last; by UTC
	Daily  int           // likewise of days
	Weekly int           // of weeks that begin on Monday
}

// ParseKeep reads a text like "all=24h,hourly=48,daily=14,weekly=8".
func ParseKeep(text string) (k Keep, err error) {
	bad := func(part string) (Keep, error) {
		return Keep{}, &holdfast.Error{Op: "read what to keep", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("%q", part), Remedy: "write it as all=24h,hourly=48,daily=14,weekly=8"}
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name == "all" {
			if k.All, err = time.ParseDuration(value); err != nil || k.All <= 0 {
				return bad(part)
			}
			continue
		}
		n, err := strconv.Atoi(value)
		into := map[string]*int{"hourly": &k.Hourly, "daily": &k.Daily, "weekly": &k.Weekly}[name]
		if err != nil || n <= 0 || into == nil {
			return bad(part)
		}
		*into = n
	}

	return k, nil
}

// bases chooses the bases that are kept; all are in the order of time, the last is of the last state.
func (k Keep) bases(all []baseName, now time.Time) map[string]bool {
	kept := map[string]bool{}
	if n := len(all); n > 0 {
		kept[all[n-1].key] = true
	}
	begin := now.Add(-k.All)
	for i, b := range all {
		// The last one before the begin leads to the states at the begin.
		if k.All > 0 && (!b.time.Before(begin) || i+1 < len(all) && all[i+1].time.After(begin)) {
			kept[b.key] = true
		}
	}

	monday := time.Date(1970, 1, 5, 0, 0, 0, 0, time.UTC)
	for _, rule := range []struct {
		n      int
		length time.Duration
	}{{k.Hourly, time.Hour}, {k.Daily, 24 * time.Hour}, {k.Weekly, 7 * 24 * time.Hour}} {
		last := int64(-1 << 62)
		for i := len(all) - 1; i >= 0 && rule.n > 0; i-- {
			if slot := int64(all[i].time.Sub(monday) / rule.length); slot != last {
				kept[all[i].key], last = true, slot
				rule.n--
			}
		}
	}

	return kept
}

// times are how long things stay in any case.
type times struct {
	replaced time.Duration // a base that a newer one has replaced: another start may be about to name its files
	unnamed  time.Duration // an object that no base names, from its upload on: the base may be under way
	baseless time.Duration // a generation without a base, likewise
}

var usual = times{6 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour}

// Pruned is what Prune has removed.
type Pruned struct{ Bases, Objects int }

// Prune removes the states that are not to be kept, and what no kept state names. It removes bases first, so that what
// a kill leaves is whole, and the next Prune removes the rest. Backups that run may go on meanwhile. What was replaced
// less than six hours ago stays, and so do objects of the last two days that no base names. The last state of each
// database stays.
func Prune(ctx context.Context, bucket *blob.Bucket, keep Keep) (Pruned, error) {
	return prune(ctx, bucket, keep, "", time.Now(), usual)
}

// prune is Prune, at that time. It keeps the base own, if that is not "".
func prune(ctx context.Context, bucket *blob.Bucket, keep Keep, own string, now time.Time, stay times) (
	p Pruned, err error,
) {
	if keep == (Keep{}) {
		return p, nil
	}
	gens, err := generations(ctx, bucket)
	if err != nil {
		return p, failed("prune", "", err)
	}

	// What stays: bases, and what they name.
	var all []baseName
	of := map[string][]baseName{}
	for _, gen := range gens {
		if of[gen], err = bases(ctx, bucket, gen); err != nil {
			return p, err
		}
		all = append(all, of[gen]...)
	}
	kept := keep.bases(all, now)
	for i, b := range all {
		if i+1 < len(all) && now.Sub(all[i+1].time) < stay.replaced {
			kept[b.key] = true
		}
	}

	// Several programs may have been given one bucket by mistake. That of another database, or one that has begun later
	// and is not there any more, is no reason to remove the last state of this one, however old it is.
	kept[own] = true
	last := map[string]bool{}
	for _, names := range of {
		if n := len(names); n > 0 {
			last[names[n-1].key] = true
		}
	}
	databases, named := map[string]bool{}, map[string]bool{}
	for _, b := range slices.Backward(all) {
		if !kept[b.key] && !last[b.key] {
			continue
		}
		base, err := readBase(ctx, bucket, b.key)
		if !kept[b.key] && errors.Is(err, holdfast.ErrCorrupt) {
			continue // it is no state
		}
		if err != nil {
			return p, err // what it names is not known, so nothing is removed
		}
		if !databases[base.Database] {
			databases[base.Database], kept[b.key] = true, true
		}
		if !kept[b.key] {
			continue
		}
		for _, f := range base.Files {
			for _, piece := range f.Pieces {
				named[piece.Object] = true
			}
		}
	}

	for i, gen := range gens {
		g := pruning{gen, of[gen], kept, named, now.Add(-max(keep.All, stay.replaced)), now.Add(-stay.unnamed)}
		if len(g.bases) == 0 {
			if g.before = now.Add(-stay.baseless); i == len(gens)-1 {
				continue // it may be under way
			}
		}
		n, err := pruneGeneration(ctx, bucket, g)
		p.Bases, p.Objects = p.Bases+n.Bases, p.Objects+n.Objects
		if err != nil {
			return p, err
		}
	}

	return p, nil
}

// pruning is what is known of a generation.
type pruning struct {
	gen    string
	bases  []baseName
	kept   map[string]bool
	named  map[string]bool
	begin  time.Time // all states from here on are kept
	before time.Time // what was uploaded later and is not named is kept
}

// pruneGeneration removes what is not kept of a generation.
func pruneGeneration(ctx context.Context, bucket *blob.Bucket, g pruning) (p Pruned, err error) {
	// The log stays from the base on that leads to the begin. Without bases nothing of it is of use.
	from, bases := 0, 0
	for _, b := range g.bases {
		if g.kept[b.key] {
			bases++
		}
		if !b.time.After(g.begin) {
			from = b.log
		}
	}
	if bases == 0 {
		from = math.MaxInt
	}

	// First the bases, then what they named: this needs no room in a bucket that is full.
	for _, b := range g.bases {
		if !g.kept[b.key] {
			if err := remove(ctx, bucket, b.key); err != nil {
				return p, err
			}
			p.Bases++
		}
	}
	gone := func(o *blob.ListObject) bool { return !g.named[o.Key] && o.ModTime.Before(g.before) }
	if err := p.removeAll(ctx, bucket, g.gen+"/files/", gone, nil); err != nil {
		return p, err
	}
	if bases == 0 {
		if err := p.removeAll(ctx, bucket, g.gen+"/verified/", gone, nil); err != nil {
			return p, err
		}
	}
	if from == 0 {
		return p, nil
	}

	// From the mark on nobody misses the log up to there.
	if bases > 0 {
		key := thinKey(g.gen, from)
		put := func(ctx context.Context) error { return bucket.WriteAll(ctx, key, nil, nil) }
		if err := limited(ctx, put); err != nil {
			return p, failed("put", key, err)
		}
	}
	log := func(o *blob.ListObject) bool {
		// What a kill leaves in a directory, where an object has this name until it is whole.
		if strings.HasSuffix(o.Key, ".tmp") {
			return o.ModTime.Before(g.before)
		}
		n, err := strconv.Atoi(path.Base(o.Key))
		return err == nil && n <= from && gone(o)
	}
	stop := func(o *blob.ListObject) bool { // the log is listed in order
		n, err := strconv.Atoi(path.Base(o.Key))
		return err == nil && n > from
	}
	thin := func(o *blob.ListObject) bool { return bases == 0 || o.Key < thinKey(g.gen, from) }
	if err := p.removeAll(ctx, bucket, g.gen+"/log/", log, stop); err != nil {
		return p, err
	}

	return p, p.removeAll(ctx, bucket, g.gen+"/thin/", thin, nil)
}

// clockTolerance is how far the clock here may be from the bucket's while states are removed by their times.
const clockTolerance = time.Hour

// clock returns an error if the clock here is wrong, by what the bucket's said when the last base was uploaded, or has
// been set since.
func (b *Backup) clock() error {
	b.mu.Lock()
	key, at := b.last, b.lastAt
	b.mu.Unlock()
	if key == "" {
		return nil // nothing is removed of a generation without a base that may be under way
	}
	var there time.Time
	err := limited(b.ctx, func(ctx context.Context) error {
		a, err := b.bucket.Attributes(ctx, key)
		if err == nil {
			there = a.ModTime
		}

		return err
	})
	if err != nil {
		return failed("get", key, err)
	}
	now := time.Now()
	wrong := at.Sub(there).Abs()
	wrong = max(wrong, (now.Round(0).Sub(at.Round(0)) - now.Sub(at)).Abs()) // without the monotonic clock, and with it
	if wrong > clockTolerance {
		return &holdfast.Error{Op: "prune", Class: holdfast.ErrUnavailable,
			Detail: fmt.Sprintf("the clock here differs from the bucket's by %s, or was set", wrong.Round(time.Minute)),
			Remedy: "set it; nothing is removed before"}
	}

	return nil
}

// removeAll removes the objects below a prefix of which gone says so, up to one of which stop does.
func (p *Pruned) removeAll(ctx context.Context, bucket *blob.Bucket, prefix string,
	gone, stop func(*blob.ListObject) bool) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	work.Go(func() error { return nil })
	list := bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := next(ctx, list)
		if errors.Is(err, io.EOF) || err == nil && stop != nil && stop(o) {
			return work.Wait()
		}
		if err != nil {
			return errors.Join(failed("list", prefix, err), work.Wait())
		}
		if gone(o) {
			p.Objects++
			work.Go(func() error { return remove(ctx, bucket, o.Key) })
		}
	}
}

// remove removes an object, if it is there.
func remove(ctx context.Context, bucket *blob.Bucket, key string) error {
	err := limited(ctx, func(ctx context.Context) error { return bucket.Delete(ctx, key) })
	if err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return failed("delete", key, err)
	}

	return nil
}

// thinned returns up to which number the log of a generation may have been removed.
func thinned(ctx context.Context, bucket *blob.Bucket, gen string) (n int, err error) {
	prefix := gen + "/thin/"
	list := bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := next(ctx, list)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, failed("list", prefix, err)
		}
		if number, err := strconv.Atoi(path.Base(o.Key)); err == nil {
			n = max(n, number)
		}
	}
}
