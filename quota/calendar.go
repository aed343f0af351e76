package quota

import (
	"fmt"
	"math"
	"time"
)

// A Calendar makes the windows of a FixedWindow days, weeks or months, by the clocks of a
// Location:
//
//	quota.Policy{Quota: 10_000, Algorithm: quota.FixedWindow, Calendar: quota.Day, Location: berlin}
//
// The zero Calendar means that windows are as long as Policy.Window.
type Calendar int

const (
	// Day lasts from midnight to midnight: 23 or 25 hours when clocks change. A day whose
	// midnight is skipped starts with its first moment.
	Day Calendar = iota + 1

	// Week is seven days, from Monday.
	Week

	// Month lasts from its first day to its last.
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

// first returns the first day of the n-th day, week or month after the one that contains
// day. Days are midnights in UTC, whatever the Location.
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

// windowsAround returns the starts of four windows; the second contains t. Times are in
// µs since the Unix epoch. When clocks that are set back show the previous day once more,
// the new window goes on: none comes back.
func (c Calendar) windowsAround(t int64, in *time.Location) (starts [4]int64) {
	year, month, day := time.UnixMicro(t).In(in).Date()
	today := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	for i := range starts {
		starts[i] = math.MinInt64
	}
	for n := -3; starts[2] <= t; n++ {
		if start := startOfDay(c.first(today, n), in); start > starts[3] { // start is not new if the day was skipped
			starts = [4]int64{starts[1], starts[2], starts[3], start}
		}
	}
	return starts
}

// startOfDay returns the first moment, in µs since the Unix epoch, when the clocks of in
// show day or a later day.
func startOfDay(day time.Time, in *time.Location) int64 {
	const farthest = 16 * time.Hour // from UTC
	for t := day.Add(-farthest).In(in); ; {
		from, until := t.ZoneBounds()
		_, offset := t.Zone()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		// ZoneBounds reports no bound after the last day of some leap years to come.
		if until.IsZero() || midnight.Before(until) || !until.After(t) {
			if !from.IsZero() && midnight.Before(from) {
				midnight = from // midnight was skipped
			}
			return midnight.UnixMicro()
		}
		t = until
	}
}

// around is windowsAround for l. It caches the latest result, because most times are in
// one window.
func (l *Limit) around(t int64) *[4]int64 {
	if starts := l.latest.Load(); starts != nil && starts[1] <= t && t < starts[2] {
		return starts
	}
	starts := l.policy.Calendar.windowsAround(t, l.policy.Location)
	l.latest.Store(&starts)
	return &starts
}

// calendarAt is windowAt for a Calendar.
func (l *Limit) calendarAt(t int64) (start, end int64) {
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

// isOver reports whether b is the count of a Calendar's window that has ended. Such a count is
// gone, because a Store may not know which window is the next one.
func (l *Limit) isOver(b *Bucket, now int64) bool {
	if l.policy.Calendar == 0 {
		return false
	}
	_, end := l.calendarAt(b.Time)
	return end <= now
}
