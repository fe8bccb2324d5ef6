package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast"
)

// An engine other than logtree has no files that never change, so it is copied as a whole, from time to time: a base
// with one file, KEYS, of all keys and values in their order, each
//
//	uvarint   length of the key
//	uvarint   length of the value
//	bytes     of both
//
// It is one object. A base has its checksum, and is written after it: a copy is there whole, or not at all.
const keysName = "KEYS"

// Copy says what a base is that is a copy of all keys.
type Copy struct {
	Engine   string         `json:"engine"`
	Level    holdfast.Level `json:"level,omitempty"` // the strongest of the engine as it was open
	Lost     string         `json:"lost,omitempty"`  // see holdfast.Capabilities
	Accepted string         `json:"accepted,omitempty"`
	Keys     int64          `json:"keys"`
}

// runCopies copies the engine until Close, and a last time then.
func (b *Backup) runCopies() {
	defer close(b.ended)
	for n, last := 1, false; ; n++ {
		began := time.Now()
		err := b.copy(n)
		b.note(1, err)
		if last || b.ctx.Err() != nil {
			return
		}
		wait := time.Until(began.Add(b.o.CopyEvery))
		if err != nil {
			wait = min(wait, copyRetry)
		}
		t := time.NewTimer(max(wait, 0))
		select {
		case <-t.C:
		case <-b.finish:
			t.Stop()
			last = true
		}
		// Copies are told apart by milliseconds.
		sleep(b.ctx, time.Until(began.Add(time.Millisecond)))
	}
}

// copyRetry is how long after a copy that failed the next one is tried.
const copyRetry = 30 * time.Second

// copy uploads what the engine has now. It is written to a file first: a snapshot that is kept for as long as a network
// needs would keep what is overwritten meanwhile, and in some engines hold writers up.
func (b *Backup) copy(n int) (err error) {
	if err := b.begin(); err != nil {
		return err
	}
	spool, err := os.CreateTemp(b.o.CopyDir, "backup-")
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(b.o.CopyDir, 0o700); err == nil {
			spool, err = os.CreateTemp(b.o.CopyDir, "backup-")
		}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spool.Close(), os.Remove(spool.Name())) }()
	c := b.engine.Capabilities()
	base := &Base{Generation: b.gen, Time: time.Now().UTC(), Keys: b.codec.keys,
		Copy: &Copy{Engine: c.Engine, Level: c.Strongest(), Lost: c.Lost, Accepted: c.Accepted}}
	p, err := b.spool(spool, base.Copy)
	if err != nil {
		return err
	}
	p.Object = fmt.Sprintf("%s/files/%s-0-%08d", b.gen, keysName, n)
	if err := b.again(b.ctx, func() error { return b.putSpool(p, spool) }); err != nil {
		return err
	}
	base.Files = []File{{keysName, p.Bytes, []Piece{p}}}
	text, err := json.Marshal(base)
	if err != nil {
		return err
	}
	key, sealed := baseKey(b.gen, 0, base.Time), seal(baseMagic, text)
	if err := b.again(b.ctx, func() error { return b.put(b.ctx, key, sealed) }); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Bases++
	b.status.Safe = base.Time
	b.last, b.lastAt = key, time.Now()

	return nil
}

// spool writes all keys and values to a file, as they are stored.
func (b *Backup) spool(to io.Writer, c *Copy) (p Piece, err error) {
	s, err := b.engine.Snapshot()
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	stored := counter{Hash: sha256.New()}
	encoded, err := b.codec.writer(io.MultiWriter(to, &stored))
	if err != nil {
		return p, err
	}
	plain := counter{Hash: sha256.New()}
	w := bufio.NewWriterSize(io.MultiWriter(encoded, &plain), 1<<16)
	it := s.Scan(holdfast.Range{})
	defer it.Close()
	var head []byte
	for ; it.Next(); c.Keys++ {
		if c.Keys%1024 == 0 && b.ctx.Err() != nil {
			return p, b.ctx.Err()
		}
		head = binary.AppendUvarint(head[:0], uint64(len(it.Key())))
		head = binary.AppendUvarint(head, uint64(len(it.Value())))
		for _, part := range [][]byte{head, it.Key(), it.Value()} {
			if _, err := w.Write(part); err != nil {
				return p, err
			}
		}
	}
	if err := errors.Join(it.Err(), w.Flush(), encoded.Close()); err != nil {
		return p, err
	}
	p = Piece{Bytes: plain.n, Sum: hexSum(plain.Hash), Codec: b.codec.name()}
	if p.Codec != "" {
		p.Stored, p.StoredSum = stored.n, hexSum(stored.Hash)
	}

	return p, nil
}

