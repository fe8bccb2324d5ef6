package problem

import "testing"

func TestSurrogate(t *testing.T) {
	for text, want := range map[string]bool{
		`""`: false, `"a\n\\"`: false, `"\ufffd"`: false, `"\u00e9\"x"`: false, `"\ud83d\ude00"`: false,
		`"\\ud800"`: false, `"\uD83D\uDE00\\\ud83d\ude00"`: false,
		`"\ud800"`: true, `"\udc00"`: true, `"\ude00\ud83d"`: true, `"\ud83dx"`: true, `"\ud83d\n"`: true,
		`"\ud83d\ud83d\ude00"`: true, `"\\\ud800"`: true, `["\ud83d\ude00", "\uDFFF"]`: true,
	} {
		if got := Surrogate([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
