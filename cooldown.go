package heed

import (
	"fmt"
	"slices"
	"time"

	"github.com/heedhttp/heed/internal/cool"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// A coolKey is one of the keys whose cool-downs apply to a request, with the request's permit.
type coolKey struct {
	hostkey.Name
	permit cool.Permit
	from   *cool.CoolDown // what gave the permit
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
func (c *call) waitFor(k *coolKey, d *cool.CoolDown, since time.Duration) error {
	begin := now()
	left, limit := c.left(begin)
	w := &cool.Waiter{
		Attempts: c.number, Called: c.start, Since: since, MaxWait: c.policy.maxWait(),
		Deadline: cool.After(begin, left-beforeDeadline), Wake: make(chan struct{}, 1),
		LastAttempt: c.policy.Backoff == nil && c.lastAttempt(), Ended: c.ended,
	}
	if !d.Join(w, begin) {
		return c.overdue(k, d.ClosedFor(since), 0, limitLine)
	}
	defer func() { d.Leave(w, now()) }()
	for {
		now := now()
		p := d.Ask(w, now)
		switch {
		case p.Permit.Given():
			k.permit, k.from = p.Permit, d
			return nil
		case p.Late && c.probe(k, d, now):
			return nil
		case p.Late && p.OverMaxWait:
			return c.overdue(k, p.Wait, c.policy.maxWait(), limitMaxWait)
		case p.Late:
			left, _ := c.left(now)
			return c.overdue(k, p.Wait, left, limit)
		}
		c.traceCooled(k, d, now, p)
		if p.Next && c.t.sharedBoard() != nil {
			p.AskAgain = min(p.AskAgain, time.Second) // for all: another process may have opened the key
		}
		if err := c.sleep(p.AskAgain, w.Wake); err != nil {
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
		if k := &c.coolKeys[i]; k.permit.Given() && !k.permit.Probe && k.from.Stale(k.permit) {
			k.permit = cool.Permit{}
		}
	}
}

// hasPermit reports whether the current attempt has waited for a cool-down.
func (c *call) hasPermit() bool {
	return c.coolKeys[0].permit.Given() || c.coolKeys[1].permit.Given()
}

// readEvery is how often a waiter reads the shared Board at most.
const readEvery = 10 * time.Millisecond

// beforeDeadline is how long before its deadline a waiter gives up, so that it returns an
// OverdueError rather than the context's error.
const beforeDeadline = time.Millisecond

// closed returns the key that is closed for longest and its coolDown, or nil. It skips keys for
// which there is a permit.
func (c *call) closed(now time.Duration) (key *coolKey, closed *cool.CoolDown) {
	if c.t.sharedBoard() == nil && !c.mayHaveCoolDown(now) {
		return nil, nil
	}
	longest := time.Duration(-1)
	for i := range c.keys() {
		k := &c.coolKeys[i]
		if k.permit.Given() {
			continue
		}
		c.readBoard(k)
		if d := c.find(k); d != nil && !d.Open(c.req, now) {
			if left := d.ClosedFor(now); left > longest {
				key, closed, longest = k, d, left
			}
		}
	}
	return key, closed
}

// mayHaveCoolDown reports whether a key of the request may have a CoolDown. If not, the key need not be
// computed. It costs a few nanoseconds.
func (c *call) mayHaveCoolDown(now time.Duration) bool {
	return c.server != nil && c.t.localBoard().used.Load() && (c.t.Key != nil || c.server.until.Load() > int64(now))
}

// find returns a key's coolDown, or nil.
func (c *call) find(k *coolKey) *cool.CoolDown { return c.t.localBoard().find(k.Name) }

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
		} else if p := c.profile(); p != nil && !c.t.lacking.Load() && p.Scope.Lacks(c.req) && !c.t.lacking.Swap(true) {
			c.traceDegraded(fmt.Errorf("heed: %s limits each model separately, and the body of a %s request does not "+
				"tell the model: a refusal holds back all requests of its credential", p.Title, c.req.Method))
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
		b.get(k.Name, now, wait).Follow(now, wait, every, replaceable && err == nil)
	} else if d := b.find(k.Name); d != nil && replaceable && err == nil {
		d.Follow(now, 0, 0, true)
	}
}

// probe reports whether the request, which would otherwise be refused, may be sent as a probe
// although the key is closed.
func (c *call) probe(k *coolKey, d *cool.CoolDown, now time.Duration) bool {
	if c.t.localBoard().NoProbes || !d.Probe(now) {
		return false
	}
	if b, ok := c.t.sharedBoard().(ProbeBoard); ok && !b.Probe(c.req.Context(), k.Key) {
		return false
	}
	k.permit, k.from = d.PermitProbe(), d
	return true
}

// post closes the key for wait, here and on a shared Board. After a probe this replaces what was
// posted before. exact says that the server means it.
func (c *call) post(k *coolKey, wait time.Duration, i cool.Interval, probe, exact bool) {
	b := c.t.localBoard()
	wait = min(wait, cool.LongestCoolDown)
	// The shared Board comes first: otherwise a Read in between would bring back its older state.
	shared := c.t.sharedBoard()
	var err error
	if p, ok := shared.(ProbeBoard); ok && probe {
		err = p.Replace(c.req.Context(), k.Key, wait, i.Every())
	} else if shared != nil && wait > 0 {
		err = shared.Post(c.req.Context(), k.Key, wait, i.Every())
	}
	if err != nil {
		c.traceDegraded(fmt.Errorf("heed: Transport.Board: %w", err))
	}
	d := b.get(k.Name, c.ended, wait)
	if probe {
		d.Replace(c.ended, wait, i)
	} else {
		d.Post(c.ended, wait, i)
	}
	if exact {
		d.Confirm(c.ended + wait)
	}
	if shared != nil && err == nil {
		d.Shared()
	}
}

// traceCooled reports a wait for a cool-down, as far as it exceeds the waits reported before. It
// does so once for each closure.
func (c *call) traceCooled(k *coolKey, d *cool.CoolDown, now time.Duration, p cool.Position) {
	w := &c.pending
	if w.tracedCoolDown == d && w.tracedRound == p.Round {
		return
	}
	w.tracedCoolDown, w.tracedRound = d, p.Round
	more := now + p.Wait - max(now, w.tracedUntil)
	w.cooled = w.cooled || more > 0 || w.cause == 0
	if more <= 0 {
		return
	}
	w.tracedUntil = now + p.Wait
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

// overdue returns the error of a request that would wait too long for a cool-down. If it is unknown how long,
// a second is the least that a caller should wait.
func (c *call) overdue(k *coolKey, wait, left time.Duration, limit string) error {
	if wait <= 0 {
		wait = time.Second
	}
	err := &OverdueError{
		Key: k.Key, Wait: wait, Left: left, Deadline: limit == limitDeadline, Cause: CauseCoolDown, Limit: limit,
	}
	c.traceRefused(err)
	return err
}

// cooledMeanwhile reports whether a cool-down or an outage began while the Pacer delayed the request.
func (c *call) cooledMeanwhile() bool {
	for i := range c.coolKeys[:c.keyCount] {
		switch k := &c.coolKeys[i]; {
		case k.permit.Probe:
			return false
		case k.permit.Given():
			c.readBoard(k)
			if k.from.Stale(k.permit) {
				return true
			}
		}
	}
	_, d := c.closed(now())
	return d != nil || !c.hostWait.permit.Given() && c.held()
}

// learn reports a to the cool-downs of the request's keys.
func (c *call) learn(a *Attempt) {
	refused, hinted := a.throttled(), a.hintedThrottle()
	c.freeRetry = hinted || a.dial
	if a.exhausted() && a.hint > 0 {
		refused, hinted = true, true // for others
	}
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
	about := last // the key that a refusal concerns
	if hinted && a.accountWide {
		about = 0 // without a hint only the request's own scope is throttled
	}
	for i := range c.coolKeys[:c.keyCount] {
		if refused && (i != about || a.requestOnly) {
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
	short := own && hinted && !p.Probe && c.short(a)
	k.permit = cool.Permit{}
	if p.Probe && k.from.Stale(p) {
		p = cool.Permit{} // a newer closure replaced the probed one
	}
	if d := c.find(k); d != nil && hinted {
		c.freeRetry = d.Free(c.sent)
	} else if d != nil && a.good() {
		d.Good(c.ended)
	}
	d := c.coolDownFor(k, p, own && refused && (!hinted || short))
	var answer cool.Answer
	if d != nil { // the route costs an allocation
		answer = cool.Answer{
			Route: scope.Route(c.req), Attempt: c.number, Sent: c.sent, Good: a.good(),
			Failed: a.Err != nil, Refused: refused, Unhinted: refused && !hinted, Short: short,
		}
	}
	switch {
	case short && d.ByChance(answer, c.ended):
	case hinted && own:
		c.post(k, a.hint, cool.IntervalOf(a.Response.Header), p.Probe, c.exact(a))
	case hinted:
		c.post(k, a.hint, cool.Interval{}, p.Probe, c.exact(a)) // the response's fields describe the scope, not this key
	case p.Probe && a.Response != nil && !refused:
		c.post(k, 0, cool.Interval{}, true, false)
	}
	if p.Given() {
		b.extendHost(k.Name, c.ended, 0) // the line may last longer than the posted wait
	}
	if d == nil {
		return
	}
	if p.Given() && a.Response != nil && !refused {
		answer.Limits = ratelimit.Parse(a.Response.Header, time.Time{})
	}
	throttled := d.Answer(p, answer, c.ended)
	c.freeRetry = c.freeRetry || throttled && refused
}

// short reports whether a refusal's hint is so short that the refusal may have come by chance: from one node
// of many, or because too many requests were under way for a moment. Where a field says that nothing is left,
// or a Profile knows the host, it did not; nor where nobody was answered well lately.
func (c *call) short(a *Attempt) bool {
	return a.hint <= longestShort && c.server.goodSince(c.ended-lately) && !nothingLeft(a) && c.profile() == nil
}

const (
	longestShort = 2 * time.Second
	lately       = 10 * time.Second
)

// exact reports whether the server means a refusal's hint, so that no probe is needed.
func (c *call) exact(a *Attempt) bool {
	p := c.profile()
	return p != nil && p.Exact || nothingLeft(a)
}

// nothingLeft reports whether a field says that a quota is used up.
func nothingLeft(a *Attempt) bool {
	return slices.ContainsFunc(ratelimit.Parse(a.Response.Header, time.Time{}),
		func(l ratelimit.Limit) bool { return l.Remaining == 0 })
}

// profile returns what is known of the host's vendor, or nil.
func (c *call) profile() *ratelimit.Profile {
	b := c.t.localBoard()
	if b == nil {
		b = &c.t.board // there are no cool-downs, but there are vendors
	}
	return b.scopes.Profile(c.host, c.policy.Profiles)
}

// coolDownFor returns the coolDown that an answer is reported to, or nil. byChance says that the answer is a
// refusal that may have come by chance, which creates one.
func (c *call) coolDownFor(k *coolKey, p cool.Permit, byChance bool) *cool.CoolDown {
	if p.Given() {
		return k.from
	}
	if d := c.find(k); d != nil && d.Learning() {
		return d
	}
	if !byChance {
		return nil
	}
	return c.t.localBoard().get(k.Name, c.ended, time.Minute)
}

// cooling is how long the cool-downs of the request's keys still last. contended says that others with these
// keys were answered well since the call began.
func (c *call) cooling() (left time.Duration, contended bool) {
	if !c.mayHaveCoolDown(c.ended) {
		return 0, false
	}
	for i := range c.keys() {
		if d := c.find(&c.coolKeys[i]); d != nil && !d.Open(c.req, c.ended) {
			left, contended = max(left, d.ClosedFor(c.ended)), contended || d.GoodSince(c.start)
		}
	}
	return left, contended
}

// returnPermits returns the permits of an attempt that the server has not answered.
func (c *call) returnPermits() {
	if w := &c.hostWait; w.permit.Given() {
		c.server.outage.Return(w.permit, now())
		w.permit = cool.Permit{}
	}
	for i := range c.coolKeys[:c.keyCount] {
		c.returnPermit(i)
	}
}

func (c *call) returnPermit(i int) {
	if k := &c.coolKeys[i]; k.permit.Given() {
		k.from.Return(k.permit, now())
		k.permit = cool.Permit{}
	}
}