// putSpool uploads a file.
func (b *Backup) putSpool(p Piece, spool io.ReadSeeker) error {
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	ctx, stalled := stalls(b.ctx) // however large the file is
	defer stalled.stop()
	w, err := b.newWriter(ctx, p.Object, blob.WriterOptions{BufferSize: fileBuffer, MaxConcurrency: 2})
	if err == nil {
		_, err = copyTo(b.limit.writer(ctx, w), stalled.reader(spool))
		err = w.finish(err)
	}
	if err != nil {
		return failed("put", p.Object, stalled.cause(err))
	}
	b.count(p.stored())

	return nil
}

// Fill makes the new directory dir, whole or not at all, of the engine that c names, with what fill sets: all keys in
// their order. Fill of package engine/all makes one, in a program that has the engines.
type Fill func(ctx context.Context, c Copy, dir string, fill func(set func(key, value []byte) error) error) error

// errStopped ends a fetch whose bytes nobody takes any more.
var errStopped = errors.New("stopped")

// further passes on what an attempt before has not, to read an object. What that has passed on is of a sum, too.
type further struct {
	to    io.Writer
	skip  int64
	given *int64
}

func (f *further) Write(b []byte) (int, error) {
	n := int(min(f.skip, int64(len(b))))
	f.skip -= int64(n)
	m, err := f.to.Write(b[n:])
	*f.given += int64(m)

	return n + m, err
}

// copy restores a base that is a copy.
func (r *Restored) copy(ctx context.Context, from source, dir string, base *Base, fill Fill) error {
	if len(base.Files) != 1 || base.Files[0].Name != keysName || len(base.Files[0].Pieces) != 1 {
		return corrupt(base.Generation, "a copy makes no sense", nil)
	}
	if fill == nil {
		return &holdfast.Error{Op: "restore", Engine: base.Copy.Engine, Class: holdfast.ErrUnavailable,
			Detail: "it is a copy of an engine that this program does not make", Remedy: "use holdfast restore"}
	}
	p := base.Files[0].Pieces[0]
	r.Bytes = p.Bytes

	return fill(ctx, *base.Copy, dir, func(set func(key, value []byte) error) error {
		in, out := io.Pipe()
		fetched := make(chan error, 1)
		go func() {
			var given int64
			err := fetch(ctx, from, p, func() io.Writer { return &further{out, given, &given} })
			out.CloseWithError(err) // nil is the end
			fetched <- err
		}()
		sum := sha256.New()
		err := setAll(bufio.NewReaderSize(io.TeeReader(in, sum), 1<<16), p.Object, base.Copy.Keys, set)
		if err == nil && hexSum(sum) != p.Sum {
			err = corrupt(p.Object, "the checksum is wrong", nil)
		}
		in.CloseWithError(errStopped)

		// What is wrong with the object explains what is wrong with what it has.
		if failed := <-fetched; failed != nil && !errors.Is(failed, errStopped) {
			return failed
		}

		return err
	})
}

// setAll calls set with all keys and values, of which there must be so many.
func setAll(in *bufio.Reader, object string, keys int64, set func(key, value []byte) error) error {
	bad := func(err error) error { return corrupt(object, "the keys make no sense", err) }
	var buf []byte
	for n := int64(0); ; n++ {
		k, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) && n == keys {
			return nil
		}
		if err != nil {
			return bad(err)
		}
		v, err := binary.ReadUvarint(in)
		if err != nil || n == keys || k > holdfast.MaxKeySize || v > holdfast.MaxBatchSize {
			return bad(err)
		}
		buf = slices.Grow(buf[:0], int(k+v))[:k+v]
		if _, err := io.ReadFull(in, buf); err != nil {
			return bad(err)
		}
		if err := set(buf[:k], buf[k:]); err != nil {
			return err
		}
	}
}
