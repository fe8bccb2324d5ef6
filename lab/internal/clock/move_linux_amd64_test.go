package clock

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "moved" {
		moved()
		return
	}
	os.Exit(m.Run())
}

// moved is the child of the test: it moves its clock, and says by how much that is ahead of the system's, how much it
// sees of some time, and how long that was at least and at most.
func moved() {
	var ahead time.Duration
	var slow int
	if _, err := fmt.Sscan(os.Args[2]+" "+os.Args[3], (*int64)(&ahead), &slow); err != nil {
		panic(err)
	}
	if err := Move(ahead, slow); err != nil {
		panic(err)
	}
	before, began, behind := Now(), time.Now(), Now()
	for Now()-behind < 200*time.Millisecond {
		<-time.After(time.Millisecond / time.Duration(slow))
	}
	least := Now() - behind
	saw := time.Since(began)
	fmt.Println(int64(saw), int64(least), int64(Now()-before), time.Now().Unix())
}

// TestMove: a process sees another time of day, and less of the time that passes; timers fire all the same.
func TestMove(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration
		slow  int
	}{{0, 1}, {time.Hour, 1}, {-time.Hour, 1}, {time.Hour, 20}} {
		out, err := exec.Command(os.Args[0], "moved", fmt.Sprint(int64(c.ahead)), fmt.Sprint(c.slow)).Output()
		if err != nil {
			t.Fatal(err)
		}
		var saw, least, most time.Duration
		var at int64
		if _, err := fmt.Sscan(string(out), (*int64)(&saw), (*int64)(&least), (*int64)(&most), &at); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		off := time.Until(time.Unix(at, 0)) - c.ahead
		if off.Abs() > 10*time.Minute {
			t.Errorf("%v: it is off by %v", c.ahead, off)
		}
		// Of the start and of the end it sees no more than a whole nanosecond of its own.
		if all, unit := saw*time.Duration(c.slow), 2*time.Duration(c.slow); all < least-unit || all > most+unit {
			t.Errorf("slower by %d: of %v to %v it saw %v", c.slow, least, most, saw)
		}
	}
}
