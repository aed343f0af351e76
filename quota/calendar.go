package quota

import (
	"fmt"
	"math"
	"time"
)

// A Calendar is a unit of time as people count it, by the clocks of a Location.
// The zero Calendar is none.
type Calendar int

const (
	// Day is from midnight to midnight: 23 or 25 hours when clocks change. A day
	// whose midnight is skipped begins with its first moment.
	Day Calendar = iota + 1

	// Week is seven Days, from Monday.
	Week

	// Month is from the first Day to the last.
	Month
)

// String returns "day", "week" or "month".
func (c Calendar) String() string {
	switch c {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	default:
		return fmt.Sprintf("Calendar(%d)", int(c))
	}
}

// first returns the first day of the c that day is in, and then of the n-th one
// after it. Days are midnights in UTC, whatever the Location.
func (c Calendar) first(day time.Time, n int) time.Time {
	switch c {
	case Week:
		return day.AddDate(0, 0, 7*n-(int(day.Weekday())+6)%7)
	case Month:
		return day.AddDate(0, n, 1-day.Day())
	default:
		return day.AddDate(0, 0, n)
	}
}

// windowsAround returns when four windows begin, the second of which is the one
// that t is in. Where clocks that were set back show the day before once more, the
// new day has begun all the same: no window comes back. Times are µs since the
// Unix epoch.
func (c Calendar) windowsAround(t int64, in *time.Location) (starts [4]int64) {
	year, month, day := time.UnixMicro(t).In(in).Date()
	today := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for i := range starts {
		starts[i] = math.MinInt64
	}
	for n := -3; starts[2] <= t; n++ {
		if begin := beginning(c.first(today, n), in); begin > starts[3] { // or it was skipped
			starts = [4]int64{starts[1], starts[2], starts[3], begin}
		}
	}
	return starts
}

// beginning returns the first moment at which the clocks of a Location show a day,
// or a later one: in µs since the Unix epoch.
func beginning(day time.Time, in *time.Location) int64 {
	const farthest = 16 * time.Hour // from UTC
	for t := day.Add(-farthest).In(in); ; {
		from, until := t.ZoneBounds()
		_, offset := t.Zone()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		// On the last day of a leap year to come, ZoneBounds tells of no later moment.
		if until.IsZero() || midnight.Before(until) || !until.After(t) {
			if !from.IsZero() && midnight.Before(from) {
				midnight = from // which was skipped
			}
			return midnight.UnixMicro()
		}
		t = until
	}
}

// around is windowsAround for l. What it returned last is remembered, since most
// moments are in one window.
func (l *Limit) around(t int64) *[4]int64 {
	if starts := l.latest.Load(); starts != nil && starts[1] <= t && t < starts[2] {
		return starts
	}
	starts := l.policy.Calendar.windowsAround(t, l.policy.Location)
	l.latest.Store(&starts)
	return &starts
}

// calendarAt is windowAt for a Calendar.
func (l *Limit) calendarAt(t int64) (begin, end int64) {
	if starts := l.latest.Load(); starts != nil && starts[0] <= t && t < starts[3] {
		i := 0
		for starts[i+1] <= t {
			i++
		}
		return starts[i], starts[i+1]
	}
	starts := l.around(t)
	return starts[1], starts[2]
}
