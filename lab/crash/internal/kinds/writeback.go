package kinds

import "math/rand/v2"

// writeBackPage is the unit in bytes of the ranges that are written back.
const writeBackPage = 4096

// writeBackRange chooses what of a file of size bytes is written back: all of it, what comes after some page, or some
// pages, most often the first ones, where many engines have what they write in place. A length of 0 is to the end.
func writeBackRange(size int64, rnd *rand.Rand) (from, length int64) {
	pages := max(1, (size+writeBackPage-1)/writeBackPage)
	switch rnd.IntN(4) {
	case 0:
		return 0, 0
	case 1:
		return rnd.Int64N(pages) * writeBackPage, 0
	case 2:
		return 0, (1 + rnd.Int64N(min(pages, 4))) * writeBackPage
	}
	first := rnd.Int64N(pages)

	return first * writeBackPage, (1 + rnd.Int64N(min(pages-first, 16))) * writeBackPage
}
