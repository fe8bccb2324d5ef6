package night

import (
	"os"
	"strings"
	"testing"
)

// TestNight: the long forms run in the night, and not before each change.
func TestNight(t *testing.T) {
	for file, want := range map[string]bool{"night": true, "run": false} {
		text, err := os.ReadFile("../../.ci/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nexport "+variable+"=1 ") != want {
			t.Errorf(".ci/%s exports %s=1: %v, want %v", file, variable, !want, want)
		}
	}
	for value, long := range map[string]bool{"1": true, "": false} {
		t.Setenv(variable, value)
		skipped := false
		t.Run("only", func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			Only(t, "nothing")
		})
		if skipped == long || Is() != long || Or(9, 2) != map[bool]int{true: 9, false: 2}[long] {
			t.Errorf("%s=%q: %v, skipped: %v", variable, value, Is(), skipped)
		}
	}
}
