package heed

import (
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// A coolKey is a key that the request waits for, and its permit for the present attempt.
type coolKey struct {
	hostkey.Name
	permit permit
}

// coolDown waits in the lines of the request's keys that are closed: first where it takes
// longest, so that it keeps nobody up in a line while it waits in another.
func (c *call) coolDown(since time.Duration) error {
	k, d := c.closed(since)
	for d != nil {
		if err := c.waitFor(k, d, since); err != nil {
			return err
		}
		if c.keyed == 1 {
			return nil
		}
		c.dropStale()
		k, d = c.closed(now())
	}
	return nil
}

// waitFor waits in the line of a key.
func (c *call) waitFor(k *coolKey, d *coolDown, since time.Duration) error {
	begin := now()
	left, limit := c.left(begin)
	w := &waiter{
		attempts: c.number, called: c.start, since: since, most: c.policy.maxWait(),
		bound: after(begin, left-beforeDeadline), wake: make(chan struct{}, 1),
	}
	if !d.join(w, begin) {
		return c.overdue(k, d.closedFor(since), 0, limitLine)
	}
	defer d.leave(w)
	for {
		now := now()
		t := d.ask(w, now)
		switch {
		case t.permit.c != nil:
			k.permit = t.permit
			return nil
		case t.late && c.probe(k, d, now):
			return nil
		case t.late && t.most:
			return c.overdue(k, t.wait, c.policy.maxWait(), limitMaxWait)
		case t.late:
			left, _ := c.left(now)
			return c.overdue(k, t.wait, left, limit)
		}
		c.cooled(k, d, now, t)
		if c.t.sharedBoard() != nil {
			t.again = min(t.again, time.Second) // others may have opened the key
		}
		if err := c.sleep(t.again, w.wake); err != nil {
			return err
		}
		if time.Since(epoch)-now >= readEvery {
			c.readBoard(k)
		}
	}
}

// dropStale forgets the permits of keys that were closed since.
func (c *call) dropStale() {
	for i := range c.cool[:c.keyed] {
		if k := &c.cool[i]; k.permit.c != nil && !k.permit.probe && k.permit.stale() {
			k.permit = permit{}
		}
	}
}

// permitted reports that the present attempt has met a cool-down.
func (c *call) permitted() bool { return c.cool[0].permit.c != nil || c.cool[1].permit.c != nil }

// readEvery is how often a waiter reads the Board, however often it is woken.
const readEvery = 10 * time.Millisecond

// beforeDeadline is how long before its deadline a waiter gives up: so the error is an
// OverdueError, and not the context's.
const beforeDeadline = time.Millisecond

// closed returns the key that is closed for longest, of those for which there is no permit, and
// its coolDown, or nil.
func (c *call) closed(now time.Duration) (key *coolKey, closed *coolDown) {
	if c.t.sharedBoard() == nil && !c.touched(now) {
		return nil, nil
	}
	longest := time.Duration(-1)
	for i := range c.keys() {
		k := &c.cool[i]
		if k.permit.c != nil {
			continue
		}
		c.readBoard(k)
		if d := c.find(k); d != nil && !d.open(c.req, now) {
			if left := d.closedFor(now); left > longest {
				key, closed, longest = k, d, left
			}
		}
	}
	return key, closed
}

// touched reports whether a key of the request may have a coolDown. It costs a few
// nanoseconds.
func (c *call) touched(now time.Duration) bool {
	b := c.t.localBoard()
	return b != nil && b.used.Load() && (c.t.Key != nil || b.touched(c.host, now))
}

// find returns a key's coolDown, or nil.
func (c *call) find(k *coolKey) *coolDown { return c.t.localBoard().find(k.Name) }

// keys are what cool-downs of this request apply to. There are none if there are no
// cool-downs, or if Transport.Key says so.
func (c *call) keys() []coolKey {
	if c.named {
		return c.cool[:c.keyed]
	}
	c.named = true
	b := c.t.localBoard()
	switch {
	case b == nil:
	case c.t.Key != nil:
		if key := c.t.Key(c.req); key != "" {
			c.cool[0].Name, c.keyed = hostkey.NameOf(key), 1
		}
	default:
		key := ByCredential(c.req)
		c.cool[0].Name, c.keyed = hostkey.NameOf(key), 1
		if scope := b.scopes.Of(c.req, c.host, c.policy.Profiles); scope != "" {
			c.cool[1].Name, c.keyed = hostkey.NameOf(key+" "+scope), 2
		}
	}
	return c.cool[:c.keyed]
}

// readBoard learns what others have posted, if there is a Board that others post to.
func (c *call) readBoard(k *coolKey) {
	shared := c.t.sharedBoard()
	if shared == nil {
		return
	}
	wait, every, err := shared.Read(c.req.Context(), k.Key)
	if err != nil {
		c.degraded(err)
	}
	_, replaceable := shared.(ProbeBoard)
	if b, now := c.t.localBoard(), now(); wait > 0 || every > 0 {
		b.get(k.Name, now, wait).follow(now, wait, every, replaceable && err == nil)
	} else if d := b.find(k.Name); d != nil && replaceable && err == nil {
		d.follow(now, 0, 0, true)
	}
}

// probe lets the request go although a key is closed, to see whether it is still meant:
// one that would be refused now has nothing to lose.
func (c *call) probe(k *coolKey, d *coolDown, now time.Duration) bool {
	if !d.probe(now) {
		return false
	}
	if b, ok := c.t.sharedBoard().(ProbeBoard); ok && !b.Probe(c.req.Context(), k.Key) {
		return false
	}
	k.permit = d.permitProbe()
	return true
}

// post lets everybody know that a key is to be left alone for so long, or, after a
// probe, that this holds instead of what was told before.
func (c *call) post(k *coolKey, wait time.Duration, i interval, probe bool) {
	b := c.t.localBoard()
	wait = min(wait, longestCoolDown)
	every := time.Duration(0)
	if i.believed {
		every = i.every
	}
	// The shared Board first: a reading in between would look like an older state.
	shared := c.t.sharedBoard()
	var err error
	if p, ok := shared.(ProbeBoard); ok && probe {
		err = p.Replace(c.req.Context(), k.Key, wait, every)
	} else if shared != nil && wait > 0 {
		err = shared.Post(c.req.Context(), k.Key, wait, every)
	}
	if err != nil {
		c.degraded(err)
	}
	d := b.get(k.Name, c.ended, wait)
	if probe {
		d.replace(c.ended, wait, i)
	} else {
		d.post(c.ended, wait, i)
	}
	d.posted(shared != nil && err == nil)
}

// cooled traces a wait for a cool-down, as far as it goes beyond what was traced: once for
// each closure.
func (c *call) cooled(k *coolKey, d *coolDown, now time.Duration, t standing) {
	if c.waited == d && c.round == t.round {
		return
	}
	c.waited, c.round = d, t.round
	more := now + t.wait - max(now, c.traced)
	if more <= 0 {
		return
	}
	c.traced = now + t.wait
	if c.t.Trace == nil && c.traces == nil {
		return
	}
	req, key := c.req, k.Key
	c.allTraces(func(trace *Trace) {
		if trace.Cooled != nil {
			trace.Cooled(req, key, more)
		}
	})
}

// overdue is the error of a request that would wait too long for a cool-down.
func (c *call) overdue(k *coolKey, wait, left time.Duration, limit string) error {
	err := &OverdueError{Key: k.Key, Wait: wait, Left: left, Limit: limit, Cause: CauseCoolDown, Deadline: limit == limitDeadline}
	c.traceRefused(err)
	return err
}

// cooledMeanwhile reports that a cool-down began while the Pacer held the request back.
func (c *call) cooledMeanwhile() bool {
	for i := range c.cool[:c.keyed] {
		switch k := &c.cool[i]; {
		case k.permit.probe:
			return false
		case k.permit.c != nil:
			c.readBoard(k)
			if k.permit.stale() {
				return true
			}
		}
	}
	_, d := c.closed(now())
	return d != nil
}

// learn has the cool-downs of the request's keys learn from a.
func (c *call) learn(a *Attempt) {
	refused, hinted := a.throttled(), a.hintedThrottle()
	c.free = hinted
	b := c.t.localBoard()
	if b == nil {
		return
	}
	if c.t.Key == nil && a.Response != nil && b.scopes.Learn(c.req, c.host, a.Response.Header, c.policy.Profiles) {
		c.named = false // the request has another key now, though its permit is of the old one
	}
	if !c.permitted() && !refused && !c.touched(c.ended) {
		return
	}
	if cancelled(c.req) != nil || a.Response != nil && ratelimit.FromCache(a.Response.Header) {
		c.returnPermits() // it says nothing of the server
		return
	}
	last := len(c.keys()) - 1 // the index of the key that a refusal is about
	about, one := last, false
	if refused {
		var all bool
		if all, one = c.refusalScope(a, hinted); all {
			about = 0
		}
	}
	for i := range c.cool[:c.keyed] {
		if refused && (i != about || one) {
			c.returnPermit(i) // the refusal says nothing of this key
		} else {
			c.learnOf(i, a, refused, hinted, i == last)
		}
	}
}

// learnOf has one cool-down learn from an answer. Only that of the request's own
// scope searches for the rate of a throttle.
func (c *call) learnOf(i int, a *Attempt, refused, hinted, own bool) {
	k, b := &c.cool[i], c.t.localBoard()
	p := k.permit
	k.permit = permit{}
	if p.probe && p.stale() {
		p = permit{} // others have heard since
	}
	switch {
	case hinted && own:
		c.post(k, a.hint, intervalOf(a.Response.Header), p.probe)
	case hinted:
		c.post(k, a.hint, interval{}, p.probe) // the fields are those of the scope
	case p.probe && a.Response != nil && !refused:
		c.post(k, 0, interval{}, true)
	}
	if p.c != nil {
		b.touch(k.Name, c.ended, 0) // a line may live for longer than what was posted
	}
	d := c.learner(p, k, own && refused && !hinted)
	if d == nil {
		return
	}
	answer := answer{route: scope.Route(c.req), sent: c.sent, failed: a.Err != nil, refused: refused, plain: refused && !hinted}
	if p.c != nil && a.Response != nil && !refused {
		answer.limits = ratelimit.Parse(a.Response.Header, time.Time{})
	}
	throttled := d.answer(p, answer, c.ended)
	c.free = c.free || throttled && refused
}

// refusalScope reports whether a refusal is about all requests of the credential, whatever
// their scope, or about this one request.
func (c *call) refusalScope(a *Attempt, hinted bool) (all, one bool) {
	switch {
	case !hinted: // without a hint it is throttled where it was refused
		return false, a.own
	case a.judged:
		return a.all, a.own
	}
	p := c.t.localBoard().scopes.Profile(c.host, c.policy.Profiles)
	if p == nil {
		return false, false
	}
	answer := p.Judge(a.Response.StatusCode, a.Response.Header, nil, time.Time{})
	return answer.All, answer.Own
}

// learner returns the coolDown of a key that is to know of an answer, nil if none is. A
// refusal that says nothing more begins one.
func (c *call) learner(p permit, k *coolKey, plain bool) *coolDown {
	if p.c != nil {
		return p.c
	}
	if d := c.find(k); d != nil && d.state.Load() != stateOpen {
		return d
	}
	if !plain {
		return nil
	}
	d := c.t.localBoard().get(k.Name, c.ended, countFor)
	d.startCounting()
	return d
}

// cooling is what is left of the cool-downs of the request's keys.
func (c *call) cooling() (left time.Duration) {
	if !c.touched(c.ended) {
		return 0
	}
	for i := range c.keys() {
		if d := c.find(&c.cool[i]); d != nil && !d.open(c.req, c.ended) {
			left = max(left, d.closedFor(c.ended))
		}
	}
	return left
}

// returnPermits gives back the permits of an attempt that the server has not answered.
func (c *call) returnPermits() {
	for i := range c.cool[:c.keyed] {
		c.returnPermit(i)
	}
}

func (c *call) returnPermit(i int) {
	if k := &c.cool[i]; k.permit.c != nil {
		k.permit.c.unused(k.permit)
		k.permit = permit{}
	}
}
