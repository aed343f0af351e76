package ratelimit

import (
	"strings"
	"time"
)

// units are those of a duration. A name comes before any other that is a prefix of it.
// The micro sign and the Greek mu look alike; servers send both.
var units = [...]struct {
	name string
	unit time.Duration
}{
	{"ns", time.Nanosecond},
	{"us", time.Microsecond},
	{"\u00b5s", time.Microsecond},
	{"\u03bcs", time.Microsecond},
	{"ms", time.Millisecond},
	{"s", time.Second},
	{"m", time.Minute},
	{"h", time.Hour},
	{"d", 24 * time.Hour},
}

// parseDuration reads numbers with units, such as 1m30.5s. The result is at most maxWait.
func parseDuration(s string) time.Duration {
	total := unknown
	for s != "" {
		number, rest, ok := cutDecimal(s)
		if !ok {
			return unknown
		}
		unit, rest, ok := cutUnit(rest)
		if !ok {
			return unknown
		}
		total = min(max(total, 0)+number.times(unit), maxWait)
		s = rest
	}
	return total
}

// cutUnit cuts a unit off the front of s.
func cutUnit(s string) (unit time.Duration, rest string, ok bool) {
	for _, u := range units {
		if rest, ok := strings.CutPrefix(s, u.name); ok {
			return u.unit, rest, true
		}
	}
	return 0, s, false
}
