//go:build linux

package db

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// BenchmarkWriters has many writers that each wait for their commits at Power, and so share syncs, beside the same
// writers over the least that could do it, in turns. It reports medians of the turns.
func BenchmarkWriters(b *testing.B) {
	for _, writers := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			c := testConfig(vfs.OS(), b.TempDir())
			c.Memory = 128 << 20
			d, err := Open(c)
			if err != nil {
				b.Fatal(err)
			}
			p := openPeer(b)
			logtree := &side{writers: writers, syncs: func() int64 { return d.Metrics().Syncs }}
			peer := &side{writers: writers, syncs: func() int64 { return p.syncs }}
			turns := min(10, b.N)
			for turn := range turns {
				n := b.N*(turn+1)/turns - b.N*turn/turns
				peer.turn(b, n, func() func(key, value []byte) error { return p.commit })
				logtree.turn(b, n, func() func(key, value []byte) error {
					var batch holdfast.Batch
					return func(key, value []byte) error {
						batch.Reset()
						batch.Set(key, value)
						return commit(d, &batch, holdfast.Power)
					}
				})
			}
			b.StopTimer()
			b.ReportMetric(0, "ns/op") // of both together
			peer.report(b, "peer")
			logtree.report(b, "logtree")
			var ratios []float64
			for i := range logtree.rate {
				ratios = append(ratios, logtree.rate[i]/peer.rate[i])
			}
			b.ReportMetric(median(ratios), "logtree/peer")
			if err := d.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// side is what one of the two has taken, turn by turn.
type side struct {
	writers, next            int
	syncs                    func() int64
	rate, cpu, allocs, group []float64
}

// turn makes n commits, with a commit function for each writer.
func (s *side) turn(b *testing.B, n int, writer func() func(key, value []byte) error) {
	if n == 0 {
		return
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	syncs, cpu, start := s.syncs(), cpuTime(), time.Now()
	var all sync.WaitGroup
	for w := range s.writers {
		all.Go(func() {
			commit := writer()
			var key [16]byte
			value := make([]byte, 128)
			for i := w; i < n; i += s.writers {
				binary.BigEndian.PutUint64(key[8:], uint64(s.next+i))
				if err := commit(key[:], value); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	s.next += n
	s.rate = append(s.rate, float64(n)/took.Seconds())
	s.cpu = append(s.cpu, float64(cpu.Nanoseconds())/float64(n))
	s.allocs = append(s.allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
	s.group = append(s.group, float64(n)/float64(max(s.syncs()-syncs, 1)))
}

func (s *side) report(b *testing.B, name string) {
	b.ReportMetric(median(s.rate), name+"-commits/s")
	b.ReportMetric(median(s.cpu), name+"-cpu-ns/commit")
	b.ReportMetric(median(s.allocs), name+"-allocs/commit")
	b.ReportMetric(median(s.group), name+"-commits/sync")
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// peer is group commit and nothing else: frames with a checksum in a file that was filled with zeros. Under one mutex,
// commits add their frames to the next group. Its first one is the leader: when the group before it is done, it copies
// the frames into one write, syncs, and wakes all that wait.
type peer struct {
	f     *os.File
	off   int64
	buf   []byte
	syncs int64

	mu      sync.Mutex
	idle    sync.Cond // no group is being written
	writing bool
	next    *peerGroup
}

type peerGroup struct {
	frames [][]byte
	done   chan struct{}
	err    error
}

const peerFile = 256 << 20

func openPeer(b *testing.B) *peer {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	for at := int64(0); at < peerFile; at += 1 << 20 {
		if _, err := f.WriteAt(make([]byte, 1<<20), at); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	p := &peer{f: f}
	p.idle.L = &p.mu
	return p
}

func (p *peer) commit(key, value []byte) error {
	frame := make([]byte, 8, 8+len(key)+len(value))
	frame = append(append(frame, key...), value...)
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], castagnoli))
	p.mu.Lock()
	if g := p.next; g != nil {
		g.frames = append(g.frames, frame)
		p.mu.Unlock()
		<-g.done
		return g.err
	}
	g := &peerGroup{frames: [][]byte{frame}, done: make(chan struct{})}
	p.next = g
	for p.writing {
		p.idle.Wait()
	}
	p.writing, p.next = true, nil
	p.mu.Unlock()
	g.err = p.write(g.frames)
	p.mu.Lock()
	p.writing = false
	p.idle.Signal()
	p.mu.Unlock()
	close(g.done)
	return g.err
}

func (p *peer) write(frames [][]byte) error {
	p.buf = p.buf[:0]
	for _, f := range frames {
		p.buf = append(p.buf, f...)
	}
	if p.off+int64(len(p.buf)) > peerFile {
		p.off = 0
	}
	if _, err := p.f.WriteAt(p.buf, p.off); err != nil {
		return err
	}
	p.off += int64(len(p.buf))
	p.syncs++
	return syscall.Fdatasync(int(p.f.Fd()))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
