package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash returns the file system as it may be found after a power cut now: one of the many outcomes that [Mem]
// describes, chosen by rnd (nil is the same as a fresh generator each time). All in it is durable. It has m's
// capacity, but no hook. m is as it was before, and shares nothing with the new one; call [Mem.Halt] first, or open
// files continue to write to the old file system.
func (m *Mem) Crash(rnd *rand.Rand) *Mem {
	if rnd == nil {
		rnd = rand.New(rand.NewPCG(0, 0))
	}

	// Half of the cuts take another mode for each file. The rest are the simple outcomes, which a real disk gives most
	// often: nothing, everything, or everything up to one moment.
	p := &plan{rnd: rnd, mode: modeEach}
	switch rnd.IntN(8) {
	case 0:
		p.mode = modeNothing
	case 1:
		p.mode = modeAll
	case 2, 3:
		p.mode = modeHorizon
	}

	return m.crash(p)
}

// CrashNothing returns the file system after a power cut that only synced data survives.
func (m *Mem) CrashNothing() *Mem { return m.crash(&plan{mode: modeNothing}) }

// CrashAll returns the file system after a power cut before which everything happened to reach
// the disk, except what a failed sync dropped.
func (m *Mem) CrashAll() *Mem { return m.crash(&plan{mode: modeAll}) }

// Kill returns the file system as it is found after kill -9: everything that was written is there,
// and what was not synced still is not. It is the same as Clone.
func (m *Mem) Kill() *Mem { return m.Clone() }

// Clone returns a copy, with its history and its capacity, that is not halted and has no hook. Open
// files stay with m.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absorb()

	// Files have several names, and directories that were removed are still named by the journal: each node is copied
	// once, however it is reached.
	copies := map[*node]*node{}
	var reach func(n *node) *node
	all := func(entries map[string]*node) map[string]*node {
		if entries == nil {
			return nil
		}

		fresh := make(map[string]*node, len(entries))
		for name, n := range entries {
			fresh[name] = reach(n)
		}

		return fresh
	}

	c := newMem(nil)
	reach = func(n *node) *node {
		if n == nil || copies[n] != nil {
			return copies[n]
		}

		// The copy is known before its parts are made, so that whatever else leads to the node finds it.
		fresh := &node{names: n.names, changes: slices.Clone(n.changes), log: slices.Clone(n.log), most: n.most}
		copies[n] = fresh
		fresh.seen, fresh.disk = n.seen.share(), n.disk.share()
		if n.base != nil {
			base := n.base.share()
			fresh.base = &base
		}
		if n.names > 0 {
			fresh.blocks = slices.Clone(n.blocks)
			c.used += n.room()
		}
		fresh.entries, fresh.durable = all(n.entries), all(n.durable)

		return fresh
	}

	c.root = reach(m.root)
	for _, e := range m.journal {
		for i, s := range e.sides {
			e.sides[i] = side{reach(s.dir), s.name, reach(s.node)}
		}
		c.journal = append(c.journal, e)
	}
	c.capacity, c.ops, c.pcg, c.mapping = m.capacity, m.ops, m.pcg, m.mapping

	return c
}

// DropCaches makes the process see what is on the disk where a failed sync had dropped
// what it wrote, as when the system needs the memory of those pages. What is still to be
// synced stays.
func (m *Mem) DropCaches() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absorb()
	seen := map[*node]bool{}
	var visit func(n *node)
	visit = func(n *node) {
		if seen[n] {
			return
		}
		seen[n] = true
		if n.base != nil {
			n.evict()
			m.show(n, 0, n.seen.size)
		}

		for _, below := range n.entries {
			visit(below)
		}
	}
	visit(m.root)
}

// evict gives up what is seen in sectors that are not dirty.
func (n *node) evict() {
	// What is left of the pages is what the disk has, and the dirty sectors, which the system may not drop.
	seen, base := n.disk.share(), n.disk.share()

	seen.zero(n.low())
	base.zero(n.base.size)

	for _, r := range n.dirty() {
		seen.take(&n.seen, r.lo, r.hi)
		base.take(n.base, r.lo, r.hi)
	}
	seen.size, base.size = n.seen.size, n.base.size
	n.seen, *n.base = seen, base
}

// plan decides what of the history reaches the disk.
type plan struct {
	rnd     *rand.Rand
	mode    mode
	horizon int64 // of modeHorizon: what was done before is kept, what was done after is lost
	long    bool  // whatever else, all changes of length are kept
}

type mode int

const (
	modeNothing mode = iota
	modeAll
	modeHorizon // everything up to one moment
	modeMixed   // each change has a fate of its own
	modeSectors // each sector of each change has
	modeEach    // another mode for each file
)

