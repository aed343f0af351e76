package heed

import (
	"fmt"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// A coolKey is one of the keys whose cool-downs apply to a request, with the request's permit.
type coolKey struct {
	hostkey.Name
	permit permit
}

// coolDown waits in the lines of the request's closed keys. It begins with the key that is closed
// for longest, so that the request does not block one line while it waits in another.
func (c *call) coolDown(since time.Duration) error {
	k, d := c.closed(since)
	for d != nil {
		if err := c.waitFor(k, d, since); err != nil {
			return err
		}
		if c.keyCount == 1 {
			return nil
		}
		c.dropStale()
		k, d = c.closed(now())
	}
	return nil
}

// waitFor waits in the line of one key.
func (c *call) waitFor(k *coolKey, d *coolDown, since time.Duration) error {
	begin := now()
	left, limit := c.left(begin)
	w := &waiter{
		attempts: c.number, called: c.start, since: since, maxWait: c.policy.maxWait(),
		deadline: after(begin, left-beforeDeadline), wake: make(chan struct{}, 1),
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
		case t.late && t.overMaxWait:
			return c.overdue(k, t.wait, c.policy.maxWait(), limitMaxWait)
		case t.late:
			left, _ := c.left(now)
			return c.overdue(k, t.wait, left, limit)
		}
		c.traceCooled(k, d, now, t)
		if c.t.sharedBoard() != nil {
			t.askAgain = min(t.askAgain, time.Second) // another process may have opened the key
		}
		if err := c.sleep(t.askAgain, w.wake); err != nil {
			return err
		}
		if time.Since(epoch)-now >= readEvery {
			c.readBoard(k)
		}
	}
}

// dropStale drops the permits of keys that were closed again.
func (c *call) dropStale() {
	for i := range c.coolKeys[:c.keyCount] {
		if k := &c.coolKeys[i]; k.permit.c != nil && !k.permit.probe && k.permit.stale() {
			k.permit = permit{}
		}
	}
}

// hasPermit reports whether the current attempt has waited for a cool-down.
func (c *call) hasPermit() bool {
	return c.coolKeys[0].permit.c != nil || c.coolKeys[1].permit.c != nil
}

// readEvery is how often a waiter reads the shared Board at most.
const readEvery = 10 * time.Millisecond

// beforeDeadline is how long before its deadline a waiter gives up, so that it returns an
// OverdueError rather than the context's error.
const beforeDeadline = time.Millisecond

