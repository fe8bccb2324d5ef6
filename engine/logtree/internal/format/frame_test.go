package format

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestFramesBehindDamage: no frame is passed over when one looks for frames behind a tear, however many operations are
// before it, and hardly any bytes that are none are summed up. They once all were: opening after a crash, behind which
// random values stood, took minutes.
func TestFramesBehindDamage(t *testing.T) {
	const epoch = 77
	var data []byte
	var begins []int
	var seqs []uint32
	seq := uint32(0)
	add := func(kind FrameKind, body []byte, ops int) {
		begins, seqs = append(begins, len(data)), append(seqs, seq)
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
		for k := i; k < len(begins); k++ { // the frames from i up to k are damaged
			damaged := bytes.Clone(data[from:])
			for _, at := range begins[i:k] {
				damaged[at-from] ^= 1
			}
			var found []int
			for s := range Stretches(damaged, epoch, seqs[i]) {
				if s.Kind != 0 {
					found = append(found, s.At+from)
				}
			}
			if !slices.Equal(found, begins[k:]) {
				t.Fatalf("frames at %v are found behind frames %d to %d, not at %v", found, i, k, begins[k:])
			}
		}
	}

	random := make([]byte, 1<<20)
	src := rand.NewChaCha8([32]byte{5})
	src.Read(random)
	tried, looked := 0, search{random, epoch, nil}
	for at := FrameAlign; at+FrameHeader <= len(random); at += FrameAlign {
		if looked.mayBe(at, 0, 0) {
			tried++
		}
	}
	if places := len(random) / FrameAlign; tried > places/1000 {
		t.Errorf("%d of %d places with random bytes are taken for a frame", tried, places)
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
	var batch holdfast.Batch
	batch.Set([]byte("numbers"), b[1<<20:1<<20+300_000])
	body := batch.Bytes()
	at := 2 << 20
	copy(b[at+FrameHeader:], body)
	PutFrameHeader(b[at:], epoch, KindBatch, len(body), Checksum(body), 5, 0)
	may := 0
	all := search{b, epoch, nil}
	for i := FrameAlign; i+FrameHeader <= len(b); i += FrameAlign {
		if all.mayBe(i, 0, 0) && int(binary.LittleEndian.Uint32(b[i+4:])>>2) <= len(b)-i-FrameHeader {
			may++
		}
	}
	var found []Stretch
	for s := range Stretches(b, epoch, 0) {
		found = append(found, s)
	}
	if len(found) != 3 || found[1].Kind != KindBatch || found[1].At != at || !bytes.Equal(found[1].Body, body) ||
		may < 10_000 {
		t.Errorf("%d stretches found, and %d places that look like a frame", len(found), may)
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