// forOne returns the plan of one file, or of the journal, with the given moments.
func (p *plan) forOne(moments []int64) *plan {
	if p.mode != modeEach {
		return p
	}
	q := &plan{rnd: p.rnd, mode: mode(p.rnd.IntN(int(modeEach))), long: p.long}
	q.horizon = moments[p.rnd.IntN(len(moments))]

	return q
}

// fate is what becomes of one change.
type fate int

const (
	lost fate = iota
	kept
	torn
)

// fate is what becomes of the change that was made at that moment.
func (p *plan) fate(seq int64) fate {
	switch p.mode {
	case modeAll:
		return kept
	case modeHorizon:
		switch {
		case seq < p.horizon:
			return kept
		case seq == p.horizon:
			return torn
		}
	case modeMixed:
		return fate(p.rnd.IntN(3))
	case modeSectors:
		return torn
	}

	return lost
}

// lengths returns how many of count changes of a file's length reach the disk; done is how many
// the plan's moment makes.
func (p *plan) lengths(count, done int) int {
	switch {
	case p.mode == modeAll || p.long:
		return count
	case p.mode == modeNothing:
		return 0
	case p.mode == modeHorizon && p.rnd.IntN(4) > 0:
		return done
	}

	return p.rnd.IntN(count + 1)
}

// tear returns which of count sectors of a torn write are kept: a beginning, an end or any.
func (p *plan) tear(count int64) func(i int64) bool {
	from := p.rnd.Int64N(count + 1)
	switch p.rnd.IntN(4) {
	case 0:
		return func(i int64) bool { return i < from }
	case 1:
		return func(i int64) bool { return i >= from }
	}

	return func(int64) bool { return p.rnd.IntN(2) == 0 }
}

// crash builds the file system that p finds.
func (m *Mem) crash(p *plan) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absorb()

	// The moment is one of those at which something was not durable yet, and one more: everything done.
	if p.mode == modeHorizon {
		oldest := m.oldest()

		p.horizon = oldest + p.rnd.Int64N(m.ops-oldest+2)
	}
	entries := m.entriesAfter(p)
	c := newMem(nil)
	found := map[*node]*node{} // files, which may have several names
	var build func(n *node) *node
	build = func(n *node) *node {
		if fresh := found[n]; fresh != nil {
			fresh.names++
			return fresh
		}

		// Everything that the crash has left is durable: a second crash finds it as it is.
		fresh := &node{names: 1}
		if !n.isDir() {
			found[n] = fresh
			fresh.disk = n.image(p)
			fresh.seen = fresh.disk.share()
			fresh.settle(n)
			c.used += fresh.room()

			return fresh
		}
		names := entries(n)
		fresh.entries = make(map[string]*node, len(names))

		for _, name := range slices.Sorted(maps.Keys(names)) {
			fresh.entries[name] = build(names[name])
		}
		fresh.durable = maps.Clone(fresh.entries)

		return fresh
	}
	c.root = build(m.root)
	c.capacity, c.pcg, c.mapping = m.capacity, m.pcg, m.mapping

	return c
}

// settle gives a file that was found after a crash the room that old had, and that of bytes which
// came back because a cut or a removal was lost.
func (n *node) settle(old *node) {
	n.blocks = slices.Clone(old.blocks)
	removed := old.names == 0 && old.handles == 0

	for i := range pagesOf(n.disk.size) {
		if removed || int(i) < len(n.disk.pages) && n.disk.pages[i] != nil {
			n.give(i)
		}
	}
	n.clip(n.disk.size)
}

// oldest returns the moment of the first change that is not durable, the next one if all are.
func (m *Mem) oldest() int64 {
	oldest := m.ops + 1
	if len(m.journal) > 0 {
		oldest = m.journal[0].seq
	}
	var visit func(entries map[string]*node)
	visit = func(entries map[string]*node) {
		for _, n := range entries {
			if len(n.changes) > 0 {
				oldest = min(oldest, n.changes[0].seq)
			}
			visit(n.entries)
		}
	}
	visit(m.root.entries)

	return oldest
}

// entriesAfter decides what becomes of the journal, and returns what then is in a directory.
func (m *Mem) entriesAfter(p *plan) func(dir *node) map[string]*node {
	changed := map[*node]map[string]*node{}
	if len(m.journal) > 0 {
		moments := make([]int64, len(m.journal))
		for i, e := range m.journal {
			moments[i] = e.seq
		}
		p = p.forOne(moments)
	}

	missing := map[entry]bool{} // names of which a change is lost
	for _, e := range m.journal {
		f := p.fate(e.seq)

		// Of a rename either both sides are kept or none. A change of a name of which an earlier change is lost is lost too:
		// the journal is in order for each name.
		keep := f == kept || f == torn && p.rnd.IntN(2) == 0

		for _, s := range e.sides {
			keep = keep && (s.dir == nil || !missing[entry{s.dir, s.name}])
		}

		for _, s := range e.sides {
			switch {
			case s.dir == nil:
			case !keep:
				missing[entry{s.dir, s.name}] = true
			default:
				if changed[s.dir] == nil {
					changed[s.dir] = maps.Clone(s.dir.durable)
				}
				set(changed[s.dir], s)
			}
		}
	}

	return func(dir *node) map[string]*node {
		if entries := changed[dir]; entries != nil {
			return entries
		}

		return dir.durable
	}
}

