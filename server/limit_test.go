package server

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/testkit"
)

// told is a connection that notes the deadlines it is given.
type told struct {
	net.Conn
	reads, writes []time.Time
}

func (c *told) SetReadDeadline(t time.Time) error {
	c.reads = append(c.reads, t)
	return c.Conn.SetReadDeadline(t)
}

func (c *told) SetWriteDeadline(t time.Time) error {
	c.writes = append(c.writes, t)
	return c.Conn.SetWriteDeadline(t)
}

func TestDeadlinesOfConnection(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	below := &told{Conn: near}
	c := &connection{Conn: below, l: &limited{writes: time.Minute}}
	defer c.Close()
	now := time.Now()
	past, later := now.Add(-time.Hour), now.Add(time.Hour)
	var b [1]byte
	read := func() error {
		_, err := c.Read(b[:])
		return err
	}

	try(t, c.SetReadDeadline(later))
	try(t, c.SetReadDeadline(past))
	if len(below.reads) != 0 {
		t.Errorf("without a read it is told %v", below.reads)
	}
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read behind its deadline: %v", err)
	}
	try(t, c.SetReadDeadline(time.Time{}))
	go far.Write(b[:])
	try(t, read())

	ended := make(chan error, 1)
	go func() { ended <- read() }()
	if !testkit.Holds(func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.reading > 0
	}) {
		t.Fatal("the read does not begin")
	}
	try(t, c.SetReadDeadline(past)) // as net/http ends its own reads
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read whose deadline has come meanwhile: %v", err)
	}
	if want := []time.Time{past, {}, past}; !slices.Equal(below.reads, want) {
		t.Errorf("it is told %v, want %v", below.reads, want)
	}
	try(t, c.SetReadDeadline(time.Unix(1, 0)))
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) || len(below.reads) != 3 {
		t.Errorf("a read whose deadline was long ago: %v, and it is told %v", err, below.reads)
	}

	at := now.Add(time.Minute)
	for _, move := range []time.Duration{0, time.Second, 2 * time.Second, 10 * time.Second, 5 * time.Second} {
		try(t, c.SetWriteDeadline(at.Add(move)))
	}
	try(t, c.SetWriteDeadline(time.Time{}))
	try(t, c.SetWriteDeadline(at))
	want := []time.Time{at, at.Add(10 * time.Second), at.Add(5 * time.Second), {}, at}
	if !slices.Equal(below.writes, want) {
		t.Errorf("writes are told %v, want %v", below.writes, want)
	}
}
