package ratelimit

import "time"

// A civil is a date and a time of day as written, before it becomes a time.Time.
type civil struct {
	year                 int
	short                bool // year has two digits
	month                time.Month
	day                  int
	hour, minute, second int
	nanos                time.Duration
	offset               time.Duration // east of UTC
}

// valid reports whether d is a real date and time of day.
func (d civil) valid() bool {
	return time.January <= d.month && d.month <= time.December &&
		1 <= d.day && d.day <= daysIn(d.year, d.month) &&
		d.hour <= 23 && d.minute <= 59 && d.second <= 60
}

// daysIn returns the number of days of a month.
func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// time returns d as a time.Time. Second 60 becomes the first second of the next minute.
func (d civil) time() time.Time {
	t := time.Date(d.year, d.month, d.day, d.hour, d.minute, d.second, int(d.nanos), time.UTC)
	return t.Add(-d.offset)
}

// near puts a two-digit year into the latest century that is at most 50 years after now.
// RFC 9110, section 5.6.7: a timestamp that "appears to be more than 50 years in the
// future" is in "the most recent year in the past that had the same last two digits".
func (d civil) near(now time.Time) civil {
	latest := now.UTC().AddDate(50, 0, 0)
	d.year += latest.Year() / 100 * 100
	for range 2 { // the second time only if the zone moves d into another century
		if d.time().After(latest) {
			d.year -= 100
		}
	}
	return d
}
