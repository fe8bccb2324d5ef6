//go:build !linux

// Package pgserver starts servers of PostgreSQL, on Linux only.
package pgserver

import (
	"context"
	"errors"
	"net"
	"time"
)

// Home is where PostgreSQL is installed.
type Home struct{ Bin, Version string }

// Find fails.
func Find() (Home, error) {
	return Home{}, errors.New("it is started on Linux only: elsewhere it would outlive a process that is killed")
}

// Socket, Patience and Config are what they are on Linux.
const (
	Socket   = ".s.PGSQL.5432"
	Patience = 2 * time.Minute
)

// Config says how a server is opened.
type Config struct {
	New         bool
	Template    string
	Synchronous string
	Settings    []string
}

// Server is a server that runs, which there is none of.
type Server struct{}

// Open fails.
func Open(string, Config) (*Server, error) {
	_, err := Find()
	return nil, err
}

// OpenStandby fails.
func OpenStandby(context.Context, string, string, Config) (*Server, error) { return Open("", Config{}) }

// Ready fails.
func (*Server) Ready(context.Context) error { return errors.ErrUnsupported }

// Await fails.
func (*Server) Await(context.Context, func() error) error { return errors.ErrUnsupported }

// Dial fails.
func (*Server) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Stop does nothing.
func (*Server) Stop() error { return nil }

// Kill does nothing.
func (*Server) Kill() {}
