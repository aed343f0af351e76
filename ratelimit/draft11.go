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
func (x *text) state11(b []byte, f *frame, limits []Limit) []byte {
	for i := range limits {
		l := &limits[i]
		b = f.appendHead(separate(b, i), i, l.Name)
		from := len(b)
		b = appendInteger(b, l.Remaining)
		if i == 0 {
			x.remaining = piece{from, len(b)} // of the tightest
		}
		if l.Next > 0 {
			b = appendInteger(append(b, ";t="...), ceilSeconds(l.Next))
		}
	}
	x.state.to = len(b)
	return b
}

// appendHead appends how the member of the policy called name, which is told as
// the i-th, begins.
func (f *frame) appendHead(b []byte, i int, name string) []byte {
	if item := f.item(i, name); item != nil {
		return append(b, item.head...)
	}
	return appendHead(b, name)
}

func appendHead(b []byte, name string) []byte { return append(appendName(b, name), ";r="...) }

// separate appends what stands before member i of a list.
func separate(b []byte, i int) []byte {
	if i == 0 {
		return b
	}
	return append(b, ", "...)
}
