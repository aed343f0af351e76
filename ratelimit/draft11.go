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

// state11 renders RateLimit of draft-11, section 4, a List: "default";r=42;t=17.
func (x *text) state11(b []byte, limits []Limit) []byte {
	for i := range limits {
		l := &limits[i]
		b = append(appendName(separate(b, i), l.Name), ";r="...)
		if i == 0 {
			b = x.remaining.integer(b, l.Remaining) // of the tightest
		} else {
			b = appendInteger(b, l.Remaining)
		}
		if l.Next > 0 {
			b = appendInteger(append(b, ";t="...), ceilSeconds(l.Next))
		}
	}
	x.state.to = len(b)
	return b
}

// separate appends what stands before member i of a list.
func separate(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ", "...)
}
