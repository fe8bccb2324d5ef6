package format

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
	add := func(kind FrameKind, body []byte, ops int) {
		begins = append(begins, len(data))
		b := make([]byte, FrameSize(len(body)))
		copy(b[FrameHeader:], body)
		PutFrameHeader(b, epoch, kind, len(body), Checksum(body), seq, 0)
		data = append(data, b...)
		seq += uint32(ops)
	}
	add(KindBegin, make([]byte, BeginBody), 0)
	for _, n := range []int{1, 2, 1000, 1, 20_000} {
		// The shortest operations there are, without padding: as many as can be before a frame.
		add(KindBatch, bytes.Repeat([]byte{byte(holdfast.KindDelete), 1, 'k'}, 4*n), 4*n)
	}
	add(KindEnd, make([]byte, EndBody), 0)
	for i, from := range begins {
		found := FramesIn(data[from:], int64(from), epoch)
		if len(found) != len(begins)-i {
			t.Fatalf("%d of %d frames are found behind frame %d", len(found), len(begins)-i, i)
		}
		for k, f := range found {
			if f.At+from != begins[i+k] {
				t.Fatalf("frame %d is found at %d, not at %d", i+k, f.At+from, begins[i+k])
			}
		}
	}

	random := make([]byte, 1<<20)
	src := rand.NewChaCha8([32]byte{5})
	src.Read(random)
	summed := 0
	for at := 0; at+FrameHeader <= len(random); at += FrameAlign {
		if MayBeFrame(random[at:], int64(at)) {
			summed++
		}
	}
	if tried := len(random) / FrameAlign; summed > tried/1000 {
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
	copy(b[at+FrameHeader:], body)
	PutFrameHeader(b[at:], epoch, KindBatch, len(body), Checksum(body), 5, 0)
	may := 0
	for i := 0; i+FrameHeader <= len(b); i += FrameAlign {
		if MayBeFrame(b[i:], int64(i)) && int(binary.LittleEndian.Uint32(b[i+4:])>>2) <= len(b)-i-FrameHeader {
			may++
		}
	}
	if found := FramesIn(b, 0, epoch); len(found) != 1 || found[0].At != at || !bytes.Equal(found[0].Body, body) ||
		may < 10_000 {
		t.Errorf("%d frames found, of %d places that look like one", len(found), may)
	}
	search := Search{Bytes: b, Epoch: epoch}
	if got := search.Resync(0, 5); got != at {
		t.Errorf("the next frame is found at %d, not at %d", got, at)
	}
	if got := search.Resync(at, 5); got != len(b) {
		t.Errorf("a frame is found at %d, behind the last one", got)
	}
}

// TestJoinChecksums: joined checksums are those of the whole.
func TestJoinChecksums(t *testing.T) {
	b := make([]byte, 1<<16)
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(b)
	for _, n := range []int{0, 1, 2, 3, 100, 4095, 4096, 4097, 1<<16 - 1, 1 << 16} {
		for _, at := range []int{0, 1, 17, n / 2, n} {
			at = min(at, n)
			if joinChecksums(Checksum(b[:at]), Checksum(b[at:n]), n-at) != Checksum(b[:n]) {
				t.Errorf("the checksum of %d and %d bytes is not that of both", at, n-at)
			}
		}
	}
}
