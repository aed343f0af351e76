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
//   - qu and pk of Draft11, which alone has them, are Unit and Partition;
//   - w is Window in seconds. It is left out if Window is not a whole number of
//     them, since any other number would state another rate; Draft07, which
//     requires w, then leaves out the policy. It also leaves out one whose Quota
//     an earlier one has, which it forbids;
//   - Algorithm, if known, is heed-algorithm of the policies, a parameter that
//     other clients ignore.
//
// A name is written as a String of RFC 9651, quotes and backslashes escaped. The
// bytes of what such a String cannot hold, anything but printable ASCII, are
// written as in a URL: é becomes %C3%A9.
func Set(h http.Header, style Style, limits ...Limit) {
	f := frameOf(style, limits)
	f.set(h, limits)
}

// A Template is Set for limits of which only the state changes: the
// part of the fields that they make is rendered once. It is immutable. The zero
// Template writes nothing.
type Template struct{ frame *frame }

// Prepare returns a Template for limits of these policies, of which it reads
// Name, Unit, Quota, Window and Algorithm.
func Prepare(style Style, policies ...Limit) Template {
	f := frameOf(style, policies)
	f.items = itemsOf(policies)
	return Template{&f}
}

// Set writes what Set writes for limits, which are those of the policies that t
// was prepared for, known by their Name, in any order, the tightest first.
func (t Template) Set(h http.Header, limits ...Limit) {
	if t.frame != nil {
		t.frame.set(h, limits)
	}
}

// wholeSeconds returns d in seconds. ok is false unless it is a whole number of
// them, at least 1.
func wholeSeconds(d time.Duration) (seconds int64, ok bool) {
	return int64(d / time.Second), d >= time.Second && d%time.Second == 0
}
