package ratelimit

// stateless is a Limit of whose state nothing is known.
var stateless = Limit{Remaining: -1, Next: unknown, Reset: unknown}

// readStates reads RateLimit, of draft-08 to draft-11, or else of draft-07. If it is
// malformed, there are none. Of more than mostStates the first ones are read.
func readStates(dst []Limit, lines []string) []Limit {
	s, n := structured{in: combine(lines)}, len(dst)
	for len(dst)-n < mostStates && s.next() {
		dst = append(dst, stateless)
		s.state(&dst[len(dst)-1])
	}
	if !s.failed {
		return dst
	}
	if l, ok := readState07(s.in); ok {
		return append(dst[:n], l)
	}
	return dst[:n]
}

// state reads "default";r=42;t=17, and what the next draft calls them: a is what is
// available, w the effective window, and c what the request cost. A server on its way
// from one to the other sends both: then the stricter counts.
func (s *structured) state(l *Limit) {
	item := s.bareItem()
	var r, t, a, w, c, pk bareItem
	for key, more := s.parameter(); more; key, more = s.parameter() {
		switch value := s.value(); key {
		case "r":
			r = value
		case "t":
			t = value
		case "a":
			a = value
		case "w":
			w = value
		case "c":
			c = value
		case "pk":
			pk = value
		}
	}
	s.failed = s.failed || item.kind != aString || r.kind == absent && a.kind == absent
	l.Name, l.Partition = s.text(item), s.bytes(pk)
	l.Remaining = s.count(r, -1)
	l.Next = s.seconds(t, unknown)
	if a.kind == absent && w.kind == absent && c.kind == absent {
		return // as today's have it
	}
	if left := s.count(a, -1); l.Remaining < 0 || 0 <= left && left < l.Remaining {
		l.Remaining = left
	}
	l.Next = max(l.Next, s.seconds(w, unknown))
	l.Cost = s.count(c, 0)
}

// readState07 reads limit=100, remaining=42, reset=17. Of these only remaining may be
// missing.
func readState07(value string) (l Limit, ok bool) {
	var limit, remaining, reset bareItem
	s := structured{in: value}
	for s.next() {
		key := s.key()
		switch value := s.member(); key {
		case "limit":
			limit = value
		case "remaining":
			remaining = value
		case "reset":
			reset = value
		}
	}
	l = stateless
	l.Quota, l.Remaining, l.Reset = s.count(limit, 0), s.count(remaining, -1), s.seconds(reset, unknown)
	return l, !s.failed && limit.kind != absent && reset.kind != absent
}
