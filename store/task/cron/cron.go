// Package cron parses cron text into schedules, for the periodic tasks of package task.
//
//	daily, err := cron.Parse("30 2 * * *", berlin)
//	often, err := cron.Parse("CRON_TZ=America/New_York */5 9-17 * * MON-FRI", nil)
//	other, err := cron.Parse("@every 90m", nil)
//
// # Text
//
// Five fields: minute, hour, day of month, month, day of week (0 and 7 are Sunday). Six: the same with seconds before
// them. A field is "*", values, ranges and lists ("1-5,10"), with steps ("*/15"); months and days of the week have
// names too. If both days are given, one of them is enough, as in every cron. "L" is the last day of a month, "L-2" the
// second before it, "15W" the working day nearest to the 15th, "LW" the last working day, "FRI#3" the third Friday,
// "FRI#L" the last.
//
// Also "@yearly", "@monthly", "@weekly", "@daily", "@hourly", and "@every" with a [time.ParseDuration] text of whole
// seconds. Ticks of "@every" are the multiples of the duration since the beginning of year 1, in UTC, so that all
// programs agree on them, also after they have been restarted.
//
// # Time zones
//
// A schedule goes by the wall clock of its zone. Zones are those of the system; a program that imports time/tzdata has
// them everywhere. When the clocks are changed, as cron does since Vixie's:
//
//   - A schedule for each hour ("*" there, or all 24) continues with elapsed time: every 5 minutes stays so.
//   - For any other schedule, ticks in the time that the clocks skip become one tick at the end of that time, and
//     ticks in the time that comes twice happen in the first of the two. So a daily tick is due once each day.
package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"github.com/holdfastdb/holdfast"
)

// Schedule is a set of ticks: it is what its text says, and depends on nothing else but what is known of its zone. A
// schedule may be used by many goroutines at once.
type Schedule struct {
	text  string
	zone  *time.Location
	every time.Duration      // of "@every", otherwise 0
	wall  *cron.SpecSchedule // matches the wall clock, taken to be UTC, so that none of its times is skipped or repeated
	fixed bool               // not for each hour
}

var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.Extended | cron.DowOrDom).WithMaxSearchYears(100) // 29 February on a Monday is rare

// Parse makes a schedule of a text of at most 1024 bytes. Its zone is named by a prefix, "CRON_TZ=Europe/Berlin ", or
// is zone, or UTC if that is nil. ErrBadOption: the text is no schedule, its zone is not known here, or it has no tick
// in a hundred years.
func Parse(text string, zone *time.Location) (*Schedule, error) {
	bad := func(err error, remedy string) (*Schedule, error) {
		return nil, &holdfast.Error{Op: "cron", Class: holdfast.ErrBadOption, Detail: fmt.Sprintf("%.99q", text),
			Cause: err, Remedy: remedy}
	}
	text = strings.TrimSpace(text)
	parsed, err := parser.Parse(text)
	if err != nil {
		return bad(err, "write minute, hour, day of month, month and day of week, as in 30 2 * * MON-FRI")
	}
	if zone == nil {
		zone = time.UTC
	}
	s := &Schedule{text: text, zone: zone}
	switch p := parsed.(type) {
	case cron.ConstantDelaySchedule:
		s.every = p.Delay
		if d, _ := time.ParseDuration(text[strings.LastIndex(text, " ")+1:]); d != s.every {
			return bad(errors.New("the duration is rounded"), "take whole seconds")
		}
		return s, nil
	case *cron.SpecSchedule:
		if p.Location != time.Local { // the text has named it
			s.zone = p.Location
		}
		p.Location = time.UTC
		const allHours = 1<<24 - 1
		s.wall, s.fixed = p, p.Hour&allHours != allHours
	default:
		return bad(fmt.Errorf("a %T", parsed), "")
	}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return bad(errors.New("it has no tick"), "take days that the months have")
	}
	return s, nil
}

// String returns the text.
func (s *Schedule) String() string { return s.text }

// Next returns the first tick after a time, in the zone of the schedule.
func (s *Schedule) Next(after time.Time) time.Time {
	if s.every > 0 {
		return after.UTC().Truncate(s.every).Add(s.every).In(s.zone)
	}
	// Between two changes of the clocks, the wall clock is as far from UTC as at t. Only ticks later than from count.
	t := after.In(s.zone)
	start, end := t.ZoneBounds()
	from := wall(t, t)
	if s.fixed && !start.IsZero() {
		from = later(from, wall(start, start.Add(-1)).Add(-1)) // what the clocks showed before start, they show again
	}
	for {
		next := s.wall.Next(from)
		if next.IsZero() {
			return next
		}
		if tick := t.Add(next.Sub(wall(t, t))); end.IsZero() || tick.Before(end) {
			return tick
		}
		old, shown := wall(end, t), wall(end, end)
		if s.fixed && next.Before(shown) {
			return end
		}
		from = shown.Add(-1)
		if s.fixed {
			from = later(shown, old).Add(-1)
		}
		t = end
		_, end = t.ZoneBounds()
	}
}

// wall returns what clocks show at t, as UTC, if they are as far from UTC as they are at like.
func wall(t, like time.Time) time.Time {
	_, seconds := like.Zone()
	return t.UTC().Add(time.Duration(seconds) * time.Second)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
