package pace

import (
	"net/http"
	"slices"
	"time"

	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/ratelimit"
)

const (
	mostRoutes      = 256 // of a key, to be remembered
	mostPolicies    = 256 // of a key
	policiesOfRoute = 16  // the tightest in an answer
	mostUnits       = 16  // in which the policies of a key count

	// manyRoutes is how many routes must share a policy before a new route starts with
	// it, too: then the policy is the whole server's, and the paths contain identifiers.
	manyRoutes = 8
)

// An advertisedKey is the state of one key.
type advertisedKey struct {
	line
	first    first
	routes   map[string]*route
	answered int // routes that have had an answer
	policies map[policyID]*policy
	units    []string // of policies; append only
	flights  map[*http.Request]flight
}

// A route is a group of requests that share limits.
type route struct {
	gates    []gate // policies
	answered bool   // gates come from its own answers, not from all other routes
	waiting  int64  // requests in line
	underway int64  // requests that are not answered yet

	learnt map[string]*estimate // what they cost, by unit
}

// A flight is a request in flight.
type flight struct {
	at      time.Time // when it was sent
	route   *route
	costs   costs
	charges []charge
	next    *flight // of the same request, if it is in flight more than once
}

func (k *advertisedKey) stateLocked() keyed.State {
	if k.waiting.Len() > 0 || len(k.flights) > 0 || k.first.sent > 0 {
		return keyed.InUse
	}
	return keyed.IdleIf(len(k.policies) == 0)
}

// route returns the route called name, or a new one. known says that the vendor's Scope
// defines it, so it does not start with others' policies.
func (k *advertisedKey) route(name []byte, known bool) *route {
	if r := k.routes[string(name)]; r != nil {
		return r
	}
	for range 2 { // one for the new route, one in case there was one too many
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

// forgetRoute forgets some route without requests.
func (k *advertisedKey) forgetRoute() {
	for name, r := range k.routes {
		if r.waiting > 0 || r.underway > 0 {
			continue
		}
		delete(k.routes, name)
		if r.answered {
			k.answered--
			k.dropGates(r.gates)
		}
		return
	}
}

// dropGates takes a route out of the counts of its policies.
func (k *advertisedKey) dropGates(gates []gate) {
	for _, g := range gates {
		p := g.(*policy)
		if p.routes--; p.routes == 0 {
			delete(k.policies, p.id)
		}
	}
}

// markSent records that a request is in flight.
func (k *advertisedKey) markSent(req *http.Request, r *route, c *claim, charges []charge, now time.Time) {
	r.underway++
	f := flight{at: now, route: r, costs: c.costs, charges: charges}
	if _, ok := k.flights[req]; ok {
		same := k.flights[req] // declared here, because it escapes to the heap
		f.next = &same
	}
	k.flights[req] = f
}

// markDone removes a request from those in flight. If req is a copy, it removes any
// request of the route.
func (k *advertisedKey) markDone(req *http.Request, name []byte) (flight, bool) {
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

// learn updates the route of f from the answer to it.
func (k *advertisedKey) learn(f flight, limits []ratelimit.Limit, name string, status int, now time.Time) {
	var gates []gate
	// A policy without a state has only its numbers. They count if the answer has nothing
	// better.
	measured := slices.ContainsFunc(limits, func(l ratelimit.Limit) bool { return l.Remaining >= 0 })
	for i := range limits {
		if l := &limits[i]; useful(l) && (l.Remaining >= 0 || !measured) && len(gates) < policiesOfRoute {
			if p := k.policy(l, name, now); p != nil && !slices.Contains(gates, gate(p)) {
				p.learn(k.answer(&f, p, l, status), now)
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
		keep := !contradicts || g.(*policy).at.After(f.at) // f does not contradict later answers
		if r.answered && keep && !slices.Contains(gates, g) {
			gates = append(gates, g)
		}
	}
	if !r.answered || !sameGates(r.gates, gates) {
		k.setGates(r, gates, now)
	}
}

// setGates makes a route wait for these policies and no others.
func (k *advertisedKey) setGates(r *route, gates []gate, now time.Time) {
	for _, g := range gates {
		g.(*policy).routes++
	}
	if r.answered {
		k.dropGates(r.gates)
	} else {
		r.answered = true
		k.answered++
	}
	r.gates = gates
	if now.Sub(k.reviewed) > reviewAtMost {
		k.reviewed = time.Time{} // waiters may have to wait for other gates now
	}
}

func sameGates(a, b []gate) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(g gate) bool { return !slices.Contains(b, g) })
}

// answer returns what the answer to f says about p.
func (k *advertisedKey) answer(f *flight, p *policy, l *ratelimit.Limit, status int) answer {
	a := answer{Limit: l, sent: f.at, underway: p.underway, uncharged: f.route.underway}
	switch {
	case f.costs.known(l.Unit):
		a.own = f.costs.of(l.Unit)
	case l.Remaining >= 0 && status < 400: // what is refused costs nothing
		a.learnt = f.route.estimateOf(l.Unit)
		a.overtook = f.at.Before(p.sent)
		for _, g := range k.flights {
			a.overtook = a.overtook || g.route == f.route && !g.at.After(f.at)
		}
	}
	if l.Unit == "" {
		a.underway = max(a.underway, f.route.underway) // some were sent before p was known
	}
	a.later = a.underway
	for _, c := range f.charges {
		if c.gate == p {
			a.later, a.uncharged = max(0, p.sum-c.before-c.n), 0 // some may have been given back
		}
	}
	return a
}

// estimateOf returns the estimate of r in unit, to be read and corrected.
func (r *route) estimateOf(unit string) *estimate {
	if r.learnt[unit] == nil {
		if r.learnt == nil {
			r.learnt = map[string]*estimate{}
		}
		r.learnt[unit] = &estimate{}
	}
	return r.learnt[unit]
}

// addEstimates adds the estimates of r to those costs that need one.
func (r *route) addEstimates(c costs) {
	for i := range c {
		if c[i].estimated {
			c[i].learnt = r.estimateOf(c[i].unit)
		}
	}
}

// policy returns the policy that l describes, or nil if there are too many. name is the
// vendor's name for it.
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
