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
	Prepare(style, limits...).Set(h, limits...)
}

// A Template is Set for limits of which only the state changes: what RateLimit-Policy
// says is rendered once. It is immutable. The zero Template writes nothing.
type Template struct {
	style    Style  // the effective one
	policies string // what RateLimit-Policy says; may be empty in Draft07
}

// Prepare returns a Template for limits of these policies, of which it reads
// Name, Unit, Quota, Window and Algorithm.
func Prepare(style Style, policies ...Limit) Template {
	t := Template{style: style.effective()}
	var space [128]byte
	switch {
	case t.style&Draft11 != 0:
		t.policies = string(appendPolicies11(space[:0], policies))
	case t.style&Draft07 != 0:
		t.policies = string(appendPolicies07(space[:0], policies))
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
	text, tightest := space[:0], &limits[0]
	var v values
	switch {
	case t.style&Draft11 != 0:
		text = v.add("Ratelimit", appendStates11(text, limits))
	case t.style&Draft07 != 0:
		text = v.add("Ratelimit", appendState07(text, tightest))
	}
	if t.style&Draft06 != 0 {
		text = v.triple(text, &draft06, tightest, ceilSeconds(tightest.Reset))
	}
	if t.style&XRateLimit != 0 {
		text = v.triple(text, &xRateLimit, tightest, unixReset(tightest))
	}
	if t.style&XRateLimitDelta != 0 {
		text = v.triple(text, &xRateLimit, tightest, ceilSeconds(tightest.Reset))
	}
	t.write(h, &v, string(text))
}

// write puts the lines into h. Their values share one array, but each has a place
// of its own and a capacity of one, so that whoever changes one or appends to it
// leaves the others alone.
func (t *Template) write(h http.Header, v *values, text string) {
	from := 0
	lines := make([]string, v.n+1)
	for i, name := range v.names[:v.n] {
		lines[i], from = text[from:v.ends[i]], v.ends[i]
		line := lines[i : i+1 : i+1]
		if name == "Ratelimit" && t.style&Draft11 != 0 { // in Draft07 it is a Dictionary, not a List
			line = following(h[name], line)
		}
		h[name] = line
	}
	if t.policies != "" {
		lines[v.n] = t.policies
		h["Ratelimit-Policy"] = following(h["Ratelimit-Policy"], lines[v.n:])
	}
}

// following returns line, which is one, after those that there are.
func following(lines, line []string) []string {
	if len(lines) == 0 {
		return line
	}
	return append(lines, line[0])
}

// A values says where in a text those of some fields end. They are rendered into one, so
// that they are allocated together.
type values struct {
	names [7]string // no style has more
	ends  [7]int
	n     int
}

// add notes that the value of a field is the end of text, which it returns.
func (v *values) add(name string, text []byte) []byte {
	v.names[v.n], v.ends[v.n] = name, len(text)
	v.n++
	return text
}

// triple appends what the three fields say of l.
func (v *values) triple(text []byte, names *triple, l *Limit, reset int64) []byte {
	text = v.add(names.limit, appendInteger(text, l.Quota))
	text = v.add(names.remaining, appendInteger(text, l.Remaining))
	return v.add(names.reset, appendInteger(text, reset))
}

// unixReset returns the Unix time at which l is whole again.
func unixReset(l *Limit) int64 {
	wait := max(l.Reset, 0)
	part := wait%time.Second + time.Duration(l.At.Nanosecond()) // apart, since the sum of all might overflow
	return l.At.Unix() + int64(wait/time.Second) + ceilSeconds(part)
}
