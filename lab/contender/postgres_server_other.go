//go:build !linux

package contender

import (
	"context"
	"errors"
	"net"

	"github.com/holdfastdb/holdfast"
)

// postgresHome is where Postgres is installed.
type postgresHome struct{ version string }

func findPostgres() (postgresHome, error) {
	return postgresHome{}, errors.New("it is started on Linux only: elsewhere it would outlive a process that is killed")
}

// postgresServer is a server that runs, which there is none of.
type postgresServer struct {
	ended chan struct{}
	err   error
}

func openPostgresServer(string, bool, []holdfast.Setting) (*postgresServer, error) {
	_, err := findPostgres()
	return nil, err
}

func (*postgresServer) dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}
func (*postgresServer) stop() error { return nil }
func (*postgresServer) kill()       {}
