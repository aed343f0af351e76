package pace

import (
	"net/http"
	"slices"
	"time"

	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/ratelimit"
)

const (
	mostRoutes      = 256 // of a key that are remembered
	mostPolicies    = 256 // of a key
	policiesOfRoute = 16  // the tightest ones that an answer tells
	mostUnits       = 16  // that policies of a key are counted in

	// manyRoutes is how many routes must all be told of a policy before a new one is taken to
	// be bound by it, too: then it is one of the whole server, whose paths hold identifiers.
	manyRoutes = 8
)

// An advertisedKey is what is known of one key.
type advertisedKey struct {
	line
	routes   map[string]*route
	answered int // routes that have had an answer
	policies map[policyID]*policy
	units    []string // of policies; it is only ever appended to
	flights  map[*http.Request]flight
}

// A route is what is known of the limits of some requests.
type route struct {
	gates    []gate // policies
	answered bool   // gates are from answers of its own, not from those of all other routes
	waiting  int64  // requests in line
	underway int64  // requests that have not been answered
}

// A flight is a request under way.
type flight struct {
	at      time.Time // when it was sent
	route   *route
	costs   costs
	charges []charge
	next    *flight // of the same request, which is sent more than once at a time
}

func (k *advertisedKey) stateLocked() keyed.State {
	if k.waiting.Len() > 0 || len(k.flights) > 0 {
		return keyed.InUse
	}
	return keyed.IdleIf(len(k.policies) == 0)
}

// route returns the route of that name, a new one if there is none. known tells that it has
// limits of its own.
func (k *advertisedKey) route(name []byte, known bool) *route {
	if r := k.routes[string(name)]; r != nil {
		return r
	}
	for range 2 { // of which one is for what was too much before
		if len(k.routes) >= mostRoutes {
			k.forgetRoute()
		}
	}
	r := &route{}
	for _, p := range k.policies {
		if p.routes == k.answered && p.routes >= manyRoutes && !known {
			r.gates = append(r.gates, p)
		}
	}
	k.routes[string(name)] = r
	return r
}

// forgetRoute forgets any route that has no requests.
func (k *advertisedKey) forgetRoute() {
	for name, r := range k.routes {
		if r.waiting > 0 || r.underway > 0 {
			continue
		}
		delete(k.routes, name)
		if r.answered {
			k.answered--
			k.leavePolicies(r.gates)
		}
		return
	}
}

// leavePolicies counts that a route is no longer told of some policies.
func (k *advertisedKey) leavePolicies(gates []gate) {
	for _, g := range gates {
		p := g.(*policy)
		if p.routes--; p.routes == 0 {
			delete(k.policies, p.id)
		}
	}
}

// depart counts that a request is let go.
func (k *advertisedKey) depart(req *http.Request, r *route, c *claim, charges []charge, now time.Time) {
	r.underway++
	f := flight{at: now, route: r, costs: c.costs, charges: charges}
	if _, ok := k.flights[req]; ok {
		same := k.flights[req] // in the branch, since it goes to the heap
		f.next = &same
	}
	k.flights[req] = f
}

// arrive counts that a request is no longer under way: if a copy of it was sent, any of its
// route.
func (k *advertisedKey) arrive(req *http.Request, name []byte) (flight, bool) {
	f, ok := k.flights[req]
	if !ok {
		r := k.routes[string(name)]
		for other, g := range k.flights {
			if g.route == r {
				req, f, ok = other, g, true
				break
			}
		}
	}
	if f.next != nil {
		k.flights[req] = *f.next
	} else {
		delete(k.flights, req)
	}
	if ok {
		f.route.underway--
	}
	return f, ok
}

// learn takes over what f's answer tells of its route.
func (k *advertisedKey) learn(f flight, limits []ratelimit.Limit, name string, status int, now time.Time) {
	var gates []gate
	// Of a policy without its state only the numbers are known: they are kept where there is
	// nothing better.
	measured := slices.ContainsFunc(limits, func(l ratelimit.Limit) bool { return l.Remaining >= 0 })
	for i := range limits {
		if l := &limits[i]; useful(l) && (l.Remaining >= 0 || !measured) && len(gates) < policiesOfRoute {
			if p := k.policy(l, name, now); p != nil && !slices.Contains(gates, gate(p)) {
				p.learn(f.answer(p, l), now)
				gates = append(gates, p)
			}
		}
	}
	r := f.route
	contradicts := status < 500 && status != http.StatusTooManyRequests
	if len(gates) == 0 && (len(r.gates) == 0 && r.answered || !contradicts) {
		return
	}
	for _, g := range r.gates {
		stands := !contradicts || g.(*policy).at.After(f.at) // f says nothing of what was told later
		if r.answered && stands && !slices.Contains(gates, g) {
			gates = append(gates, g)
		}
	}
	if !r.answered || !sameGates(r.gates, gates) {
		k.enter(r, gates, now)
	}
}

// enter has a route be held back by some policies, and no others.
func (k *advertisedKey) enter(r *route, gates []gate, now time.Time) {
	for _, g := range gates {
		g.(*policy).routes++
	}
	if r.answered {
		k.leavePolicies(r.gates)
	} else {
		r.answered = true
		k.answered++
	}
	r.gates = gates
	if now.Sub(k.reviewed) > reviewAtMost {
		k.reviewed = time.Time{} // who waits may wait for others now
	}
}

func sameGates(a, b []gate) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(g gate) bool { return !slices.Contains(b, g) })
}

// answer is what f's answer tells of p.
func (f *flight) answer(p *policy, l *ratelimit.Limit) answer {
	a := answer{Limit: l, sent: f.at, own: f.costs.of(l.Unit), underway: p.underway}
	if l.Unit == "" {
		a.underway = max(a.underway, f.route.underway) // of which some were sent before p was known
	}
	a.later = a.underway
	for _, c := range f.charges {
		if c.gate == p {
			a.later = p.sum - c.before - c.n
		}
	}
	return a
}

// policy returns the policy that l is about, which the response calls by that name; nil if there
// are too many.
func (k *advertisedKey) policy(l *ratelimit.Limit, name string, now time.Time) *policy {
	id := policyID{l.Name, l.Unit, l.Partition, name, l.Quota, l.Window}
	p := k.policies[id]
	if p == nil && len(k.policies) < mostPolicies {
		p = &policy{id: id, last: now}
		k.policies[id] = p
		if !slices.Contains(k.units, l.Unit) && len(k.units) < mostUnits {
			k.units = append(k.units, l.Unit)
		}
	}
	return p
}
