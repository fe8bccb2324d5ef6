package db

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// readManifest reads and checks the manifest, and returns nil if there is none. What it says is not compared with the
// directory: recover does that.
func readManifest(fsys vfs.FS, dir string) (*format.Manifest, error) {
	name := filepath.Join(dir, format.ManifestName)
	b, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, format.IOError("open", name, err)
	}

	return format.DecodeManifest(b, name)
}

// writeManifest replaces the manifest durably. Unless the error is fatal the old one is still there.
func writeManifest(fsys vfs.FS, dir string, m *format.Manifest) error {
	name := filepath.Join(dir, format.ManifestName)
	temp := name + ".new"

	// The new manifest is whole and synced before it gets its name. Up to the rename an error leaves the old one in force.
	if err := writeFile(fsys, temp, m.Encode()); err != nil {
		fsys.Remove(temp) // it may take the room that is missing
		return format.IOError("write", temp, err)
	}

	// A rename for which there is no room, as on btrfs, has changed nothing: file systems find that before they begin.
	// After any other error a crash may leave either of the two, so that nothing may be removed that one of them names:
	// the database stops.
	if err := fsys.Rename(temp, name); err != nil {
		err = format.IOError("rename", temp, err)
		if format.IsNoRoom(err) {
			fsys.Remove(temp)
			return err
		}

		return format.Fatal(err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return format.Fatal(format.IOError("sync", dir, err))
	}

	return nil
}

// writeFile writes a file of its own and syncs it, replacing an unfinished one.
func writeFile(fsys vfs.FS, name string, b []byte) (err error) {
	// A file of that name is what a crash has left of an earlier attempt. Create would not open one that exists.
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	if n, err := f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("after %d bytes: %w", n, err)
	}

	return f.Sync()
}
