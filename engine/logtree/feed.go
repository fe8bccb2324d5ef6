package logtree

import (
	"context"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// Position is a place between two frames of the log. Its LSN, bytes of log since the database was made, only grows.
type Position = format.Position

// Stretch is a part of one file in the database's directory.
type Stretch = db.Stretch

// FeedState is one moment of a database as files; see [Feed].
type FeedState = db.State

// Feed gives the files of an open database to a program that keeps copies of them elsewhere, as package backup does. It
// gives whole states, and what the log has grown by:
//
//   - A state, with the manifest that belongs to it as the file MANIFEST, is a database.
//   - So is a state with any log behind it, as far as that has no gap: Open replays it. What flushes and compactions
//     have done since the state is not needed.
//
// Everything that it gives survives a power cut here, so that a copy never has what the original has lost. Files that
// it names are not removed before [FeedState.Release] and [Feed.Advance]; that keeps what compactions have replaced on
// the disk. Names are used once: a file of the same name is the same, or longer, as long as the database is open.
//
// A Feed is used by one goroutine at a time, but Read may be called from many. While it is open, Close of the database
// returns ErrBusy.
type Feed struct {
	*db.Feed
	mark []byte
}

// OpenFeed returns a feed of e, which [Open] has opened for writing, from the present end of its log on. held is how
// many bytes of log are kept for it; when there are more, because it is not advanced, all of them are given up, and
// Log says so. ErrUnavailable: e is another engine, or open for reading only.
func OpenFeed(e holdfast.Engine, held int64) (*Feed, error) {
	x, ok := e.(*engine)
	if !ok || x.dir == "" {
		return nil, &holdfast.Error{Op: "feed", Engine: e.Capabilities().Engine, Class: holdfast.ErrUnavailable,
			Detail: "only a database of logtree in a directory has files that never change", Remedy: "make full backups"}
	}
	mark, err := os.ReadFile(filepath.Join(x.dir, datadir.MarkName))
	if err != nil {
		return nil, &holdfast.Error{Op: "feed", Engine: Name, Path: x.dir, Cause: err}
	}
	f, err := x.database.Feed(held)
	if err != nil {
		return nil, err
	}

	return &Feed{f, mark}, nil
}

// SegmentFile is the name of the file of a segment.
func SegmentFile(id uint32) string { return filepath.Base(format.SegmentName("", id)) }

// Mark is the file HOLDFAST, which a copy needs too.
func (f *Feed) Mark() []byte { return f.mark }

// Read calls visit with the bytes of a stretch in order, in pieces of at most 1 MiB that it must not keep.
func (f *Feed) Read(ctx context.Context, s Stretch, visit func([]byte) error) error {
	return f.Feed.Read(ctx, s, visit)
}
