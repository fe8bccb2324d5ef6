package db

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestMayBeFrame: no frame is passed over when one looks for frames behind a tear, however many operations are before
// it, and hardly any bytes that are none are summed up. They once all were: opening after a crash, behind which
// random values stood, took minutes.
func TestMayBeFrame(t *testing.T) {
	const epoch = 77
	var data []byte
	var begins []int
	seq := uint32(0)
	add := func(kind frameKind, body []byte, ops int) {
		begins = append(begins, len(data))
		b := make([]byte, frameSize(len(body)))
		copy(b[frameHeader:], body)
		putFrameHeader(b, epoch, kind, len(body), checksum(body), seq, 0)
		data = append(data, b...)
		seq += uint32(ops)
	}
	add(frameBegin, make([]byte, beginBody), 0)
	for _, n := range []int{1, 2, 1000, 1, 20_000} {
		// The shortest operations there are, without padding: as many as can be before a frame.
		add(frameBatch, bytes.Repeat([]byte{byte(holdfast.KindDelete), 1, 'k'}, 4*n), 4*n)
	}
	add(frameEnd, make([]byte, endBody), 0)
	for i, from := range begins {
		found := framesIn(data[from:], int64(from), epoch)
		if len(found) != len(begins)-i {
			t.Fatalf("%d of %d frames are found behind frame %d", len(found), len(begins)-i, i)
		}
		for k, f := range found {
			if f.at+from != begins[i+k] {
				t.Fatalf("frame %d is found at %d, not at %d", i+k, f.at+from, begins[i+k])
			}
		}
	}

	random := make([]byte, 1<<20)
	src := rand.NewChaCha8([32]byte{5})
	src.Read(random)
	summed := 0
	for at := 0; at+frameHeader <= len(random); at += frameAlign {
		if mayBeFrame(random[at:], int64(at)) {
			summed++
		}
	}
	if tried := len(random) / frameAlign; summed > tried/1000 {
		t.Errorf("%d of %d places with random bytes are taken for a frame", summed, tried)
	}
}

// TestFramesAmongNumbers: numbers of eight bytes look like headers of long frames, each of which was summed up: a
// minute for four MiB, and an hour for 64.
func TestFramesAmongNumbers(t *testing.T) {
	t.Parallel()
	const epoch = 77
	b := make([]byte, 4<<20)
	for at := 0; at < len(b); at += 8 {
		binary.LittleEndian.PutUint64(b[at:], uint64(8_000_001+at/8))
	}
	body := bytes.Clone(b[1<<20 : 1<<20+300_000])
	at := 2 << 20
	copy(b[at+frameHeader:], body)
	putFrameHeader(b[at:], epoch, frameBatch, len(body), checksum(body), 5, 0)
	may := 0
	for i := 0; i+frameHeader <= len(b); i += frameAlign {
		if mayBeFrame(b[i:], int64(i)) && int(binary.LittleEndian.Uint32(b[i+4:])>>2) <= len(b)-i-frameHeader {
			may++
		}
	}
	if found := framesIn(b, 0, epoch); len(found) != 1 || found[0].at != at || !bytes.Equal(found[0].body, body) ||
		may < 10_000 {
		t.Errorf("%d frames found, of %d places that look like one", len(found), may)
	}
	search := frameSearch{b: b, epoch: epoch}
	if got := search.resync(0, 5); got != at {
		t.Errorf("the next frame is found at %d, not at %d", got, at)
	}
	if got := search.resync(at, 5); got != len(b) {
		t.Errorf("a frame is found at %d, behind the last one", got)
	}
}
