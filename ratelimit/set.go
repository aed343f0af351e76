package ratelimit

import (
	"net/http"
	"time"
)

// Set writes limits into h as the header fields of style. Put the tightest limit first.
// Without limits it writes nothing.
//
//	ratelimit.Set(w.Header(), ratelimit.Draft11|ratelimit.XRateLimit, limits...)
//
// The lists of Draft11 and Draft07 contain all limits, after those that h has already, so
// that the policies of an outer limiter stay visible. All other fields describe limits[0]
// and replace what h has.
//
// Every style writes the same numbers:
//
//   - limit is Quota, remaining is Remaining;
//   - t of Draft11 is Next in seconds, rounded up: when nothing is left, the Retry-After
//     of a request that costs one unit. Set omits it if Next is 0;
//   - reset is At+Reset, when all of the quota is left again, rounded up to a second;
//   - qu and pk, which only Draft11 has, are Unit and Partition;
//   - w is Window in seconds. Set omits it if Window is not a whole number of seconds,
//     because a rounded one would announce another rate. Draft07 requires w and then
//     omits the policy. It also omits a second policy with the same Quota, which the
//     draft forbids;
//   - heed-algorithm, a parameter that other clients ignore, is Algorithm, if known.
//
// A name becomes a String of RFC 9651, with quotes and backslashes escaped. Bytes other
// than printable ASCII are percent-encoded: é becomes %C3%A9.
func Set(h http.Header, style Style, limits ...Limit) {
	Prepare(style, limits...).Set(h, limits...)
}

// A Template is a faster Set for limits whose policies do not change: it renders
// RateLimit-Policy once.
//
//	template := ratelimit.Prepare(ratelimit.Draft11, policies...) // once
//	template.Set(w.Header(), limits...)                           // for each response
//
// A Template is immutable. The zero Template writes nothing.
type Template struct {
	style    Style  // the effective one
	policies string // the value of RateLimit-Policy; may be empty in Draft07
}

// Prepare returns a Template for limits with these policies. It uses Name, Unit, Quota,
// Window and Algorithm.
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

// Set writes what the function Set writes. limits belong to the policies that t was
// prepared for, the tightest first.
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

// write puts the lines into h. Their values share one array, but each has a capacity of
// one, so that appending to one does not overwrite the next.
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

// following returns the one line after those that there are.
func following(lines, line []string) []string {
	if len(lines) == 0 {
		return line
	}
	return append(lines, line[0])
}

// A values says where the value of each field ends in a common text. One text needs one
// allocation.
type values struct {
	names [7]string // no style has more
	ends  [7]int
	n     int
}

// add records that the value of field name ends at the end of text, and returns text.
func (v *values) add(name string, text []byte) []byte {
	v.names[v.n], v.ends[v.n] = name, len(text)
	v.n++
	return text
}

// triple appends the three fields for l.
func (v *values) triple(text []byte, names *triple, l *Limit, reset int64) []byte {
	text = v.add(names.limit, appendInteger(text, l.Quota))
	text = v.add(names.remaining, appendInteger(text, l.Remaining))
	return v.add(names.reset, appendInteger(text, reset))
}

// unixReset returns the Unix time at which all of l's quota is left.
func unixReset(l *Limit) int64 {
	wait := max(l.Reset, 0)
	part := wait%time.Second + time.Duration(l.At.Nanosecond()) // separately, because the sum of all might overflow
	return l.At.Unix() + int64(wait/time.Second) + ceilSeconds(part)
}
