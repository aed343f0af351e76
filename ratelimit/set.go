package ratelimit

import (
	"net/http"
	"time"
)

// Set writes limits, the tightest first, into h in the fields of style. Without
// limits it writes nothing.
//
// The lists of Draft11 and Draft07 tell of all limits and are appended to what h
// has, so that the policies of a limiter further out stay visible. All other
// fields tell of limits[0] alone and replace what h has.
//
// Every style gives the same numbers:
//
//   - the limit is Quota, what is left Remaining;
//   - t of Draft11 is Next in seconds, rounded up: with nothing left, it is what
//     Retry-After says to a request that costs one unit. It is left out when
//     Next is 0;
//   - every Reset is the moment when the quota is whole again, At+Reset, rounded
//     up to a second;
//   - w is Window in seconds. It is left out if Window is not a whole number of
//     them, since any other number would state another rate; Draft07, which
//     requires w, then leaves out the policy. It also leaves out one whose Quota
//     an earlier one has, which it forbids.
//
// A name is written as a String of RFC 9651, quotes and backslashes escaped. The
// bytes of what such a String cannot hold, anything but printable ASCII, are
// written as in a URL: é becomes %C3%A9.
func Set(h http.Header, style Style, limits ...Limit) {
	Prepare(style, limits...).Set(h, limits...)
}

// A Template is Set for limits of which Name, Quota and Window never change: the
// part of the fields that they make is rendered once. It is immutable. The zero
// Template writes nothing.
type Template struct {
	style    Style
	lines    int    // how many style writes
	policies string // what RateLimit-Policy says; may be empty in Draft07
	quota    string // of the only policy; empty if any of several may be the tightest
}

// Prepare returns a Template for limits of these policies, of which it reads
// Name, Quota and Window.
func Prepare(style Style, policies ...Limit) Template {
	style = style.effective()
	t := Template{style: style, lines: style.lines()}
	var space [128]byte
	switch {
	case style&Draft11 != 0:
		t.policies = string(appendPolicies11(space[:0], policies))
	case style&Draft07 != 0:
		t.policies = string(appendPolicies07(space[:0], policies))
	}
	if len(policies) == 1 && style&triples != 0 {
		t.quota = string(appendInteger(space[:0], policies[0].Quota))
	}
	return t
}

// Set writes what Set writes for limits, which are those of the policies that t
// was prepared for, in any order, the tightest first.
func (t Template) Set(h http.Header, limits ...Limit) {
	if len(limits) == 0 || t.style == 0 {
		return
	}
	var space [128]byte // enough for one or two limits; more go to the heap
	var x text
	b := t.render(space[:0], &x, limits)
	t.write(h, &x, string(b))
}

// render appends what changes from one Set to the next.
func (t *Template) render(b []byte, x *text, limits []Limit) []byte {
	tightest := &limits[0]
	if t.style&Draft11 != 0 {
		b = x.state11(b, limits)
	}
	if t.style&Draft07 != 0 {
		b = x.state07(b, tightest)
	}
	if t.style&triples != 0 {
		b = x.triple(b, t.style, tightest)
		if t.quota == "" {
			b = x.quota.integer(b, tightest.Quota)
		}
	}
	return b
}

// write puts the lines into h. Their values share one array, but each has a place
// of its own and a capacity of one, so that whoever changes one or appends to it
// leaves the others alone.
func (t *Template) write(h http.Header, x *text, s string) {
	room := make([]string, t.lines)
	if t.style&(Draft11|Draft07) != 0 {
		room = t.writeState(h, room, x.state.of(s))
	}
	quota, remaining := t.quota, x.remaining.of(s)
	if quota == "" {
		quota = x.quota.of(s)
	}
	if t.style&Draft06 != 0 {
		room = draft06.set(h, room, quota, remaining, x.deltaReset.of(s))
	}
	if t.style&XRateLimit != 0 {
		xRateLimit.set(h, room, quota, remaining, x.unixReset.of(s))
	}
	if t.style&XRateLimitDelta != 0 {
		xRateLimit.set(h, room, quota, remaining, x.deltaReset.of(s))
	}
}

// writeState puts RateLimit-Policy and RateLimit into h. It takes two places of
// room for their values, and returns the rest.
func (t *Template) writeState(h http.Header, room []string, state string) []string {
	room[0], room[1] = t.policies, state
	if t.policies != "" {
		add(h, "Ratelimit-Policy", room[0:1:1])
	}
	if t.style&Draft11 != 0 {
		add(h, "Ratelimit", room[1:2:2])
	} else {
		h["Ratelimit"] = room[1:2:2] // a Dictionary, not a List
	}
	return room[2:]
}

// wholeSeconds returns d in seconds. ok is false unless it is a whole number of
// them, at least 1.
func wholeSeconds(d time.Duration) (seconds int64, ok bool) {
	return int64(d / time.Second), d >= time.Second && d%time.Second == 0
}
