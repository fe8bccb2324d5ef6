package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Keys are key_%08d, as the study had them.
const (
	kvKeySize = 12
	kvMaxKeys = 100_000_000
)

type kvKey [kvKeySize]byte

// of makes k the key of that number, below kvMaxKeys, and returns its bytes.
func (k *kvKey) of(number uint32) []byte {
	copy(k[:], "key_")

	for i := kvKeySize - 1; i >= 4; i-- {
		k[i] = byte('0' + number%10)
		number /= 10
	}

	return k[:]
}

// next makes k the key that follows: much cheaper than of, for scans.
func (k *kvKey) next() {
	for i := kvKeySize - 1; i >= 4; i-- {
		if k[i] < '9' {
			k[i]++
			return
		}
		k[i] = '0'
	}
}

const (
	kvPage      = 4 << 10  // a value has a stamp at the begin of each page
	kvStamp     = 8        // bytes of a stamp: version and number of the key, little endian
	kvFixedBody = 32 << 10 // values of this size or more differ in their stamps only
	kvPlaces    = 64 << 10 // places in the pool where a smaller value's body can begin
)

// kvValues makes and checks values of one size. A value follows from the number of its key and from its
// version, so that nothing has to be remembered of it but these. Its body is random, which no engine
// can compress: a stretch of a pool, from a place that differs from value to value where copying it costs little.
//
// It does not change once made.
type kvValues struct {
	size int
	pool []byte
}

// newKVValues makes values of size bytes, kvStamp at least.
func newKVValues(size int, seed uint64) kvValues {
	random := rand.NewPCG(seed, uint64(size))
	pool := make([]byte, 0, size+kvPlaces+8)
	for len(pool) < size+kvPlaces {
		pool = binary.LittleEndian.AppendUint64(pool, random.Uint64())
	}

	return kvValues{size, pool}
}

// body is the value without its stamps.
func (v kvValues) body(key, version uint32) []byte {
	if v.size >= kvFixedBody {
		return v.pool[:v.size]
	}
	hash := (uint64(key)<<32 | uint64(version)) * 0x9e3779b97f4a7c15

	return v.pool[hash>>48:][:v.size]
}

// lay prepares memory of one value for fill, and returns it.
func (v kvValues) lay(dst []byte) []byte {
	copy(dst, v.pool[:v.size])
	return dst
}

// fill makes dst, which lay has seen, the value of that version of the key.
func (v kvValues) fill(dst []byte, key, version uint32) {
	if v.size < kvFixedBody {
		copy(dst, v.body(key, version))
	}

	stamp := uint64(key)<<32 | uint64(version)
	for at := 0; at+kvStamp <= v.size; at += kvPage {
		binary.LittleEndian.PutUint64(dst[at:], stamp)
	}
}

// check compares got with the value of that version of the key. Its error wraps ErrWrong.
func (v kvValues) check(got []byte, key, version uint32) error {
	if len(got) != v.size {
		return fmt.Errorf("%w: the value of key %d has %d bytes, not %d", ErrWrong, key, len(got), v.size)
	}

	body, stamp := v.body(key, version), uint64(key)<<32|uint64(version)
	for at := 0; at < v.size; at += kvPage {
		end := min(at+kvPage, v.size)
		begin := at
		if at+kvStamp <= v.size {
			if found := binary.LittleEndian.Uint64(got[at:]); found != stamp {
				return fmt.Errorf("%w: byte %d of the value of key %d version %d is stamped key %d version %d", ErrWrong, at, key,
					version, found>>32, uint32(found))
			}
			begin += kvStamp
		}
		if !bytes.Equal(got[begin:end], body[begin:end]) {
			return fmt.Errorf("%w: the value of key %d version %d differs between bytes %d and %d", ErrWrong, key, version,
				begin, end)
		}
	}

	return nil
}
