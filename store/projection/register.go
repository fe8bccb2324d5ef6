package projection

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
)

// All keys with the prefix of a projection are its own, so no prefix may begin with another. Which there are is known
// in two places. While a program has projections, made holds their prefixes. And an engine holds those that were ever
// run in it, until they are rebuilt, under the keys
//
//	's' 0 'p' PREFIX      version (1 byte, now 1), then the projection's name
//
// 's' is what the keys of the server begin with, too; 0 is the length of a name, which is empty; 'p' is the table.
const (
	tablePrefixes   = 'p'
	prefixesVersion = 1
)

var prefixes = keyspace.New(keyspace.Server, "")

// overlap says what is wrong with a prefix beside another projection's; "" means nothing. With same, that may have the
// same prefix.
func (o *Options) overlap(prefix, name string, same bool) string {
	switch {
	case prefix == o.Prefix && (same || name == o.Name):
		return ""
	case prefix == o.Prefix:
		return fmt.Sprintf("the prefix %q is that of the projection %q", prefix, name)
	case strings.HasPrefix(prefix, o.Prefix):
		return fmt.Sprintf("the prefix %q covers %q, that of the projection %q", o.Prefix, prefix, name)
	case strings.HasPrefix(o.Prefix, prefix):
		return fmt.Sprintf("the prefix %q lies within %q, that of the projection %q", o.Prefix, prefix, name)
	}
	return ""
}

const overlapRemedy = "use another prefix, or rebuild the other projection and do not run it any more"

// made are the projections of this program that have not been collected as garbage.
var made struct {
	sync.Mutex
	by map[holdfast.Engine]map[[2]string]int // how many there are of a prefix and a name
}

// enlist notes a projection that was made, and refuses it if its prefix is another one's.
func enlist[E any](p *Projection[E]) error {
	eng := p.source.engine()
	if eng == nil || !reflect.ValueOf(eng).Comparable() {
		return nil // which a run is told
	}
	made.Lock()
	defer made.Unlock()
	for of := range made.by[eng] {
		if what := p.o.overlap(of[0], of[1], false); what != "" {
			return p.fail("new", holdfast.ErrBadOption, nil, overlapRemedy, "%s", what)
		}
	}
	if made.by == nil {
		made.by = map[holdfast.Engine]map[[2]string]int{}
	}
	if made.by[eng] == nil {
		made.by[eng] = map[[2]string]int{}
	}
	own := [2]string{p.o.Prefix, p.o.Name}
	made.by[eng][own]++
	runtime.AddCleanup(p, func(eng holdfast.Engine) {
		made.Lock()
		defer made.Unlock()
		if made.by[eng][own]--; made.by[eng][own] == 0 {
			delete(made.by[eng], own)
		}
		if len(made.by[eng]) == 0 {
			delete(made.by, eng)
		}
	}, eng)
	return nil
}

// registered reports whether the engine knows the projection. It refuses one whose prefix is another one's; with same,
// the other may have the same prefix, but another name.
func (p *Projection[E]) registered(same bool) (known bool, err error) {
	lo, hi := prefixes.Table(tablePrefixes)
	it := p.source.engine().Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		prefix, value := string(prefixes.Rest(it.Key())), it.Value()
		if len(value) == 0 || value[0] != prefixesVersion {
			return false, p.fail("open", holdfast.ErrVersion, nil, "use a newer holdfast",
				"what is kept of the projection with the prefix %q cannot be read", prefix)
		}
		name := string(value[1:])
		if what := p.o.overlap(prefix, name, same); what != "" {
			return false, p.fail("open", holdfast.ErrBadOption, nil, overlapRemedy, "%s", what)
		}
		known = known || prefix == p.o.Prefix && name == p.o.Name
	}
	return known, it.Err()
}

// register lets the engine know the projection, or not any more.
func (p *Projection[E]) register(ctx context.Context, known bool) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	var b holdfast.Batch
	key := prefixes.Key(nil, tablePrefixes, p.o.Prefix)
	if known {
		b.Set(key, append([]byte{prefixesVersion}, p.o.Name...))
	} else {
		b.Delete(key)
	}
	return holdfast.Commit(p.source.engine(), &b, p.source.level())
}
