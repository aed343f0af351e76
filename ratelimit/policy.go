package ratelimit

import "time"

// A policy is what the fields say about a quota apart from its state.
type policy struct {
	Name, Unit, Partition string
	Quota                 int64
	Window                time.Duration
	Algorithm             string
	named                 bool // whether it has a name; before draft-08 its quota identifies it
	stated                bool // whether a state of it was found
}

// limit returns p as a Limit without a state.
func (p *policy) limit() Limit {
	l := stateless
	l.Name, l.Unit, l.Partition = p.Name, p.Unit, p.Partition
	l.Quota, l.Window, l.Algorithm = p.Quota, p.Window, p.Algorithm
	return l
}

// No server sends as many. Matching policies with states takes quadratic time, and so
// looks at mostPolicies of each.
const (
	mostPolicies = 64
	mostStates   = 1024 // of a field, or of dimensions
)

// readPolicies reads RateLimit-Policy of draft-08 to draft-11, or the Integers of earlier
// drafts. A malformed field has no policies. It reads at most mostPolicies.
func readPolicies(dst []policy, lines []string) []policy {
	s, n := structured{in: combine(lines)}, len(dst)
	for len(dst) < mostPolicies && s.next() {
		dst = append(dst, policy{})
		s.policy(&dst[len(dst)-1])
	}
	if s.failed {
		return dst[:n]
	}
	return dst
}

// policy reads "default";q=100;w=60, or 100;w=60. The last of repeated parameters counts,
// and unknown ones are ignored.
func (s *structured) policy(p *policy) {
	item := s.bareItem()
	var q, w int64 = missing, missing
	var qu, pk bareItem
	for key, more := s.parameter(); more; key, more = s.parameter() {
		switch value := s.value(); key {
		case "q":
			q = value.count()
		case "qu":
			qu = value
		case "w":
			w = value.count()
		case "pk":
			pk = value
		case "heed-algorithm":
			p.Algorithm = value.algorithm()
		}
	}
	p.Window, s.failed = seconds(w, 0), s.failed || w == malformed
	if p.named = item.kind == aString; !p.named {
		p.Quota = item.count()
		s.failed = s.failed || p.Quota == malformed
		return
	}
	p.Name, p.Unit, p.Partition = s.text(item), s.text(qu), s.bytes(pk)
	if p.Unit == "requests" {
		p.Unit = ""
	}
	p.Quota = q
	s.failed = s.failed || q < 0
}

// of reports whether l is a state of p. A state without a name is matched by its quota.
func (p *policy) of(l *Limit) bool {
	if l.Name == "" && l.Quota > 0 {
		return l.Quota == p.Quota && (l.Window == 0 || l.Window == p.Window) && !(p.named && p.stated)
	}
	return p.named && l.Name == p.Name && (p.Partition == "" || l.Partition == "" || l.Partition == p.Partition)
}

// describe completes states with the facts of their policies.
func describe(states []Limit, policies []policy) {
	for i := range policies {
		p := &policies[i]
		for j := range states[:min(len(states), mostPolicies)] {
			if l := &states[j]; p.of(l) {
				l.Name, l.Unit, l.Quota, l.Window, l.Algorithm = p.Name, p.Unit, p.Quota, p.Window, p.Algorithm
				p.stated = true
			}
		}
	}
}

// unstated appends the policies without a known state.
func unstated(dst []Limit, policies []policy) []Limit {
	for i := range policies {
		if !policies[i].stated {
			dst = append(dst, policies[i].limit())
		}
	}
	return dst
}
