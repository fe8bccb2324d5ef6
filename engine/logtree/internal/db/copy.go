package db

import "github.com/holdfastdb/holdfast/engine/logtree/internal/format"

// Flush writes everything that was applied before the call to runs. Damage to a value is then known by its key, and
// opening has no log to read.
func (d *DB) Flush() error {
	if err := d.Life.Enter(); err != nil {
		return err
	}
	defer d.Life.Leave()
	if err := d.log.Err(); err != nil || d.readOnly {
		return err
	}
	d.mu.Lock()
	if !d.view.Load().mem.empty() {
		d.rotateTable()
	}
	d.mu.Unlock()
	for {
		did, err := d.flush()
		if format.IsFatal(err) {
			return d.log.Fail(err)
		}
		if err != nil || !did {
			return err
		}
	}
}
