// Package intervals is for engines that must carry out a DeleteRange key by key: it splits a batch so that its ranges
// can be deleted first.
package intervals

import (
	"bytes"
	"slices"
	"sort"

	"github.com/holdfastdb/holdfast"
)

// Union is a union of intervals, disjoint and in order.
type Union []Interval

// Interval is [Lo, Hi); an empty Hi is the end.
type Interval struct{ Lo, Hi []byte }

// endsBefore reports whether the interval lies below key and does not touch it.
func (i Interval) endsBefore(key []byte) bool {
	return len(i.Hi) > 0 && bytes.Compare(i.Hi, key) < 0
}

// Add adds [lo, hi), whose slices it keeps.
func (u *Union) Add(lo, hi []byte) {
	if len(hi) > 0 && bytes.Compare(lo, hi) >= 0 {
		return
	}
	s := *u
	first := sort.Search(len(s), func(n int) bool { return !s[n].endsBefore(lo) })
	last := first
	for ; last < len(s) && (len(hi) == 0 || bytes.Compare(s[last].Lo, hi) <= 0); last++ {
		if bytes.Compare(s[last].Lo, lo) < 0 {
			lo = s[last].Lo
		}
		if len(hi) > 0 && (len(s[last].Hi) == 0 || bytes.Compare(s[last].Hi, hi) > 0) {
			hi = s[last].Hi
		}
	}
	*u = slices.Replace(s, first, last, Interval{lo, hi})
}

// Has reports whether key is in one of the intervals.
func (u Union) Has(key []byte) bool {
	n := sort.Search(len(u), func(n int) bool { return len(u[n].Hi) == 0 || bytes.Compare(key, u[n].Hi) < 0 })
	return n < len(u) && bytes.Compare(u[n].Lo, key) <= 0
}

// Cut takes key out of the interval that it is in, and returns a copy of it; nil if it is in none.
func (u *Union) Cut(key []byte) []byte {
	s := *u
	n := sort.Search(len(s), func(n int) bool { return len(s[n].Hi) == 0 || bytes.Compare(key, s[n].Hi) < 0 })
	if n == len(s) || bytes.Compare(s[n].Lo, key) > 0 {
		return nil
	}

	at, next := both(key)
	left := [2]Interval{{s[n].Lo, at}, {next, s[n].Hi}}
	from, to := 0, 2
	if bytes.Equal(s[n].Lo, at) {
		from = 1
	}
	if len(s[n].Hi) > 0 && bytes.Equal(next, s[n].Hi) {
		to = 1
	}
	*u = slices.Replace(s, n, n+1, left[from:to]...)
	return at
}

// Extend adds key if an interval ends or begins right beside it.
func (u *Union) Extend(key []byte) {
	s := *u
	n := sort.Search(len(s), func(n int) bool { return !s[n].endsBefore(key) })
	if n < len(s) {
		if at, next := both(key); bytes.Compare(s[n].Lo, next) <= 0 {
			u.Add(at, next)
		}
	}
}

// both returns a copy of key, and the first key after it, in the same memory.
func both(key []byte) (at, next []byte) {
	next = append(append(make([]byte, 0, len(key)+1), key...), 0)
	return next[:len(key):len(key)], next
}

// Trim returns what is left of [lo, hi), with hi not empty, without the intervals at its two ends. It may be empty.
func (u Union) Trim(lo, hi []byte) (_, _ []byte) {
	n := sort.Search(len(u), func(n int) bool { return len(u[n].Hi) == 0 || bytes.Compare(lo, u[n].Hi) < 0 })
	if n < len(u) && bytes.Compare(u[n].Lo, lo) <= 0 {
		if lo = u[n].Hi; len(lo) == 0 {
			return hi, hi
		}
	}
	n = sort.Search(len(u), func(n int) bool { return !u[n].endsBefore(hi) })
	if n < len(u) && bytes.Compare(u[n].Lo, hi) < 0 {
		hi = u[n].Lo
	}
	return lo, hi
}

// Split takes the ranges out of ops. Deleting the union first and then applying left in order has the same result as
// ops: left omits what a later range would delete. It reuses the memory of ops.
func Split(ops []holdfast.Op) (covered Union, left []holdfast.Op) {
	for i := len(ops) - 1; i >= 0; i-- {
		if op := &ops[i]; op.Kind == holdfast.KindDeleteRange {
			covered.Add(op.Key, op.Value)
		} else if covered.Has(op.Key) {
			op.Kind = holdfast.KindDeleteRange
		}
	}
	left = slices.DeleteFunc(ops, func(op holdfast.Op) bool { return op.Kind == holdfast.KindDeleteRange })

	return covered, left
}
