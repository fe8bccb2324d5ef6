package contender

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

var (
	flagLossy    = flag.Bool("lossy", false, "cut the power at levels below Power too, and tell what is lost")
	flagMessages = flag.Int("messages", 200, "how many are written before the power is cut")
)

// TestMessagesSurvivePowerCut: what was acknowledged at Power is there when the power was cut, whatever the disk kept
// of what it had not flushed.
func TestMessagesSurvivePowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it makes disks")
	}
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	eachMessages(t, func(t *testing.T, peer all.Entry, level holdfast.Level) {
		if level < holdfast.Power && !*flagLossy {
			t.Skip("it promises nothing about this; -lossy tells what happens")
		}
		o := blockdev.Options{Size: 2 << 30, Dir: t.TempDir()}
		disk, err := blockdev.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		const streams = 5
		messages := *flagMessages
		m := openMessages(t, peer, filepath.Join(disk.Path(), "store"), level)
		for n := range messages {
			stream := n % streams
			mustWrite(t, m, fmt.Sprintf("busy-%d", stream), stream*1_000_000+n/streams, int64(n/streams))
			disk.Mark(uint64(n))
		}
		record := disk.Freeze()
		defer record.Close()
		if err := record.Err(); err != nil {
			t.Fatal(err)
		}
		m.(interface{ kill() }).kill()
		_ = m.Close()
		if err := disk.Close(); err != nil {
			t.Fatal(err)
		}
		marks := map[int]int{} // messages that were acknowledged, to the event behind that
		for i := range record.Len() {
			if e := record.Event(i); e.Kind == blockdev.Mark {
				marks[int(e.Value)+1] = i + 1
			}
		}
		for _, n := range night.Or([]int{messages / 3, messages}, []int{messages}) {
			for _, policy := range []blockdev.Policy{blockdev.Nothing(), blockdev.Subset(1), blockdev.Everything()} {
				acked := make([]int64, streams)
				for stream := range acked {
					acked[stream] = int64((n-stream+streams-1)/streams) - 1
				}
				if lost := lostAfterCut(t, peer, level, record.Cut(blockdev.Position(marks[n]), policy), o, acked); lost > 0 {
					t.Logf("of %d acknowledged messages %d are lost when the disk keeps %v of what was not flushed", n, lost,
						policy)
					if level == holdfast.Power {
						t.Fail()
					}
				}
			}
		}
	})
}

// lostAfterCut opens the store on the image of a disk, and counts what is not there: all if it does not open.
func lostAfterCut(t *testing.T, peer all.Entry, level holdfast.Level, image *blockdev.Image, o blockdev.Options,
	acked []int64) (lost int64) {
	t.Helper()
	mounted, err := image.Mount(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mounted.Close(); err != nil {
			t.Error(err)
		}
	}()
	e, err := peer.Open(filepath.Join(mounted.Path(), "store"), holdfast.Options{Level: level})
	if err != nil {
		t.Logf("it does not open: %v", err)
		for _, position := range acked {
			lost += position + 1
		}
		return lost
	}
	lost = lostOf(t, e.(MessagesEngine), acked)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	return lost
}
