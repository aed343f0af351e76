package quota_test

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	require.NoError(t, err)
	return l
}

func calendar(n int64, c quota.Calendar, in *time.Location) quota.Policy {
	return quota.Policy{Quota: n, Algorithm: quota.FixedWindow, Calendar: c, Location: in}
}

// instant parses a time in UTC.
func instant(t testing.TB, s string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05.999999", s)
	require.NoError(t, err)
	return at
}

// Real changes of clocks, and the start and the end of the window of a time, all in UTC.
func TestCalendarWindowsFollowTheLocation(t *testing.T) {
	for _, test := range []struct {
		name   string
		unit   quota.Calendar
		zone   string
		at     string
		start  string
		end    string
		length time.Duration
	}{
		{"a day", quota.Day, "UTC", "2026-02-03 12:00:00", "2026-02-03 00:00:00", "2026-02-04 00:00:00", 24 * h},
		{
			"its first moment", quota.Day, "UTC", "2026-02-03 00:00:00", "2026-02-03 00:00:00",
			"2026-02-04 00:00:00", 24 * h,
		},
		{
			"its last moment", quota.Day, "UTC", "2026-02-03 23:59:59.999999", "2026-02-03 00:00:00",
			"2026-02-04 00:00:00", 24 * h,
		},
		{
			"before 1970", quota.Day, "UTC", "1969-12-31 23:59:59.999999", "1969-12-31 00:00:00",
			"1970-01-01 00:00:00", 24 * h,
		},
		{
			"east of Greenwich", quota.Day, "Asia/Kolkata", "2026-02-03 18:30:00", "2026-02-03 18:30:00",
			"2026-02-04 18:30:00", 24 * h,
		},
		{
			"west of Greenwich", quota.Day, "America/Los_Angeles", "2026-02-03 07:59:59", "2026-02-02 08:00:00",
			"2026-02-03 08:00:00", 24 * h,
		},
		{
			"as far east as it goes", quota.Day, "Pacific/Kiritimati", "2026-02-03 10:00:00",
			"2026-02-03 10:00:00", "2026-02-04 10:00:00", 24 * h,
		},

		{
			"Berlin springs forward", quota.Day, "Europe/Berlin", "2026-03-29 01:30:00", "2026-03-28 23:00:00",
			"2026-03-29 22:00:00", 23 * h,
		},
		{
			"Berlin, the day before", quota.Day, "Europe/Berlin", "2026-03-28 22:59:59", "2026-03-27 23:00:00",
			"2026-03-28 23:00:00", 24 * h,
		},
		{
			"Berlin, the day after", quota.Day, "Europe/Berlin", "2026-03-29 22:00:00", "2026-03-29 22:00:00",
			"2026-03-30 22:00:00", 24 * h,
		},
		{
			"Berlin falls back", quota.Day, "Europe/Berlin", "2026-10-25 01:30:00", "2026-10-24 22:00:00",
			"2026-10-25 23:00:00", 25 * h,
		},
		{
			"New York springs forward", quota.Day, "America/New_York", "2026-03-08 12:00:00",
			"2026-03-08 05:00:00", "2026-03-09 04:00:00", 23 * h,
		},
		{
			"New York falls back", quota.Day, "America/New_York", "2026-11-01 12:00:00", "2026-11-01 04:00:00",
			"2026-11-02 05:00:00", 25 * h,
		},
		{
			"half an hour on Lord Howe", quota.Day, "Australia/Lord_Howe", "2026-04-05 00:00:00",
			"2026-04-04 13:00:00", "2026-04-05 13:30:00", 24*h + 30*m,
		},

		{
			"São Paulo skips midnight", quota.Day, "America/Sao_Paulo", "2018-11-04 03:00:00",
			"2018-11-04 03:00:00", "2018-11-05 02:00:00", 23 * h,
		},
		{
			"São Paulo, the day before", quota.Day, "America/Sao_Paulo", "2018-11-04 02:59:59",
			"2018-11-03 03:00:00", "2018-11-04 03:00:00", 24 * h,
		},
		{
			"São Paulo shows 23 o'clock twice", quota.Day, "America/Sao_Paulo", "2018-02-18 02:30:00",
			"2018-02-17 02:00:00", "2018-02-18 03:00:00", 25 * h,
		},
		{
			"Beirut skips midnight", quota.Day, "Asia/Beirut", "2026-03-29 12:00:00", "2026-03-28 22:00:00",
			"2026-03-29 21:00:00", 23 * h,
		},
		{
			"Havana shows midnight twice", quota.Day, "America/Havana", "2026-11-01 05:30:00",
			"2026-11-01 04:00:00", "2026-11-02 05:00:00", 25 * h,
		},
		{
			"St. John's has a minute of Sunday", quota.Day, "America/St_Johns", "2010-11-07 02:30:00",
			"2010-11-07 02:30:00", "2010-11-08 03:30:00", 25 * h,
		},
		{
			"and Saturday once more, which is over", quota.Day, "America/St_Johns", "2010-11-07 03:00:00",
			"2010-11-07 02:30:00", "2010-11-08 03:30:00", 25 * h,
		},
		{
			"Samoa leaves out a Friday", quota.Day, "Pacific/Apia", "2011-12-30 09:59:59",
			"2011-12-29 10:00:00", "2011-12-30 10:00:00", 24 * h,
		},
		{
			"so that Saturday follows", quota.Day, "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-30 10:00:00",
			"2011-12-31 10:00:00", 24 * h,
		},

		{
			"a week from Monday", quota.Week, "UTC", "2026-02-04 00:00:00", "2026-02-02 00:00:00",
			"2026-02-09 00:00:00", 7 * 24 * h,
		},
		{"to Sunday", quota.Week, "UTC", "2026-02-08 23:59:59", "2026-02-02 00:00:00", "2026-02-09 00:00:00", 7 * 24 * h},
		{
			"a week of two years", quota.Week, "UTC", "2026-01-01 00:00:00", "2025-12-29 00:00:00",
			"2026-01-05 00:00:00", 7 * 24 * h,
		},
		{
			"a week with a change", quota.Week, "Europe/Berlin", "2026-03-29 00:00:00", "2026-03-22 23:00:00",
			"2026-03-29 22:00:00", 7*24*h - h,
		},
		{
			"a week without Friday", quota.Week, "Pacific/Apia", "2011-12-30 00:00:00", "2011-12-26 10:00:00",
			"2012-01-01 10:00:00", 6 * 24 * h,
		},

		{"a month", quota.Month, "UTC", "2026-01-31 23:59:59", "2026-01-01 00:00:00", "2026-02-01 00:00:00", 31 * 24 * h},
		{"February", quota.Month, "UTC", "2026-02-28 12:00:00", "2026-02-01 00:00:00", "2026-03-01 00:00:00", 28 * 24 * h},
		{
			"a long February", quota.Month, "UTC", "2028-02-29 12:00:00", "2028-02-01 00:00:00",
			"2028-03-01 00:00:00", 29 * 24 * h,
		},
		{"December", quota.Month, "UTC", "2026-12-31 12:00:00", "2026-12-01 00:00:00", "2027-01-01 00:00:00", 31 * 24 * h},
		{
			"a month with a change", quota.Month, "America/New_York", "2026-03-31 12:00:00",
			"2026-03-01 05:00:00", "2026-04-01 04:00:00", 31*24*h - h,
		},
		{
			"the end of a month elsewhere", quota.Month, "Asia/Tokyo", "2026-01-31 15:00:00",
			"2026-01-31 15:00:00", "2026-02-28 15:00:00", 28 * 24 * h,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCount(t, calendar(1, test.unit, zone(t, test.zone)))
			at, start, end := instant(t, test.at), instant(t, test.start), instant(t, test.end)
			require.Equal(t, test.length, end.Sub(start))
			starts := c.limit.Starts(at.UnixMicro())
			assert.Equal(t, []string{test.start, test.end}, []string{utc(starts[1]), utc(starts[2])})
			assert.Less(t, starts[0], starts[1])
			assert.Less(t, starts[2], starts[3])
			assert.Equal(t, starts, c.limit.Starts(start.UnixMicro()))
			assert.Equal(t, starts, c.limit.Starts(end.UnixMicro()-1))
			next := c.limit.Starts(end.UnixMicro())
			assert.Equal(t, starts[1:], next[:3])
			unused := compile(t, c.limit.Policy())
			assert.Equal(t, end.UnixMicro(), unused.Remembers(at.UnixMicro()))
			assert.Equal(t, end.UnixMicro(), unused.Remembers(at.UnixMicro()), "once more")

			c.now = at.UnixMicro()
			assert.Equal(
				t, quota.Decision{Allowed: true, Limit: 1, NextAfter: end.Sub(at), ResetAfter: end.Sub(at)},
				c.take(1),
			)
			c.now = end.UnixMicro() - 1
			assert.Equal(t, µs, c.take(1).RetryAfter)
			c.now = end.UnixMicro()
			assert.True(t, c.take(1).Allowed)
		})
	}
}

