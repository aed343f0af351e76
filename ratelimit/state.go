package ratelimit

// stateless is a Limit whose state is unknown.
var stateless = Limit{Remaining: -1, Next: unknown, Reset: unknown}

// readStates reads RateLimit of draft-08 to draft-11, or else of draft-07. A malformed
// field has no states. It reads at most mostStates.
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

// state reads "default";r=42;t=17. The next draft renames the parameters: a is what is
// available, w the effective window, and c the cost of the request. If a server sends
// both names, the stricter value counts.
func (s *structured) state(l *Limit) {
	item := s.bareItem()
	var r, t, a, w, c int64 = missing, missing, missing, missing, missing
	var pk bareItem
	for key, more := s.parameter(); more; key, more = s.parameter() {
		switch value := s.value(); key {
		case "r":
			r = value.count()
		case "t":
			t = value.count()
		case "a":
			a = value.count()
		case "w":
			w = value.count()
		case "c":
			c = value.count()
		case "pk":
			pk = value
		}
	}
	l.Name, l.Partition = s.text(item), s.bytes(pk)
	l.Remaining, l.Next, l.Cost = max(r, a), seconds(max(t, w), unknown), max(c, 0)
	if r != missing && a != missing {
		l.Remaining = min(r, a)
	}
	s.failed = s.failed || item.kind != aString || l.Remaining == missing || min(r, t, a, w, c) == malformed
}

// readState07 reads limit=100, remaining=42, reset=17. Only remaining may be missing.
func readState07(value string) (l Limit, ok bool) {
	var limit, remaining, reset int64 = missing, missing, missing
	s := structured{in: value}
	for s.next() {
		key := s.key()
		switch value := s.member(); key {
		case "limit":
			limit = value.count()
		case "remaining":
			remaining = value.count()
		case "reset":
			reset = value.count()
		}
	}
	l = stateless
	l.Quota, l.Remaining, l.Reset = max(limit, 0), remaining, seconds(reset, unknown)
	return l, !s.failed && limit >= 0 && reset >= 0 && remaining != malformed
}
