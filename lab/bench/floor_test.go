package bench

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestFloorKeepsWhatManyClientsAppend(t *testing.T) {
	for _, syncs := range []bool{false, true} {
		in := newEventInputs(500)
		const size = 32
		records := bytes.Repeat([]byte("31 bytes, and no two are alike, "), 500*size/31+1)[:500*size]
		name := filepath.Join(t.TempDir(), "floor")
		f, err := newFloorFile(name, size, int64(floorBytes/size), syncs)
		if err != nil {
			t.Fatal(err)
		}
		// Enough without syncs to begin again at the start of the file.
		const clients, batch = 8, 10
		appends := 40
		if !syncs {
			appends = int(f.slots)/clients/batch + 100
		}
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				turn := in.turns(c, clients, batch)
				for range appends {
					at := turn()
					if err := f.append(records[at*size:(at+batch)*size], at); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
		total := int64(clients * appends * batch)
		record := func(index uint32) []byte { return records[int(index)*size:][:size] }
		items, checked, err := f.verify(record)
		if err != nil || items != total || checked != min(total, f.slots) {
			t.Errorf("sync %v: %d items, %d checked, want %d: %v", syncs, items, checked, total, err)
		}
		if !syncs && total <= f.slots {
			t.Error("the file was never lapped")
		}

		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		content[size*3+5] ^= 1
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.verify(record); !errors.Is(err, ErrWrong) {
			t.Errorf("a flipped bit: %v", err)
		}
	}
}

func TestTurnsOfClientsDoNotMeet(t *testing.T) {
	in := newEventInputs(1000)
	seen := map[int]bool{}
	for c := range 5 {
		turn := in.turns(c, 5, 10)
		for range 20 {
			at := turn()
			if seen[at] {
				t.Fatalf("client %d takes event %d again", c, at)
			}
			seen[at] = true
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d batches of 100", len(seen))
	}
}