func utc(t int64) string { return time.UnixMicro(t).UTC().Format("2006-01-02 15:04:05.999999") }

// Windows follow one another without a gap, whatever the clocks did, and each one has
// another date than the moment before it.
func TestCalendarWindowsHaveNoGaps(t *testing.T) {
	names := []string{
		"Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "America/St_Johns",
		"America/Havana", "Asia/Tehran", "Africa/Casablanca",
	}
	start, end := time.Date(
		2008, 1, 1, 0, 0, 0, 0, time.UTC,
	).UnixMicro(), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	for _, name := range names {
		in := zone(t, name)
		for _, unit := range []quota.Calendar{quota.Day, quota.Week, quota.Month} {
			l := compile(t, calendar(1, unit, in))
			last := l.Starts(start)
			for last[2] < end {
				starts := l.Starts(last[2])
				if !assert.Equal(t, last[1:], starts[:3], "%s %v", name, unit) {
					break
				}
				first := time.UnixMicro(starts[1]).In(in)
				assert.Less(t, first.Add(-µs).Format(time.DateOnly), first.Format(time.DateOnly), "%s %v", name, unit)
				last = starts
			}
		}
	}
}

// For the last day of a leap year without transitions, as 2056 is so far, ZoneBounds
// reports an end before the start.
func TestTheLastDayOfAFutureLeapYearEnds(t *testing.T) {
	l := compile(t, calendar(1, quota.Day, zone(t, "America/New_York")))
	for hour := range 72 {
		at := instant(t, "2056-12-30 05:00:00").Add(time.Duration(hour) * time.Hour)
		start := at.Add(-time.Duration(hour%24) * time.Hour).UnixMicro()
		day := 24 * time.Hour.Microseconds()
		assert.Equal(t, [4]int64{start - day, start, start + day, start + 2*day}, l.Starts(at.UnixMicro()), "%v", at)
	}
}

