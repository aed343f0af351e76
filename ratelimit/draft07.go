package ratelimit

// appendPolicies07 appends RateLimit-Policy of draft-07, section 3.5, a List:
// 100;w=60. It is empty if no policy can be told.
func appendPolicies07(b []byte, policies []Limit) []byte {
	members := 0
	for i := range policies {
		p := &policies[i]
		w, ok := wholeSeconds(p.Window)
		if !ok || told(policies[:i], p.Quota) {
			continue
		}
		b = appendInteger(separate(b, members), p.Quota)
		b = appendAlgorithm(appendInteger(append(b, ";w="...), w), p.Algorithm)
		members++
	}
	return b
}

// told reports whether one of policies was told with that quota.
func told(policies []Limit, quota int64) bool {
	for i := range policies {
		if _, ok := wholeSeconds(policies[i].Window); ok && clamp(policies[i].Quota) == clamp(quota) {
			return true
		}
	}
	return false
}

// state07 renders RateLimit of draft-07, section 3.1, a Dictionary: limit=100,
// remaining=42, reset=35.
func (x *text) state07(b []byte, l *Limit) []byte {
	b = appendInteger(append(b, "limit="...), l.Quota)
	b = x.remaining.integer(append(b, ", remaining="...), l.Remaining)
	b = appendInteger(append(b, ", reset="...), deltaReset(l))
	x.state.to = len(b)
	return b
}
