package task

import (
	"bytes"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// SetSizes makes the windows of lanes small, and what one commit does of what is due, lets few records be at hand, and
// returns what ends that. No store is open meanwhile.
func SetSizes(free, key, most int) (restore func()) {
	wasFree, wasKey, wasChunk, wasAtHand := window, keyWindow, chunk, atHand
	window, keyWindow, chunk, atHand = free, key, most, 2<<10
	return func() { window, keyWindow, chunk, atHand = wasFree, wasKey, wasChunk, wasAtHand }
}

// SetLowStep makes lows be stored once in n removals, as SetSizes does with other sizes.
func SetLowStep(n int) (restore func()) {
	was := lowStep
	lowStep = n
	return func() { lowStep = was }
}

// SetClaimBytes makes claims and lists smaller, as SetSizes does with other sizes.
func SetClaimBytes(n int) (restore func()) {
	claimBytes = n
	return func() { claimBytes = ClaimBytes }
}

// Low is the key of a low.
func Low(store, part string) []byte         { return format.New(store).Low(part) }
func Description(store string) (key []byte) { return format.New(store).Meta() }

// Known is how many queues are in memory.
func (s *Store) Known() int {
	s.lock()
	defer s.turn.Unlock()
	return len(s.queues)
}

// Rates is what the keys of starts begin with, of keys of the default queue.
func Rates(store string) []byte {
	key := format.New(store).Rate(nil, DefaultQueue, "")
	return key[:len(key)-1]
}

// SetMaxListed lets an opening know little of the table of lanes that are away, as SetSizes does with other sizes.
func SetMaxListed(n int) (restore func()) {
	was := maxListed
	maxListed = n
	return func() { maxListed = was }
}

// SetMaxLanes makes few lanes of keys be in memory, as SetSizes does with other sizes.
func SetMaxLanes(n int) (restore func()) {
	was := maxLanes
	maxLanes = n
	return func() { maxLanes = was }
}

// Lanes is how many lanes of keys are in memory.
func (s *Store) Lanes() int {
	s.lock()
	defer s.turn.Unlock()
	return s.keyed
}

// Aways is what the keys of lanes begin with that are not in memory, of the default queue.
func Aways(store string) []byte { return format.New(store).Aways(DefaultQueue) }

// MaxGaps is how many gaps are known of a part of a table at most.
const MaxGaps = maxGaps

// Gaps is the largest number of gaps that are known of a part of a table; filled are the keys that are in them.
func (s *Store) Gaps() (most int, filled [][]byte, err error) {
	s.lock()
	defer s.turn.Unlock()
	for _, l := range s.lows {
		most = max(most, len(l.gaps))
		for _, gap := range l.gaps {
			it := s.state.Scan(holdfast.Range{Lo: gap.Lo, Hi: gap.Hi})
			for it.Next() {
				filled = append(filled, bytes.Clone(it.Key()))
			}
			err = errors.Join(err, it.Close())
		}
	}
	return most, filled, err
}

// Overflow lets the batch of a transaction have nothing of what calls write from now on, as it does when that is too
// large.
func (s *Store) Overflow() { s.batch.Set([]byte{0}, make([]byte, holdfast.MaxValueSize+1)) }
