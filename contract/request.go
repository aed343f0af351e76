package contract

// A request is one logical request: what the caller of a client asked for
// once, in one or more attempts. The numbers are positions in the log.
type request struct {
	attempts  []int
	named     bool // by an Idempotency-Key or X-Request-Id
	ambiguous bool // it may as well be another attempt of a request before it
}

// A story is a log put in order.
type story struct {
	log       []Exchange
	events    []event
	requests  []*request
	of        []*request // by position in the log
	ambiguous bool       // at least one request is
}

// An identity is what the attempts of one logical request have in common.
type identity struct {
	kind byte // 'i': Idempotency-Key, 'r': X-Request-Id, 'c': content
	key, name,
	method, url, body, caller string
}

// byIdempotencyKey is the rule by which exchanges form requests.
func byIdempotencyKey(e *Exchange) identity {
	if name := e.idempotencyKey(); name != "" {
		return identity{kind: 'i', key: e.key(), name: name}
	}
	return byRequestID(e)
}

// byRequestID is the same rule blind to the Idempotency-Key where there is
// another name: it shows a key that changes from attempt to attempt.
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

// A group is everything of one identity.
type group struct {
	current    *request
	open       int  // attempts without an answer
	concurrent bool // two of them were open at the same time
	failed     bool // there is a failure that the next attempt may repeat
}

// read puts log in order.
//
// An Idempotency-Key names one request, whatever happens. Other identities are
// used again and again: a new request starts where nothing before has failed;
// what follows a failure repeats it, unless the group was ever concurrent. Then
// nobody can tell, and the request is ambiguous.
func read(log []Exchange, identify func(*Exchange) identity) *story {
	s := &story{log: log, events: events(log), of: make([]*request, len(log))}
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

func (g *group) join(s *story, i int, kind byte) {
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
