package ratelimit

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxWait caps all waits. RFC 9111, section 1.2.2 does the same with its delta-seconds:
// an overflow becomes 2147483648 and is never negative.
const maxWait = 1 << 31 * time.Second

// unknown is the wait of a field that is absent or malformed. It is less than every wait,
// so that max prefers a known one.
const unknown time.Duration = -1

// Wait returns how long the server asks the client to wait before another request:
//
//	if wait, ok := ratelimit.Wait(resp.StatusCode, resp.Header, time.Time{}); ok {
//		time.Sleep(wait)
//	}
//
// ok is false if the server asks for nothing. A wait of 0 with ok means that the server
// asked for no delay. now is when the response was received, or the present if zero.
//
// Wait reads the following and stops at the first that is present:
//
//   - Retry-After (RFC 9110, section 10.2.3), in seconds or as a date, together with
//     Retry-After-Ms, X-Ms-Retry-After-Ms and X-Amz-Retry-After, in milliseconds, and
//     X-Retry-In, a duration such as 1m30s. The longest of the vendors' fields refines a
//     Retry-After that is less than a second longer; otherwise the longer of the two
//     counts;
//   - X-Retry-After and X-RateLimit-Retry-After: seconds, Unix time (in s, ms, µs or ns,
//     by its magnitude), a duration or a date;
//   - the quotas, in every dialect of Parse: the longest wait of those that are used up. A
//     429, 420 or 430 is always a limit's; if no quota is used up then, the longest of those
//     with an unknown remainder. A quota with units left does not count: it refused nothing.
//
// A Retry-After counts even if it is zero or shorter than a quota's reset, with one
// exception. Some servers round it down, so that a request at that time is refused again.
// After a 429, 420 or 430, a Retry-After of whole seconds that no other field refines
// yields to the reset of a used-up quota, if that is at most two seconds later.
//
// The longest of several values of a field counts. Malformed values are ignored. A date
// is measured against the response's Date and Age, or against now if the response has no
// valid Date, or if the server's clock is plainly wrong: the wait is over a day by that
// clock, and under a day by now. A past date is a wait of 0.
//
// Waits are rounded up to a millisecond and capped at 2³¹ s. Wait reads nothing from 1xx
// and 2xx responses, which refuse nothing, and only explicit delays from 3xx. It may be
// called concurrently if nothing writes to h.
func Wait(status int, h http.Header, now time.Time) (wait time.Duration, ok bool) {
	if 100 <= status && status < 300 {
		return 0, false
	}
	if h["Retry-After"] == nil && !tellsAnything(h) {
		return 0, false // as with most responses
	}
	r := reader{header: h, clock: clock{local: now}}
	coarse, fine := r.coarse(), r.fine()
	wait, limited := refine(coarse, fine), limitsOnly(status)
	switch {
	case wait == unknown:
		wait = r.lastResort()
	case limited && roundedDown(coarse, fine):
		wait = r.unrounded(wait)
	}
	if wait == unknown && (status < 100 || status >= 400) {
		wait = r.spent(limited)
	}
	return max(wait, 0), wait != unknown
}

// A reader reads the fields of one response.
type reader struct {
	header http.Header
	clock  clock
}

// coarse returns the delay of the standard's field.
func (r *reader) coarse() time.Duration { return r.longest(r.header["Retry-After"], delay) }

// fine returns the delay of vendors' fields that have a unit in their names.
func (r *reader) fine() time.Duration {
	return max(
		r.longest(r.header["Retry-After-Ms"], milliseconds),
		r.longest(r.header["X-Ms-Retry-After-Ms"], milliseconds),
		r.longest(r.header["X-Amz-Retry-After"], milliseconds),
		r.longest(r.header["X-Retry-In"], duration),
	)
}

// lastResort returns the delay of the fields whose unit has to be guessed.
func (r *reader) lastResort() time.Duration {
	return max(
		r.longest(r.header["X-Retry-After"], reset),
		r.longest(r.header["X-Ratelimit-Retry-After"], reset),
	)
}