// closed returns the key that is closed for longest and its coolDown, or nil. It skips keys for
// which there is a permit.
func (c *call) closed(now time.Duration) (key *coolKey, closed *coolDown) {
	if c.t.sharedBoard() == nil && !c.mayHaveCoolDown(now) {
		return nil, nil
	}
	longest := time.Duration(-1)
	for i := range c.keys() {
		k := &c.coolKeys[i]
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

// mayHaveCoolDown reports whether a key of the request may have a coolDown. It costs a few
// nanoseconds.
func (c *call) mayHaveCoolDown(now time.Duration) bool {
	b := c.t.localBoard()
	return b != nil && b.used.Load() && (c.t.Key != nil || b.mayHaveCoolDown(c.host, now))
}

// find returns a key's coolDown, or nil.
func (c *call) find(k *coolKey) *coolDown { return c.t.localBoard().find(k.Name) }

// keys returns the keys whose cool-downs apply to the request. There are none with NoBoard, or if
// Transport.Key returns "".
func (c *call) keys() []coolKey {
	if c.keysKnown {
		return c.coolKeys[:c.keyCount]
	}
	c.keysKnown = true
	b := c.t.localBoard()
	switch {
	case b == nil:
	case c.t.Key != nil:
		if key := c.t.Key(c.req); key != "" {
			c.coolKeys[0].Name, c.keyCount = hostkey.NameOf(key), 1
		}
	default:
		key := ByCredential(c.req)
		c.coolKeys[0].Name, c.keyCount = hostkey.NameOf(key), 1
		if scope := b.scopes.Of(c.req, c.host, c.policy.Profiles); scope != "" {
			c.coolKeys[1].Name, c.keyCount = hostkey.NameOf(key+" "+scope), 2
		}
	}
	return c.coolKeys[:c.keyCount]
}

// readBoard applies what a shared Board has, if there is one.
func (c *call) readBoard(k *coolKey) {
	shared := c.t.sharedBoard()
	if shared == nil {
		return
	}
	wait, every, err := shared.Read(c.req.Context(), k.Key)
	if err != nil {
		c.traceDegraded(fmt.Errorf("heed: Transport.Board: %w", err))
	}
	_, replaceable := shared.(ProbeBoard)
	if b, now := c.t.localBoard(), now(); wait > 0 || every > 0 {
		b.get(k.Name, now, wait).follow(now, wait, every, replaceable && err == nil)
	} else if d := b.find(k.Name); d != nil && replaceable && err == nil {
		d.follow(now, 0, 0, true)
	}
}

// probe reports whether the request, which would otherwise be refused, may be sent as a probe
// although the key is closed.
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

// post closes the key for wait, here and on a shared Board. After a probe this replaces what was
// posted before.
func (c *call) post(k *coolKey, wait time.Duration, i interval, probe bool) {
	b := c.t.localBoard()
	wait = min(wait, longestCoolDown)
	every := time.Duration(0)
	if i.confirmed {
		every = i.every
	}
	// The shared Board comes first: otherwise a Read in between would bring back its older state.
	shared := c.t.sharedBoard()
	var err error
	if p, ok := shared.(ProbeBoard); ok && probe {
		err = p.Replace(c.req.Context(), k.Key, wait, every)
	} else if shared != nil && wait > 0 {
		err = shared.Post(c.req.Context(), k.Key, wait, every)
	}
	if err != nil {
		c.traceDegraded(fmt.Errorf("heed: Transport.Board: %w", err))
	}
	d := b.get(k.Name, c.ended, wait)
	if probe {
		d.replace(c.ended, wait, i)
	} else {
		d.post(c.ended, wait, i)
	}
	d.posted(shared != nil && err == nil)
}

// traceCooled reports a wait for a cool-down, as far as it exceeds the waits reported before. It
// does so once for each closure.
func (c *call) traceCooled(k *coolKey, d *coolDown, now time.Duration, t position) {
	w := &c.pending
	if w.tracedCoolDown == d && w.tracedRound == t.round {
		return
	}
	w.tracedCoolDown, w.tracedRound = d, t.round
	more := now + t.wait - max(now, w.tracedUntil)
	w.cooled = w.cooled || more > 0 || w.cause == 0
	if more <= 0 {
		return
	}
	w.tracedUntil = now + t.wait
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

// overdue returns the error of a request that would wait too long for a cool-down.
func (c *call) overdue(k *coolKey, wait, left time.Duration, limit string) error {
	err := &OverdueError{
		Key: k.Key, Wait: wait, Left: left, Deadline: limit == limitDeadline, Cause: CauseCoolDown, Limit: limit,
	}
	c.traceRefused(err)
	return err
}

// cooledMeanwhile reports whether a cool-down began while the Pacer delayed the request.
func (c *call) cooledMeanwhile() bool {
	for i := range c.coolKeys[:c.keyCount] {
		switch k := &c.coolKeys[i]; {
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

// learn reports a to the cool-downs of the request's keys.
func (c *call) learn(a *Attempt) {
	refused, hinted := a.throttled(), a.hintedThrottle()
	c.freeRetry = hinted
	b := c.t.localBoard()
	if b == nil {
		return
	}
	if c.t.Key == nil && a.Response != nil && b.scopes.Learn(c.req, c.host, a.Response.Header, c.policy.Profiles) {
		c.keysKnown = false // the request has another key now; its permit belongs to the old one
	}
	if !c.hasPermit() && !refused && !c.mayHaveCoolDown(c.ended) {
		return
	}
	if cancelled(c.req) != nil || a.Response != nil && ratelimit.FromCache(a.Response.Header) {
		c.returnPermits() // the outcome says nothing about the server
		return
	}
	last := len(c.keys()) - 1
	about, requestOnly := last, false // about is the key that a refusal concerns
	if refused {
		var accountWide bool
		if accountWide, requestOnly = c.refusalScope(a, hinted); accountWide {
			about = 0
		}
	}
	for i := range c.coolKeys[:c.keyCount] {
		if refused && (i != about || requestOnly) {
			c.returnPermit(i) // the refusal does not concern this key
		} else {
			c.learnOf(i, a, refused, hinted, i == last)
		}
	}
}

// learnOf reports an answer to one cool-down. own says that the key is that of the request's own
// scope: only that one searches for a throttle's rate.
func (c *call) learnOf(i int, a *Attempt, refused, hinted, own bool) {
	k, b := &c.coolKeys[i], c.t.localBoard()
	p := k.permit
	k.permit = permit{}
	if p.probe && p.stale() {
		p = permit{} // a newer closure replaced the probed one
	}
	switch {
	case hinted && own:
		c.post(k, a.hint, intervalOf(a.Response.Header), p.probe)
	case hinted:
		c.post(k, a.hint, interval{}, p.probe) // the response's fields describe the scope, not this key
	case p.probe && a.Response != nil && !refused:
		c.post(k, 0, interval{}, true)
	}
	if p.c != nil {
		b.extendHost(k.Name, c.ended, 0) // the line may last longer than the posted wait
	}
	d := c.coolDownFor(p, k, own && refused && !hinted)
	if d == nil {
		return
	}
	answer := answer{
		route: scope.Route(c.req), sent: c.sent,
		failed: a.Err != nil, refused: refused, unhinted: refused && !hinted,
	}
	if p.c != nil && a.Response != nil && !refused {
		answer.limits = ratelimit.Parse(a.Response.Header, time.Time{})
	}
	throttled := d.answer(p, answer, c.ended)
	c.freeRetry = c.freeRetry || throttled && refused
}

// refusalScope reports whether a refusal concerns all requests of the credential, whatever their
// scope, or only this one request.
func (c *call) refusalScope(a *Attempt, hinted bool) (accountWide, requestOnly bool) {
	switch {
	case !hinted: // without a hint only the request's own scope is throttled
		return false, a.requestOnly
	case a.profiled:
		return a.accountWide, a.requestOnly
	}
	p := c.t.localBoard().scopes.Profile(c.host, c.policy.Profiles)
	if p == nil {
		return false, false
	}
	answer := p.Judge(a.Response.StatusCode, a.Response.Header, nil, time.Time{})
	return answer.All, answer.Own
}

// coolDownFor returns the coolDown that an answer is reported to, or nil. unhinted says that the
// answer is a refusal without a hint, which creates one.
func (c *call) coolDownFor(p permit, k *coolKey, unhinted bool) *coolDown {
	if p.c != nil {
		return p.c
	}
	if d := c.find(k); d != nil && d.state.Load() != stateOpen {
		return d
	}
	if !unhinted {
		return nil
	}
	d := c.t.localBoard().get(k.Name, c.ended, countFor)
	d.startCounting()
	return d
}

// cooling is how long the cool-downs of the request's keys still last.
func (c *call) cooling() (left time.Duration) {
	if !c.mayHaveCoolDown(c.ended) {
		return 0
	}
	for i := range c.keys() {
		if d := c.find(&c.coolKeys[i]); d != nil && !d.open(c.req, c.ended) {
			left = max(left, d.closedFor(c.ended))
		}
	}
	return left
}

// returnPermits returns the permits of an attempt that the server has not answered.
func (c *call) returnPermits() {
	for i := range c.coolKeys[:c.keyCount] {
		c.returnPermit(i)
	}
}

func (c *call) returnPermit(i int) {
	if k := &c.coolKeys[i]; k.permit.c != nil {
		k.permit.c.returnPermit(k.permit)
		k.permit = permit{}
	}
}