func TestACalendarReservesInTheNextWindow(t *testing.T) {
	c := newCount(t, calendar(2, quota.Day, zone(t, "Europe/Berlin")))
	c.now = instant(t, "2026-10-24 21:00:00").UnixMicro() // an hour before a day of 25 hours
	for i, want := range []time.Duration{0, 0, h, h} {
		wait, ok := c.reserve(1, 24*h)
		assert.Equal(t, want, wait, i)
		assert.True(t, ok, i)
	}
	wait, ok := c.reserve(1, 30*h)
	assert.Equal(t, 26*h, wait)
	assert.False(t, ok, "over a day ahead")
	c.settle(-1, -h)
	wait, ok = c.reserve(1, h)
	assert.Equal(t, h, wait)
	assert.True(t, ok)
}

func TestALocationMayHaveAnyOffset(t *testing.T) {
	for _, offset := range []int{-36 * 3600, -1, 0, 1, 15*3600 + 1234, 100 * 3600} {
		in := time.FixedZone("X", offset)
		starts := compile(t, calendar(1, quota.Day, in)).Starts(noon.UnixMicro())
		for _, start := range starts {
			at := time.UnixMicro(start).In(in)
			assert.Equal(t, "00:00:00", at.Format(time.TimeOnly), fmt.Sprint(offset))
		}
		assert.LessOrEqual(t, starts[1], noon.UnixMicro())
		assert.Less(t, noon.UnixMicro(), starts[2])
	}
}

func TestCalendarsAndAlgorithmsHaveNames(t *testing.T) {
	assert.Equal(t, "day week month Calendar(0) Calendar(4)",
		fmt.Sprint(quota.Day, quota.Week, quota.Month, quota.Calendar(0), quota.Calendar(4)))
	assert.Equal(t, "TokenBucket LeakyBucket FixedWindow SlidingWindow SlidingLog Algorithm(5) Algorithm(-1)",
		fmt.Sprint(
			quota.TokenBucket, quota.LeakyBucket, quota.FixedWindow, quota.SlidingWindow, quota.SlidingLog,
			quota.Algorithm(5), quota.Algorithm(-1),
		))
}
