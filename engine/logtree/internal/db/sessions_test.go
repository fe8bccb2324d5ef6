package db

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestShortSessions: a database that is closed, or killed, before a compaction of everything comes to its end gives
// space back all the same, because the next one goes on where it was cut short. It once began anew with the first key,
// so that no segment was ever given back: the disk grew with each session.
func TestShortSessions(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const keys, sessions, steps = 4000, 50, 2
	for _, x := range []struct {
		value int
		unit  int64   // of the sizes of files
		most  float64 // times the data on the disk
	}{
		{100, 16 << 10, 6}, // swept
		{1000, 128 << 10, 4.5},
	} {
		d := newDrive(t, 16*x.unit, func(c *Config) {
			c.Sizes = Sizes{Memtable: 3 * x.unit, Segment: 4 * x.unit, Table: x.unit}
		})
		value := make([]byte, x.value)
		if _, err := d.each(keys, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
			t.Fatal(err)
		}

		rnd := rand.New(rand.NewPCG(1, 2))
		for session := range sessions {
			if session%2 == 0 {
				killed := d.fs.Kill()
				d.d.Close()
				d.fs, d.c.FS = killed, killed
			} else if err := d.d.Close(); err != nil {
				t.Fatal(err)
			}
			d.open()
			var b holdfast.Batch
			for i := range keys / 5 {
				if b.Set(scattered(rnd.IntN(keys)), value); b.Len() < 100 {
					continue
				}
				if err := commit(d.d, &b, holdfast.Power); err != nil {
					t.Fatal(err)
				}
				b.Reset()
				if _, err := d.d.flushOnce(); err != nil {
					t.Fatal(err)
				}
				if i < 100*steps {
					if _, err := d.d.compactor.step(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if times := float64(d.fs.Used()) / float64(keys*(8+x.value)); times > x.most {
				t.Fatalf("values of %d bytes: after %d sessions the disk has %.1f times the data", x.value, session+1, times)
			}
		}
		if n := d.count(); n != keys {
			t.Errorf("values of %d bytes: %d of %d keys", x.value, n, keys)
		}
	}
}
