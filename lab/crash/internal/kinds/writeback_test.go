package kinds

import (
	"math/rand/v2"
	"testing"
)

// TestWriteBackRange: whole pages within the file, its first and its last one among them.
func TestWriteBackRange(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	for _, size := range []int64{0, 1, 4096, 4097, 1 << 20} {
		pages := max(1, (size+writeBackPage-1)/writeBackPage)
		first, last, part := false, false, false
		for range 2000 {
			from, length := writeBackRange(size, rnd)
			if from%writeBackPage != 0 || length%writeBackPage != 0 || from < 0 || from+length > pages*writeBackPage ||
				from >= pages*writeBackPage {
				t.Fatalf("%d bytes from %d on, of %d", length, from, size)
			}
			first = first || from == 0 && length > 0
			last = last || from == (pages-1)*writeBackPage
			part = part || from > 0 && from+length < size && length > 0
		}
		if !first || !last || part != (pages > 2) {
			t.Errorf("of %d bytes: first %v, last %v, a part between %v", size, first, last, part)
		}
	}
}
