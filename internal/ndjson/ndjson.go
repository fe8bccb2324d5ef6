// Package ndjson reads the lines of imports: of bounded length, perhaps compressed by gzip, and few long ones in memory
// at once.
package ndjson

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// MaxLine is how many bytes a line may have.
	MaxLine = 96 << 20
	// ShortLine is how many bytes a line has at most that is read without asking the gate.
	ShortLine = 1 << 20
	// LongTime is how long the rest of a longer line may take, in which no other one is read.
	LongTime = 2 * time.Minute
)

// ErrBroken: the input breaks off, or is not what gzip has written.
var ErrBroken = errors.New("the input is broken")

func broken(err error) error {
	corrupt := flate.CorruptInputError(0)
	if errors.As(err, &corrupt) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrHeader) ||
		errors.Is(err, gzip.ErrChecksum) {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}

	return err
}

// Gate lets one of the readers that share it have a long line at a time: compressed, a line of nothing but zeros takes
// a thousandth of the memory that it takes here.
type Gate chan struct{}

// NewGate returns an open gate.
func NewGate() Gate { return make(Gate, 1) }

// Reader reads lines. One goroutine uses it at a time.
type Reader struct {
	in   *bufio.Reader
	raw  *limited
	gate Gate
	long bool
	text []byte
	line int64
}

// NewReader returns a reader of r, which may be compressed. The caller calls Release at the end. An error says that r
// begins as gzip does, but is not what gzip has written.
func NewReader(r io.Reader, gate Gate) (*Reader, error) {
	raw := &limited{Reader: r}
	in := bufio.NewReaderSize(raw, 64<<10)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(z, 64<<10)
	}

	return &Reader{in: in, raw: raw, gate: gate}, nil
}

// limited reads until a time, if there is one.
type limited struct {
	io.Reader
	until time.Time
}

func (l *limited) Read(b []byte) (int, error) {
	if !l.until.IsZero() && time.Now().After(l.until) {
		return 0, fmt.Errorf("a long line has not arrived within %v: %w", LongTime, os.ErrDeadlineExceeded)
	}

	return l.Reader.Read(b)
}

// Next returns the next line without the space around it, which stays as it is until the call after it. The error is
// io.EOF with the last line, bufio.ErrTooLong for one of more than MaxLine bytes, ctx's (asked now and then),
// ErrBroken, or that of reading.
// A long line that takes longer than LongTime is os.ErrDeadlineExceeded.
func (r *Reader) Next(ctx context.Context) ([]byte, error) {
	r.line++
	if r.line%1000 == 0 && ctx.Err() != nil { // a thousand empty lines are a byte or so, compressed
		return nil, ctx.Err()
	}

	for r.text = r.text[:0]; ; {
		part, err := r.in.ReadSlice('\n')
		switch size := len(r.text) + len(part); {
		case size > MaxLine:
			return nil, bufio.ErrTooLong
		case size > ShortLine && !r.long:
			select {
			case r.gate <- struct{}{}:
				r.long, r.raw.until = true, time.Now().Add(LongTime)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		r.text = append(r.text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(r.text), broken(err)
		}
	}
}

// Line is the number of the line that Next has returned, from 1.
func (r *Reader) Line() int64 { return r.line }

// Long reports whether a long line was read since the last Release: others may be waiting for it.
func (r *Reader) Long() bool { return r.long }

// Release forgets long lines, and lets others have one.
func (r *Reader) Release() {
	if r.long {
		r.text, r.long, r.raw.until = nil, false, time.Time{}
		<-r.gate
	}
}
