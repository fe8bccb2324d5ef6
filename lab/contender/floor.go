package contender

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// FloorNode is the other node of the least that two can do: a process that writes what it is sent over loopback into a
// file that was written ahead, syncs it, and answers. It ends with the process that started it.
type FloorNode struct {
	process *child.Process
	conn    net.Conn
	head    []byte
}

// floorRequest is what the process is told.
type floorRequest struct {
	File  string
	Size  int64  // that is written ahead
	Join  string // the address that it connects to
	Token string // what it says first: others on this machine can reach the address
}

// floorHead is where what follows belongs in the file, and how long it is.
const floorHead = 8 + 4

// StartFloorNode starts one that makes a file of that size.
func StartFloorNode(file string, size int64) (_ *FloorNode, err error) {
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer in.Close()
	q := floorRequest{File: file, Size: size, Join: in.Addr().String(), Token: rand.Text()}
	process, err := startServer(serverRequest{Floor: &q}, child.Start)
	if err != nil {
		return nil, err
	}
	n := &FloorNode{process: process, head: make([]byte, floorHead)}
	_ = in.(*net.TCPListener).SetDeadline(time.Now().Add(natsPatience))
	for said := make([]byte, len(q.Token)); err == nil; {
		if n.conn, err = in.Accept(); err != nil {
			break
		}
		if _, failed := io.ReadFull(n.conn, said); failed == nil && string(said) == q.Token {
			return n, nil
		}
		n.conn.Close()
	}
	n.conn = nil

	return nil, errors.Join(err, n.Close())
}

// Send sends what is to be written at a place. Each is answered.
func (n *FloorNode) Send(data []byte, at int64) error {
	binary.LittleEndian.PutUint64(n.head, uint64(at))
	binary.LittleEndian.PutUint32(n.head[8:], uint32(len(data)))
	buffers := net.Buffers{n.head, data}
	_, err := buffers.WriteTo(n.conn)

	return err
}

// Receive waits for the answer to what was sent.
func (n *FloorNode) Receive() error {
	var answer [1]byte
	if _, err := io.ReadFull(n.conn, answer[:]); err != nil {
		return fmt.Errorf("the other node does not answer: %w", err)
	}

	return nil
}

// Close ends the process.
func (n *FloorNode) Close() error {
	if n.conn == nil {
		n.process.Kill()
	} else if err := n.conn.Close(); err != nil {
		n.process.Kill()
	}
	_, _ = io.Copy(io.Discard, n.process.Out)
	n.process.CloseInput()
	_, err := n.process.Wait()

	return err
}

// serveFloor is what the process does.
func serveFloor(q floorRequest) (err error) {
	f, err := os.OpenFile(q.File, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zeros := make([]byte, 1<<20)
	for left := q.Size; left > 0; left -= int64(len(zeros)) {
		if _, err := f.Write(zeros[:min(left, int64(len(zeros)))]); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", q.Join)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, q.Token); err != nil {
		return err
	}

	in, head, data := bufio.NewReaderSize(conn, 256<<10), make([]byte, floorHead), []byte(nil)
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}

			return err
		}
		if n := int(binary.LittleEndian.Uint32(head[8:])); n > len(data) {
			data = make([]byte, n)
		}
		record := data[:binary.LittleEndian.Uint32(head[8:])]
		if _, err := io.ReadFull(in, record); err != nil {
			return err
		}
		if _, err := f.WriteAt(record, int64(binary.LittleEndian.Uint64(head))); err != nil {
			return err
		}
		if err := measure.Fdatasync(f); err != nil {
			return err
		}
		if _, err := conn.Write([]byte{1}); err != nil {
			return err
		}
	}
}
