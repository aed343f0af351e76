package contract

// A request is what the caller of a client asked for once. It has one or more attempts, which are
// indexes into the log.
type request struct {
	attempts  []int
	named     bool // it has an Idempotency-Key or X-Request-Id
	ambiguous bool // it may be another attempt of an earlier request
}

// A parsedLog is a log sorted into requests.
type parsedLog struct {
	log       []Exchange
	events    []event
	requests  []*request
	of        []*request // by index into the log
	ambiguous bool       // at least one request is ambiguous
}

// An identity is what the attempts of one request have in common.
type identity struct {
	kind byte // 'i': Idempotency-Key, 'r': X-Request-Id, 'c': content
	key, name,
	method, url, body, caller string
}

// byIdempotencyKey is the usual rule that sorts exchanges into requests.
func byIdempotencyKey(e *Exchange) identity {
	if name := e.idempotencyKey(); name != "" {
		return identity{kind: 'i', key: e.key(), name: name}
	}
	return byRequestID(e)
}

// byRequestID ignores the Idempotency-Key if there is another name, so that a key which changes
// between attempts is noticed.
func byRequestID(e *Exchange) identity {
	id := identity{kind: 'r', key: e.key(), name: e.Header.Get("X-Request-Id"), method: e.Method, url: e.URL}
	switch {
	case id.name != "":
		return id
	case e.idempotencyKey() != "":
		return identity{kind: 'i', key: e.key(), name: e.idempotencyKey()}
	}
	id.kind, id.body, id.caller = 'c', e.BodySHA256, e.Header.Get("Authorization")
	return id
}

// A group is all exchanges of one identity.
type group struct {
	current    *request
	open       int  // attempts without an answer
	concurrent bool // two of them were open at the same time
	failed     bool // there is a failure that the next attempt may repeat
}

// parseLog sorts log into requests.
//
// An Idempotency-Key always names one request. Other identities occur again: a new request begins
// unless the one before failed, and what follows a failure repeats it. If requests of the group
// ever overlapped, that is unknown, and the request is ambiguous.
func parseLog(log []Exchange, identify func(*Exchange) identity) *parsedLog {
	s := &parsedLog{log: log, events: events(log), of: make([]*request, len(log))}
	groups := make(map[identity]*group)
	member := make([]*group, len(log))
	for _, ev := range s.events {
		g := member[ev.i]
		if g == nil {
			id := identify(&log[ev.i])
			if g = groups[id]; g == nil {
				g = &group{}
				groups[id] = g
			}
			member[ev.i] = g
			g.join(s, ev.i, id.kind)
		}
		if ev.answer {
			g.end(log[ev.i].failed())
		}
	}
	return s
}

func (g *group) join(s *parsedLog, i int, kind byte) {
	repeats := g.current != nil && (kind == 'i' || g.failed)
	if !repeats || g.concurrent && kind != 'i' {
		g.current = &request{named: kind != 'c', ambiguous: repeats}
		s.requests = append(s.requests, g.current)
		s.ambiguous = s.ambiguous || repeats
	}
	g.current.attempts = append(g.current.attempts, i)
	s.of[i] = g.current
	if g.open++; g.open > 1 {
		g.concurrent = true
	}
}

func (g *group) end(failed bool) {
	g.open--
	g.failed = failed || g.failed && g.concurrent
}
