package ratelimit

// appendPolicies11 appends RateLimit-Policy of draft-11, section 3, a List:
// "default";q=100;w=60.
func appendPolicies11(b []byte, policies []Limit) []byte {
	for i := range policies {
		p := &policies[i]
		b = appendName(separate(b, i), p.Name)
		b = appendInteger(append(b, ";q="...), p.Quota)
		if w, ok := wholeSeconds(p.Window); ok {
			b = appendInteger(append(b, ";w="...), w)
		}
	}
	return b
}

// appendLimits11 appends RateLimit of draft-11, section 4, a List:
// "default";r=42;t=17.
func appendLimits11(b []byte, limits []Limit) []byte {
	for i := range limits {
		l := &limits[i]
		b = appendName(separate(b, i), l.Name)
		b = appendInteger(append(b, ";r="...), l.Remaining)
		if l.Next > 0 {
			b = appendInteger(append(b, ";t="...), ceilSeconds(l.Next))
		}
	}
	return b
}

// separate appends what stands before member i of a list.
func separate(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ", "...)
}