// image returns what the disk holds of a file after p. It makes the history again, and takes over
// from it the sectors that p keeps, as they were then.
func (n *node) image(p *plan) contents {
	img := n.disk.share()
	if len(n.changes) == 0 {
		return img
	}

	moments := make([]int64, len(n.changes))
	for i, c := range n.changes {
		moments[i] = c.seq
	}
	p = p.forOne(moments)

	// Lengths reach the disk in the order in which they were set; sectors reach it in any.
	left := p.lengths(n.countLengths(p))
	now := n.start().share()
	size := img.size               // on the disk
	before := img.size             // as it was seen before the change
	limit := int64(maxMemFile)     // nothing from here on can be kept: a cut that is lost freed it
	short := p.mode == modeNothing // no length in between
	for _, c := range n.changes {
		f := p.fate(c.seq)
		if c.n > 0 {
			for _, part := range c.parts(p, f) {
				now.write(n.log[c.at+int(part.lo):c.at+int(part.hi)], c.off+part.lo)
				img.keep(&now, p, f, span{c.off + part.lo, c.off + part.hi}, limit)
			}
		}
		if c.size == before {
			continue
		}
		cut := c.size < now.size
		if cut {
			now.resize(c.size)
		}
		now.size = c.size

		// The length of this change is kept, or lost with all later ones. Where a cut is lost, what is written behind it
		// later cannot be kept: its pages were the old ones'.
		page := roundUp(c.size, pageSize)
		switch {
		case left > 0 && c.size < before:
			img.zero(c.size)
			size = c.size
		case left > 0:
			size = c.size
		case c.size < before:
			if limit = min(limit, page); page > c.size {
				img.keep(&now, p, f, span{c.size, page}, limit)
			}
			short = true
		case !short && f == torn:
			size = max(size, (size+p.rnd.Int64N(c.size-size))/sectorSize*sectorSize)
			short = true
		default:
			short = true
		}
		left--
		before = c.size
	}
	img.size = size
	img.zero(size)

	return img
}

// parts are the steps in which the bytes of c came to be seen, each of which may be what the disk holds: those
// of a store that p tears are two, at any byte of it.
func (c *change) parts(p *plan, f fate) []span {
	if !c.stored || f != torn {
		return []span{{0, c.n}}
	}
	at := p.rnd.Int64N(c.n + 1)
	parts := []span{{0, at}, {at, c.n}}
	if p.rnd.IntN(4) == 0 {
		slices.Reverse(parts)
	}

	return parts
}

// countLengths returns how many changes change the length, and how many of them p's moment has
// made.
func (n *node) countLengths(p *plan) (count, done int) {
	before := n.disk.size
	for _, c := range n.changes {
		if c.size != before {
			if count++; c.seq < p.horizon {
				done++
			}
		}
		before = c.size
	}

	return count, done
}

// keep takes those sectors of r below limit over from now that f leaves.
func (c *contents) keep(now *contents, p *plan, f fate, r span, limit int64) {
	lo, hi := r.lo/sectorSize*sectorSize, min(roundUp(r.hi, sectorSize), limit)
	switch {
	case f == lost || lo >= hi:
	case f == kept:
		c.take(now, lo, hi)
	default:
		keep := p.tear((hi - lo + sectorSize - 1) / sectorSize)
		for i, at := int64(0), lo; at < hi; i, at = i+1, at+sectorSize {
			if keep(i) {
				c.take(now, at, min(at+sectorSize, hi))
			}
		}
	}
}

// drop is a sync that fails: what was not on the disk may not come there any more, though it is
// seen; half of the time some of it is there, with the length. Otherwise that stays to be synced.
func (n *node) drop(rnd *rand.Rand) {
	if len(n.changes) == 0 {
		return
	}

	// A real system reports the failure once and takes the pages for clean. Half of the time some of them had reached the
	// disk.
	if rnd.IntN(2) == 0 {
		n.disk = n.image(&plan{rnd: rnd, mode: modeEach, long: true})
	} else if low := n.low(); low < n.seen.size && low < n.disk.size {
		n.disk.resize(low) // by a cut; only the length that the file has now stays to be synced
	}
	seq := n.changes[len(n.changes)-1].seq
	n.forget()
	base := n.seen.share()
	n.base = &base
	if n.disk.size != n.seen.size {
		n.changes = append(n.changes, change{seq: seq, size: n.seen.size})
	}
}
