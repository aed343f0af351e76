package ratelimit

import (
	"strings"
	"time"
)

// fields are what a response has of each family.
type fields struct {
	families         uint // a bit for each triple
	states, policies []string
}

// quotas appends the quotas that the fields announce. Unless all is set, it reads only
// what a wait needs: Remaining, Next and Reset. A response from a cache has none, because
// its numbers are out of date.
func (r *reader) quotas(dst []Limit, all bool) []Limit {
	var found fields
	first := len(dst)
	for name, lines := range r.header {
		switch f := familyOf(name); f {
		case noFamily:
		case ageField:
			if age(lines) > 0 {
				return dst[:first]
			}
		case dimensionFields:
			if len(dst)-first < mostStates {
				dst = r.dimension(dst, name, all)
			}
		case stateField:
			found.states = lines
		case policyField:
			found.policies = lines
		default:
			found.families |= 1 << f
		}
	}
	switch {
	case found.families == 0 && found.states == nil && found.policies == nil:
		return dst
	case all:
		return r.described(dst, &found)
	}
	dst = readStates(dst, found.states)
	for _, t := range triples {
		if found.families>>t.family&1 == 1 {
			dst = append(dst, r.triple(t.names))
		}
	}
	return dst
}

// described appends the quotas of all fields but dimensions, with the policies, including
// those without a state.
func (r *reader) described(dst []Limit, found *fields) []Limit {
	var space [2]policy
	first, policies := len(dst), readPolicies(space[:0], found.policies)
	dst = readStates(dst, found.states)
	describe(dst[first:], policies)
	for _, t := range triples {
		if found.families == 0 { // as with most responses that have states
			break
		}
		if found.families>>t.family&1 == 0 {
			continue
		}
		l := r.triple(t.names)
		policies = l.readQuota(policies, r.header[t.names.limit])
		if l == stateless || merged(dst[first:], &l) {
			continue
		}
		dst = append(dst, l)
		describe(dst[len(dst)-1:], policies)
	}
	return unstated(dst, policies)
}

// readQuota reads the quota, and the window and the other policies that some servers put
// after it: 10, 10;w=1, 1000;w=3600 in draft-03.
func (l *Limit) readQuota(policies []policy, lines []string) []policy {
	if len(lines) == 0 {
		return policies
	}
	n := len(policies)
	if read := readPolicies(policies, lines[:1]); len(read) > n && !read[n].named {
		l.Quota, l.Window, l.Algorithm = read[n].Quota, read[n].Window, read[n].Algorithm
		return append(read[:n], read[n+1:]...)
	}
	l.Quota = max(leftOf(lines[:1]).least, 0)
	return policies
}

// merged reports whether one of limits is the same quota as l in another dialect, and if
// so completes that one from l.
func merged(limits []Limit, l *Limit) bool {
	for i := range limits[:min(len(limits), mostPolicies)] {
		m := &limits[i]
		if m.Quota == l.Quota && l.Quota > 0 && m.Remaining == l.Remaining && l.Remaining >= 0 &&
			(m.Reset == unknown || l.Reset == unknown || (m.Reset-l.Reset).Abs() <= time.Second) &&
			(m.Window == 0 || l.Window == 0 || m.Window == l.Window) {
			m.Window, m.Reset = max(m.Window, l.Window), max(m.Reset, l.Reset)
			return true
		}
	}
	return false
}

// triple reads Remaining and Reset.
func (r *reader) triple(names *triple) Limit {
	l := stateless
	l.Remaining = leftOf(r.header[names.remaining]).least
	l.Reset = r.longest(r.header[names.after], interval)
	if l.Reset == unknown {
		l.Reset = r.longest(r.header[names.reset], reset)
	}
	return l
}

// An amount is what the lines of a field say is left.
type amount struct {
	least    int64 // rounded down; -1 if no line is a number
	sentinel bool  // whether a line is negative, which means a quota that is not in force
}

// leftOf reads lines such as 42, 598.0, or 20;w=21600.
func leftOf(lines []string) amount {
	all := amount{least: -1}
	for _, line := range lines {
		if end := strings.IndexAny(line, ";,"); end >= 0 {
			line = line[:end]
		}
		line = trim(line)
		all.sentinel = all.sentinel || strings.HasPrefix(line, "-")
		d, rest, ok := cutDecimal(line)
		if !ok || rest != "" {
			continue
		}
		if n := d.floor(); all.least < 0 || n < all.least {
			all.least = n
		}
	}
	return all
}
