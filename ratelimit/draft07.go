package ratelimit

import "slices"

// appendPolicies07 appends RateLimit-Policy of draft-07, section 3.5, a List: 100;w=60.
// It appends nothing if no policy can be written.
func appendPolicies07(b []byte, policies []Limit) []byte {
	var written []int64 // the draft forbids two policies with the same quota
	for i := range policies {
		p := &policies[i]
		w, ok := wholeSeconds(p.Window)
		quota := min(max(p.Quota, 0), maxInteger)
		if !ok || slices.Contains(written, quota) {
			continue
		}
		b = appendInteger(separate(b, len(written)), quota)
		b = appendAlgorithm(appendInteger(append(b, ";w="...), w), p.Algorithm)
		written = append(written, quota)
	}
	return b
}

// appendState07 appends RateLimit of draft-07, section 3.1, a Dictionary: limit=100,
// remaining=42, reset=35.
func appendState07(b []byte, l *Limit) []byte {
	b = appendInteger(append(b, "limit="...), l.Quota)
	b = appendInteger(append(b, ", remaining="...), l.Remaining)
	return appendInteger(append(b, ", reset="...), ceilSeconds(l.Reset))
}
