package cron_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"github.com/holdfastdb/holdfast/store/task/cron"
)

func Example() {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := cron.Parse("30 2 * * *", newYork)
	if err != nil {
		fmt.Println(err)
		return
	}
	tick := time.Date(2026, 3, 6, 12, 0, 0, 0, newYork)
	for range 3 { // on 8 March, the clocks go from 02:00 to 03:00
		tick = s.Next(tick)
		fmt.Println(tick)
	}
	// Output:
	// 2026-03-07 02:30:00 -0500 EST
	// 2026-03-08 03:00:00 -0400 EDT
	// 2026-03-09 02:30:00 -0400 EDT
}

// TestTicks compares ticks around changes of clocks with those that a walk through all minutes finds.
func TestTicks(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "America/Santiago", // changes at midnight
		"Africa/Cairo", "Australia/Lord_Howe" /* by half an hour */, "Asia/Kathmandu", "Pacific/Apia" /* by a day */}
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		hours := time.Duration(rapid.IntRange(0, 45*366*24).Draw(t, "hours")) * time.Hour
		around := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC).Add(hours).In(zone)
		if _, change := around.ZoneBounds(); !change.IsZero() {
			around = change.Truncate(time.Minute)
		}
		var text []string
		field := func(name string, first, last int) func(int) bool {
			if rapid.Bool().Draw(t, "any "+name) {
				text = append(text, "*")
				return nil
			}
			values := rapid.SliceOfNDistinct(rapid.IntRange(first, last), 1, 4, rapid.ID[int]).Draw(t, name)
			var list []string
			for _, v := range values {
				list = append(list, strconv.Itoa(v))
			}
			text = append(text, strings.Join(list, ","))
			return func(v int) bool { return slices.Contains(values, v) }
		}
		minute, hour := field("minute", 0, 59), field("hour", 0, 23)
		day, month, weekday := field("day", 1, 31), field("month", 1, 12), field("weekday", 0, 6)
		is := func(in func(int) bool, v int) bool { return in == nil || in(v) }
		matches := func(w time.Time) bool {
			d, wd := is(day, w.Day()), is(weekday, int(w.Weekday()))
			if day != nil && weekday != nil {
				d, wd = d || wd, true
			}
			return is(minute, w.Minute()) && is(hour, w.Hour()) && is(month, int(w.Month())) && d && wd
		}
		s, err := cron.Parse(strings.Join(text, " "), zone)
		if errors.Is(err, holdfast.ErrBadOption) && strings.Contains(err.Error(), "no tick") {
			return // 30 February
		}
		if err != nil {
			t.Fatal(err)
		}

		const span = 40 * time.Hour
		from, to := around.Add(-span), around.Add(span)
		after := from.Add(time.Duration(rapid.Int64Range(0, int64(2*span)).Draw(t, "after")))
		var want, got []time.Time
		shown := wall(from.Add(-time.Minute)) // the latest that the clocks have shown
		for m := from; !m.After(to); m = m.Add(time.Minute) {
			w := wall(m)
			tick := matches(w)
			if hour != nil {
				tick = false
				for ; shown.Before(w); shown = shown.Add(time.Minute) {
					tick = tick || matches(shown.Add(time.Minute))
				}
			}
			if tick && m.After(after) {
				want = append(want, m)
			}
		}
		for at := s.Next(after); !at.IsZero() && !at.After(to); at = s.Next(at) {
			got = append(got, at)
		}
		got, want = append(got, time.Time{}), append(want, time.Time{})
		for i := range want {
			if !got[i].Equal(want[i]) {
				t.Fatalf("%s in %s after %s: tick %d is %s, want %s", s, zone, after, i, got[i], want[i])
			}
		}
	})
}

func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
}

func TestText(t *testing.T) {
	after := time.Date(2026, 2, 27, 12, 0, 0, 0, time.UTC) // a Friday
	for text, want := range map[string]string{
		"@hourly":                          "2026-02-27 13:00:00 +0000",
		"@daily":                           "2026-02-28 00:00:00 +0000",
		"@weekly":                          "2026-03-01 00:00:00 +0000",
		"@every 7h":                        "2026-02-27 16:00:00 +0000",
		" @every 24h ":                     "2026-02-28 00:00:00 +0000",
		"CRON_TZ=Asia/Kathmandu 0 6 * * *": "2026-02-28 06:00:00 +0545",
		"*/20 * * * * *":                   "2026-02-27 12:00:20 +0000",
		"0 0 L * *":                        "2026-02-28 00:00:00 +0000",
		"0 0 * * MON#1":                    "2026-03-02 00:00:00 +0000",
		"0 0 13 * 5":                       "2026-03-06 00:00:00 +0000", // a Friday, too
		"0 0 29 FEB *":                     "2028-02-29 00:00:00 +0000",
		"30 9 * * 7":                       "2026-03-01 09:30:00 +0000",
		"0 0-23 * * *":                     "2026-02-27 13:00:00 +0000",
		"CRON_TZ=America/New_York @yearly": "2027-01-01 00:00:00 -0500",
	} {
		s, err := cron.Parse(text, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := s.Next(after).Format("2006-01-02 15:04:05 -0700"); got != want {
			t.Errorf("%q: the tick after %s is %s, want %s", text, after, got, want)
		}
	}
	for _, text := range []string{"", " ", "*", "* * * *", "* * * * * * *", "60 * * * *", "0 0 30 2 *", "x", "-1 * * * *",
		"CRON_TZ=", "TZ=0", "CRON_TZ=Nowhere/Town * * * * *", "CRON_TZ=../etc * * * * *", "*/0 * * * *", "@every",
		"@every 1500ms", "@every -1h", "@every 0s", "@every 10ms", "@every 9999999999999h", "@reboot",
		"H * * * *", "\x00", strings.Repeat("1,", 2000)} {
		if s, err := cron.Parse(text, nil); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v, %v; want ErrBadOption", text, s, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"30 2 * * *", "CRON_TZ=Europe/Berlin 0 0 L-2,15W * FRI#L", "@every 90m",
		"*/7 22-2 * NOV-FEB *"} {
		f.Add(s, int64(1_790_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		s, err := cron.Parse(text, nil)
		if err != nil {
			if !errors.Is(err, holdfast.ErrBadOption) {
				t.Error(err)
			}
			return
		}
		after := time.Unix(unix%(1<<36), 0) // some thousand years
		if next := s.Next(after); !next.After(after) {
			t.Errorf("%q: after %s comes %s", text, after, next)
		}
	})
}
