package quota

import (
	"fmt"
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

// first returns the first day of the c that day is in. Days are midnights in UTC,
// whatever the Location.
func (c Calendar) first(day time.Time) time.Time {
	switch c {
	case Week:
		return day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
	case Month:
		return day.AddDate(0, 0, 1-day.Day())
	default:
		return day
	}
}

// next returns the first day of the c after the one that begins with first.
func (c Calendar) next(first time.Time) time.Time {
	switch c {
	case Week:
		return first.AddDate(0, 0, 7)
	case Month:
		return first.AddDate(0, 1, 0)
	default:
		return first.AddDate(0, 0, 1)
	}
}

// A span is a window of a Calendar, in µs since the Unix epoch.
type span struct{ begin, end int64 }

// spanOf returns the one that t is in. Where clocks that were set back show the day
// before once more, the new day has begun all the same: windows do not come back.
func (c Calendar) spanOf(t int64, in *time.Location) span {
	year, month, day := time.UnixMicro(t).In(in).Date()
	first := c.first(time.Date(year, month, day, 0, 0, 0, 0, time.UTC))
	for {
		next := c.next(first)
		if end := beginning(next, in); t < end {
			return span{beginning(first, in), end}
		}
		first = next
	}
}

// beginning returns the first moment at which the clocks of a Location show a day,
// or a later one: in µs since the Unix epoch.
func beginning(day time.Time, in *time.Location) int64 {
	const farthest = 16 * time.Hour // from UTC
	for t := day.Add(-farthest).In(in); ; {
		from, until := t.ZoneBounds()
		_, offset := t.Zone()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		if until.IsZero() || midnight.Before(until) {
			if !from.IsZero() && midnight.Before(from) {
				midnight = from // which was skipped
			}
			return midnight.UnixMicro()
		}
		t = until
	}
}

// calendarAt is windowAt for a Calendar. The latest window is remembered, since
// most moments are in it.
func (l *Limit) calendarAt(t int64) (begin, end int64) {
	s := l.latest.Load()
	if s == nil || t < s.begin || t >= s.end {
		now := l.policy.Calendar.spanOf(t, l.policy.Location)
		s = &now
		l.latest.Store(s)
	}
	return s.begin, s.end
}
