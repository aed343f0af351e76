package ratelimit

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxWait is what longer waits are read as. RFC 9111, section 1.2.2 has the
// same for its delta-seconds: an overflow is 2147483648, never negative.
const maxWait = 1 << 31 * time.Second

// unknown is the wait of a field that is absent or malformed. It is less than
// every wait, so that max prefers what is known.
const unknown time.Duration = -1

// Wait reports how long, from now, the server asks the client to wait before
// it sends another request, and whether it asks at all. A zero wait that was
// asked for is ok; when not ok, wait is 0.
//
// status and h are those of the response, now is the moment it was received; if
// zero, the present, which is read only if it is needed.
// The delay is read, in this order, from
//
//   - Retry-After (RFC 9110, section 10.2.3), in seconds or as a date;
//   - Retry-After-Ms, X-Ms-Retry-After-Ms and X-Amz-Retry-After, in
//     milliseconds, and X-Retry-In, a duration such as 1m30s; the longest of
//     them refines a Retry-After that is less than a second longer, and
//     otherwise the longer of the two counts;
//   - only if there is none of these, X-Retry-After and
//     X-RateLimit-Retry-After, which may be seconds, Unix time (in s, ms, µs or
//     ns, told by its magnitude), a duration or a date;
//   - only if there is none of these either, the state of the quotas, in all the
//     dialects that Parse reads. If some are used up, it is the longest time
//     until one of them is not, as far as it is told. If none is, and the status
//     is one of those that only limits have (429, 420 and 430), it is the longest
//     of those of which it is not told what is left. A quota with something left
//     does not count: it is not what refused the request.
//
// The order is that of precedence: a Retry-After counts even if it is zero, or
// shorter than the time until a quota is whole. There is one exception. Some servers
// round Retry-After down, so that a request after it is refused again: where a limit
// refused the request (429, 420 and 430), a Retry-After of whole seconds that nothing
// refines gives way to the reset of a quota that is used up, if that is at most two
// seconds later.
//
// Where a field has several values, on several lines or on one, the longest
// counts. Values that are malformed are ignored. A date is measured against the
// response's own Date and Age, or against now if it has no valid Date, or if
// its clock is plainly not set: the wait would be more than a day by the
// server's clock, and is not by ours. A date in the past is a wait of 0.
//
// Waits are rounded up to a millisecond; those beyond 2³¹ s are 2³¹ s. 1xx and
// 2xx responses refuse nothing, so nothing is read from them; of 3xx responses
// only explicit delays are. Wait may be called concurrently as long as nobody
// writes to h.
func Wait(status int, h http.Header, now time.Time) (wait time.Duration, ok bool) {
	if 100 <= status && status < 300 {
		return 0, false
	}
	if h["Retry-After"] == nil && !tellsAnything(h) {
		return 0, false // as of most
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

// coarse returns the standard's delay.
func (r *reader) coarse() time.Duration { return r.longest(r.header["Retry-After"], delay) }

// fine returns that of the vendors' fields whose unit is in their names.
func (r *reader) fine() time.Duration {
	return max(
		r.longest(r.header["Retry-After-Ms"], milliseconds),
		r.longest(r.header["X-Ms-Retry-After-Ms"], milliseconds),
		r.longest(r.header["X-Amz-Retry-After"], milliseconds),
		r.longest(r.header["X-Retry-In"], duration),
	)
}

// lastResort returns that of the fields whose unit has to be guessed.
func (r *reader) lastResort() time.Duration {
	return max(
		r.longest(r.header["X-Retry-After"], reset),
		r.longest(r.header["X-Ratelimit-Retry-After"], reset),
	)
}

// tellsAnything reports whether there is a field that Wait reads, beside Retry-After.
func tellsAnything(h http.Header) bool {
	if len(h) == 0 { // to begin to look takes longer
		return false
	}
	for name := range h {
		if f := familyOf(name); f != noFamily && f != ageField || isDelay(name) {
			return true
		}
	}
	return false
}

// isDelay reports whether a field asks for a delay in so many words.
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

// spent returns how long what is used up keeps the client waiting. If limited, a limit
// refused the request, and may be one of which it is not told what is left.
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

// mostRounded is how much later than a Retry-After a reset counts instead: a second for
// the Retry-After, and one for a Date or a Unix time, which are rounded, too.
const mostRounded = 2 * time.Second

// unrounded returns the wait for a Retry-After that may have been rounded down. Where it
// is told when one more unit fits, it does not matter when a quota is whole.
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

// limitsOnly reports whether a status says by itself that a limit was exceeded.
func limitsOnly(status int) bool {
	return status == http.StatusTooManyRequests || status == 420 || status == 430
}

// refine returns the longer of the two, but fine if coarse is less than a second
// longer: it may be fine rounded up.
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

// line reads one line: the whole of it as one value, or else as a list, in
// which a comma after the name of a day may be that of a date. Of a list of more than
// mostValues the first ones are read.
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
