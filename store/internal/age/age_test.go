package age_test

import (
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/store/internal/age"
)

// The clock says 1000, in seconds, and what is older than 100 is old.
func TestAges(t *testing.T) {
	at := func(seconds int64) int64 { return time.Unix(seconds, 0).UnixNano() }
	mark := func(pos uint64, seconds int64) age.Mark { return age.Mark{Position: pos, Time: at(seconds)} }
	const none = -1 // no new mark
	for name, test := range map[string]struct {
		written []int64 // from position 1 on
		mark    age.Mark
		cut     uint64
		marked  int64 // up to where the new mark goes
	}{
		"nothing":                              {nil, age.Mark{}, 1, none},
		"all old":                              {[]int64{1, 2, 899}, age.Mark{}, 4, none},
		"just young enough":                    {[]int64{1, 900, 3}, age.Mark{}, 2, none},
		"now":                                  {[]int64{1000}, age.Mark{}, 1, none},
		"the clock was behind":                 {[]int64{1, 950, 0, 960}, age.Mark{}, 2, none},
		"ahead once, then old":                 {[]int64{1, 5000, 2, 950}, age.Mark{}, 4, none},
		"ahead once, then young":               {[]int64{1, 5000, 950, 2}, age.Mark{}, 2, none},
		"ahead at the end":                     {[]int64{1, 5000, 5001}, age.Mark{}, 2, 3},
		"ahead at first, and ever since":       {[]int64{5000, 5001}, age.Mark{}, 1, 2},
		"found out long ago":                   {[]int64{1, 5000, 5001}, mark(3, 800), 4, none},
		"found out lately":                     {[]int64{1, 5000, 5001}, mark(3, 950), 2, none},
		"some since it was found out":          {[]int64{1, 5000, 5001}, mark(2, 800), 3, 3},
		"found out by a clock that was ahead":  {[]int64{1, 5000}, mark(2, 4000), 2, 2},
		"a mark does not make what is old new": {[]int64{1, 2, 5000}, mark(9, 950), 3, none},
	} {
		t.Run(name, func(t *testing.T) {
			a := age.New(time.Unix(1000, 0), 100*time.Second, test.mark, 1)
			last := uint64(len(test.written))
			for i, seconds := range test.written {
				if !a.Add(uint64(i+1), at(seconds)) {
					break
				}
			}
			cut, got, changed := a.Done(last)
			want, wantChanged := test.mark, test.marked != none
			if wantChanged {
				want = mark(uint64(test.marked), 1000)
			}
			if cut != test.cut || got != want || changed != wantChanged {
				t.Fatalf("cut at %d, mark %v, changed %v; want %d, %v, %v", cut, got, changed, test.cut, want, wantChanged)
			}
		})
	}
}
