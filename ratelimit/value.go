package ratelimit

import (
	"strings"
	"time"
)

// A syntax is the form that the value of a field has.
type syntax int

const (
	delay        syntax = iota // seconds, or a date
	milliseconds               // a number
	minutes                    // a number
	duration                   // such as 1m30s
	interval                   // seconds, or a duration
	javaScript                 // a date
	window                     // seconds, after w=
	reset                      // seconds, Unix time, a duration or a date, perhaps with parameters
)

// value reads s as a single wait.
func (r *reader) value(s string, as syntax) time.Duration {
	switch as {
	case javaScript:
		if date, ok := parseJavaScript(trim(s)); ok {
			return ceilMilli(r.clock.until(date, r.header))
		}
		return unknown
	case window:
		return r.value(windowParameter(s), delay)
	case interval, reset:
		s, _, _ = strings.Cut(s, ";")
	}
	s = trim(s)
	number, rest, ok := cutDecimal(s)
	if ok && rest == "" {
		return r.number(number, as)
	}
	if as == duration || as == interval || as == reset {
		if d := parseDuration(s); d != unknown {
			return ceilMilli(d)
		}
	}
	if as == delay || as == reset {
		if date, ok := parseDate(s, r.clock.now()); ok {
			return ceilMilli(r.clock.until(date, r.header))
		}
	}
	return unknown
}

// windowParameter returns the value of w in 0;w=21600.
func windowParameter(s string) string {
	for s != "" {
		var parameter string
		parameter, s, _ = strings.Cut(s, ";")
		if value, ok := strings.CutPrefix(trim(parameter), "w="); ok {
			return value
		}
	}
	return ""
}

// number reads a number without a unit.
func (r *reader) number(d decimal, as syntax) time.Duration {
	switch as {
	case delay, interval:
		return ceilMilli(d.times(time.Second))
	case milliseconds:
		return ceilMilli(d.times(time.Millisecond))
	case minutes:
		return ceilMilli(d.times(time.Minute))
	case reset:
		return r.resetNumber(d)
	default:
		return unknown
	}
}

// resetNumber reads a number that is a wait in seconds below 10⁹, and Unix time above.
// The magnitude tells the unit of the time, without ambiguity from 2001 to 5138. Before
// 2001, as in a bubble of testing/synctest, which starts in 2000, Unix time has nine
// digits; a wait of nine digits would be years.
func (r *reader) resetNumber(d decimal) time.Duration {
	const digits = 11 // of a Unix time in seconds, at most
	switch n := len(d.whole); {
	case n == 9 && r.clock.now().Unix() < 1e9:
		return r.epoch(d, 0, time.Second)
	case n <= 9:
		return ceilMilli(d.times(time.Second))
	case n <= digits:
		return r.epoch(d, 0, time.Second)
	case n <= digits+3:
		return r.epoch(d, 3, time.Millisecond)
	case n <= digits+6:
		return r.epoch(d, 6, time.Microsecond)
	case n <= digits+9:
		return r.epoch(d, 9, time.Nanosecond)
	default:
		return unknown
	}
}

// epoch reads d as Unix time in unit, which is 10^-shift seconds.
func (r *reader) epoch(d decimal, shift int, unit time.Duration) time.Duration {
	point := len(d.whole) - shift
	seconds := atoi(d.whole[:point], 1e11)
	part := fractionOf(d.whole[point:], time.Second) + fractionOf(d.fraction, unit)
	return ceilMilli(r.clock.until(time.Unix(int64(seconds), int64(part)), r.header))
}

// trim cuts optional whitespace (RFC 9110, section 5.6.3) off both ends of s.
func trim(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// ceilMilli rounds a non-negative d up to a whole millisecond.
func ceilMilli(d time.Duration) time.Duration {
	if part := d % time.Millisecond; part > 0 {
		return d - part + time.Millisecond
	}
	return d
}
