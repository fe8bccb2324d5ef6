package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync"
	"time"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast/engine/logtree"
)

const (
	leastPiece = 64 << 10 // smaller objects of the log are no pieces of a base
	mostPieces = 64       // of a file; one that grows in more is uploaded again
	uploads    = 3        // of a base, at a time
	attempts   = 6        // of an object of a base
	fileBuffer = 8 << 20  // bytes of a part of an upload
)

// sum is the SHA-256 of bytes as text.
func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// know notes that a piece of a file, from an offset on, is in the bucket. What does not go on from what is known is of
// no use, and what reaches further replaces what is known behind its begin: a base has the log up to its moment, which
// is in the middle of the next object of the log, and the object after that goes on from there.
func (b *Backup) know(name string, from int64, p Piece) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.pieces[name]
	at, i := int64(0), 0
	for ; i < len(known) && at < from; i++ {
		at += known[i].Bytes
	}
	if at == from && from+p.Bytes > total(known) {
		b.pieces[name] = append(slices.Clip(known[:i]), p)
	}
}

// known returns the pieces of a file that lie within its first bytes, and how many bytes they are.
func (b *Backup) known(name string, bytes int64) (pieces []Piece, covered int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pieces[name] {
		if covered+p.Bytes > bytes {
			break
		}
		pieces, covered = append(pieces, p), covered+p.Bytes
	}
	if covered < bytes && len(pieces) >= mostPieces {
		delete(b.pieces, name)
		return nil, 0
	}

	return pieces, covered
}

func total(pieces []Piece) (bytes int64) {
	for _, p := range pieces {
		bytes += p.Bytes
	}

	return bytes
}

// piece is what bytes are that are stored in an object.
func (b *Backup) piece(key string, plain, stored []byte) Piece {
	p := Piece{Object: key, Bytes: int64(len(plain)), Sum: sum(plain), Codec: b.codec.name()}
	if p.Codec != "" {
		p.Stored, p.StoredSum = int64(len(stored)), sum(stored)
	}

	return p
}

// makeBase uploads what the bucket has not of a state, and then the base that names it. Another goroutine uploads the
// log meanwhile.
func (b *Backup) makeBase(base *Base, state *logtree.FeedState, try int) error {
	adopted := ""
	if try == 1 {
		adopted = b.adopt(base.Database, state)
	}
	base.Files = make([]File, len(state.Files)+1)
	work, ctx := errgroup.WithContext(b.ctx)
	work.SetLimit(uploads)
	for i, s := range state.Files {
		work.Go(func() (err error) {
			base.Files[i], err = b.putFile(ctx, s, try)
			return err
		})
	}
	work.Go(func() error {
		key := fmt.Sprintf("%s/files/MANIFEST-0-%08d", b.gen, try)
		stored, err := b.codec.encode(nil, state.Manifest)
		if err != nil {
			return err
		}
		p := b.piece(key, state.Manifest, stored)
		base.Files[len(state.Files)] = File{"MANIFEST", p.Bytes, []Piece{p}}

		return b.again(ctx, func() error { return b.put(ctx, key, stored) })
	})
	if err := work.Wait(); err != nil {
		return err
	}

	text, err := json.Marshal(base)
	if err != nil {
		return err
	}

	// What was named before may have been removed meanwhile, but not before the base that named it.
	if adopted != "" {
		if there, err := exists(b.ctx, b.bucket, adopted); err != nil || !there {
			b.mu.Lock()
			clear(b.pieces)
			b.mu.Unlock()

			return cmp.Or(err, fmt.Errorf("%s was removed while its files were compared", adopted))
		}
	}
	key, sealed := baseKey(b.gen, base.Log, base.Time), seal(baseMagic, text)
	if err := b.again(b.ctx, func() error { return b.put(b.ctx, key, sealed) }); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Bases++
	b.last, b.lastAt, b.lastLog = key, time.Now(), base.Log

	return nil
}

// again calls f until it succeeds, with pauses, so many times.
func (b *Backup) again(ctx context.Context, f func() error) (err error) {
	pause := retryEvery
	for n := 1; ; n++ {
		if err = f(); err == nil || n == attempts {
			return err
		}
		if !sleep(ctx, pause) {
			return err
		}
		pause *= 2
	}
}

