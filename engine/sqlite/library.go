package sqlite

import (
	sqldriver "database/sql/driver"
	"errors"
	"syscall"

	"modernc.org/sqlite"

	"github.com/holdfastdb/holdfast"
)

// sqliteLibrary is one way to SQLite. The drivers are used below database/sql, whose locks and
// conversions would cost a fifth of a batch of 100; see BenchmarkLayers.
type sqliteLibrary struct {
	name   string
	module string
	driver sqldriver.Driver
	params string // appended to a connection's address
	// SQLite's result code in an error, extended if it is known, 0 if there is none; and the operating system's error
	// number, 0 if the library does not tell
	code func(error) (int, syscall.Errno)
}

const (
	module   = "github.com/mattn/go-sqlite3"
	moduleGo = "modernc.org/sqlite"
)

var goLibrary = sqliteLibrary{
	name:   NameGo,
	module: moduleGo,
	driver: &sqlite.Driver{},
	code: func(err error) (int, syscall.Errno) {
		var e *sqlite.Error
		if errors.As(err, &e) {
			return e.Code(), 0
		}

		return 0, 0
	},
}

// OpenGo opens or makes the store in dir with the library translated to Go. It also opens
// what [Open] has made.
func OpenGo(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return OpenGoWith(dir, o, Tuning{})
}

// OpenGoWith is OpenGo with other choices.
func OpenGoWith(dir string, o holdfast.Options, t Tuning) (holdfast.Engine, error) {
	return open(&goLibrary, dir, o, t)
}

// DescribeGo says what the engine that [OpenGo] opens gives.
func DescribeGo() holdfast.Capabilities { return describe(NameGo, moduleGo) }