// tellsAnything reports whether Wait reads any field of h other than Retry-After.
func tellsAnything(h http.Header) bool {
	if len(h) == 0 { // faster than starting an empty range
		return false
	}
	for name := range h {
		if f := familyOf(name); f != noFamily && f != ageField || isDelay(name) {
			return true
		}
	}
	return false
}

// isDelay reports whether a field is a delay by its name.
func isDelay(name string) bool {
	switch name {
	case "Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After", "X-Retry-In",
		"X-Retry-After", "X-Ratelimit-Retry-After":
		return true
	}
	return false
}

func (r *reader) spent(limited bool) time.Duration {
	var space [4]Limit
	return spent(r.quotas(space[:0], false), limited)
}

func (r *reader) unrounded(after time.Duration) time.Duration {
	var space [4]Limit
	return unrounded(after, r.quotas(space[:0], false))
}

// spent returns the wait for used-up quotas. If limited, a limit refused the request; it
// may be one with an unknown remainder.
func spent(limits []Limit, limited bool) time.Duration {
	wait, perhaps, empty := unknown, unknown, false
	for i := range limits {
		switch l := &limits[i]; {
		case l.Remaining == 0:
			wait, empty = max(wait, l.until()), true
		case l.Remaining < 0:
			perhaps = max(perhaps, l.until())
		}
	}
	if !empty && limited {
		return perhaps
	}
	return wait
}

// roundedDown reports whether a Retry-After may have been rounded down.
func roundedDown(coarse, fine time.Duration) bool {
	return coarse != unknown && coarse%time.Second == 0 && fine == unknown
}

// mostRounded is how much later than Retry-After a reset may be to count instead: a
// second for the rounding of Retry-After, and one for that of a Date or a Unix time.
const mostRounded = 2 * time.Second

// unrounded returns the wait for a Retry-After that may have been rounded down. If one
// quota has a known Next, resets do not count.
func unrounded(after time.Duration, limits []Limit) time.Duration {
	exact := slices.ContainsFunc(limits, func(l Limit) bool { return l.Remaining == 0 && l.Next >= 0 })
	wait := after
	for i := range limits {
		l := &limits[i]
		if l.Remaining != 0 || exact && l.Next < 0 {
			continue
		}
		if until := l.until(); until <= after+mostRounded {
			wait = max(wait, until)
		}
	}
	return wait
}

// limitsOnly reports whether a status alone says that a limit was exceeded.
func limitsOnly(status int) bool {
	return status == http.StatusTooManyRequests || status == 420 || status == 430
}

// refine returns the longer of the two, except that fine wins over a coarse that is less
// than a second longer: that may be fine rounded up.
func refine(coarse, fine time.Duration) time.Duration {
	if fine != unknown && coarse-fine < time.Second {
		return fine
	}
	return coarse
}

// longest returns the longest wait among all lines of a field.
func (r *reader) longest(lines []string, as syntax) time.Duration {
	wait := unknown
	for _, line := range lines {
		wait = max(wait, r.line(line, as))
	}
	return wait
}

const mostValues = 1 << 16

// line reads one line, as a single value or else as a list. In a list, a comma after the
// name of a weekday may belong to a date. It reads at most mostValues.
func (r *reader) line(s string, as syntax) time.Duration {
	wait := r.value(s, as)
	if wait != unknown {
		return wait
	}
	list := strings.IndexByte(s, ',') >= 0
	for n := 0; list && n < mostValues; n++ {
		piece, rest, more := strings.Cut(s, ",")
		if more && isWeekday(trim(piece)) {
			next, after, found := strings.Cut(rest, ",")
			if date := r.value(s[:len(piece)+len(",")+len(next)], as); date != unknown {
				wait, s, list = max(wait, date), after, found
				continue
			}
		}
		wait, s, list = max(wait, r.value(piece, as)), rest, more
	}
	return wait
}