// putFile uploads what the bucket has not of a file.
func (b *Backup) putFile(ctx context.Context, s logtree.Stretch, try int) (File, error) {
	pieces, covered := b.known(s.Name, s.To)
	f := File{s.Name, s.To, pieces}
	if covered == s.To {
		return f, nil
	}

	s.From = covered
	key := fmt.Sprintf("%s/files/%s-%d-%08d", b.gen, s.Name, s.From, try)
	var p Piece
	err := b.again(ctx, func() (err error) {
		p, err = b.stream(ctx, key, s)
		return err
	})
	if err != nil {
		return f, err
	}
	b.know(s.Name, s.From, p)
	f.Pieces = append(slices.Clip(f.Pieces), p)

	return f, nil
}

// stream uploads a stretch of a file.
func (b *Backup) stream(ctx context.Context, key string, s logtree.Stretch) (p Piece, err error) {
	ctx, stalled := stalls(ctx) // however large the file is
	defer stalled.stop()
	w, err := b.newWriter(ctx, key, blob.WriterOptions{BufferSize: fileBuffer, MaxConcurrency: 2})
	if err != nil {
		return p, failed("put", key, err)
	}

	h, stored := sha256.New(), counter{Hash: sha256.New()}
	to := b.limit.writer(ctx, w)
	if b.codec.name() != "" {
		to = io.MultiWriter(to, &stored)
	}
	encoded, err := b.codec.writer(to)
	if err == nil {
		err = b.feed.Read(ctx, s, func(part []byte) error {
			stalled.progress()
			h.Write(part)
			_, err := encoded.Write(part)

			return err
		})
		err = errors.Join(err, encoded.Close())
	}
	if err := w.finish(err); err != nil {
		return p, failed("put", key, stalled.cause(err))
	}
	p = Piece{Object: key, Bytes: s.To - s.From, Sum: hexSum(h), Codec: b.codec.name()}
	if p.Codec != "" {
		p.Stored, p.StoredSum = stored.n, hexSum(stored.Hash)
	}
	b.count(p.stored())

	return p, nil
}

// counter is a sum that counts its bytes.
type counter struct {
	hash.Hash
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.Hash.Write(b)
}

// adopt looks for the last base of the same database, and notes which of its pieces are what the files here have. It
// returns the base's key, if there is one. What goes wrong costs uploads.
func (b *Backup) adopt(database string, state *logtree.FeedState) (key string) {
	ctx := b.ctx
	gens, err := generations(ctx, b.bucket)
	if err != nil {
		return ""
	}

	for _, gen := range slices.Backward(gens) {
		names, err := bases(ctx, b.bucket, gen)
		if gen == b.gen || err != nil || len(names) == 0 {
			continue
		}
		base, err := readBase(ctx, b.bucket, names[len(names)-1].key)
		if err != nil || base.Database != database || base.Keys != b.codec.keys {
			continue
		}
		files := map[string][]Piece{}
		for _, f := range base.Files {
			files[f.Name] = f.Pieces
		}

		lacks := b.lacking(state.Files, files)
		for _, s := range state.Files {
			at := int64(0)
			for _, p := range files[s.Name] {
				if lacks[p.Object] {
					break
				}
				h := sha256.New()
				part := logtree.Stretch{Name: s.Name, From: at, To: at + p.Bytes}
				if part.To > s.To || b.feed.Read(ctx, part, func(x []byte) error { h.Write(x); return nil }) != nil ||
					hexSum(h) != p.Sum {
					break
				}
				b.know(s.Name, at, p)
				at = part.To
			}
		}

		return names[len(names)-1].key
	}

	return ""
}

// lacking returns which objects of files that are here, too, are not in the bucket or are too short: somebody may have
// removed them, and a base that named them again would be none.
func (b *Backup) lacking(here []logtree.Stretch, files map[string][]Piece) map[string]bool {
	var mu sync.Mutex
	lacks, asked := map[string]bool{}, map[string]bool{}
	var work errgroup.Group
	work.SetLimit(readers)
	for _, s := range here {
		for _, p := range files[s.Name] {
			if asked[p.Object] {
				continue
			}
			asked[p.Object] = true
			work.Go(func() error {
				err := limited(b.ctx, func(ctx context.Context) error {
					a, err := b.bucket.Attributes(ctx, p.Object)
					if err == nil && a.Size < p.Skip+p.stored() {
						err = io.ErrUnexpectedEOF
					}

					return err
				})
				if err != nil {
					mu.Lock()
					lacks[p.Object] = true
					mu.Unlock()
				}

				return nil
			})
		}
	}
	_ = work.Wait()

	return lacks
}
