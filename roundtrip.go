package heed

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// epoch is long before any clock reading, outside a synctest bubble or inside,
// where time starts in the year 2000: so now is always positive. Add, and not
// AddDate, because it keeps the monotonic reading.
var epoch = time.Now().Add(-60 * 365 * 24 * time.Hour)

// now reads the monotonic clock, at half the cost of time.Now.
func now() time.Duration { return time.Since(epoch) }

// A call is one RoundTrip. It lives on the stack, which is why nothing keeps a
// pointer to it.
type call struct {
	t      *Transport
	req    *http.Request
	policy *RetryPolicy
	traces []*Trace        // of the context
	drain  context.Context // when it ends, nothing waits any more; nil if there is none
	start  time.Duration
	host   hostkey.Name // the budget's key

	named  bool          // keys are computed
	keyed  int           // how many of them there are
	cool   [2]coolKey    // what cool-downs apply to: all requests of the credential, and those of the request's scope
	paced  *http.Request // whose outcome the Pacer waits for, in the present attempt
	traced time.Duration // the end of the wait that was traced
	waited *coolDown     // for which this was
	round  int           // and its round

	out    outgoing
	number int            // of the present attempt, or the last one
	sent   time.Duration  // when it was sent
	ended  time.Duration  // and when it was over
	resp   *http.Response // its outcome, as far as there is one
	err    error
	last   Attempt // the same for others to see, once it was observed
	open   bool    // whether resp's body is still this call's to close
	kept   kept    // what the caller gets if the retry cannot be sent
	errs   []error // what the attempts failed with
	paid   bool    // the present retry was withdrawn
	free   bool    // the next one costs no budget
	timer  *time.Timer
}

// A coolKey is a key that the request waits for, and its permit for the present attempt.
type coolKey struct {
	hostkey.Name
	permit permit
}

// RoundTrip sends req, and sends it again as Retry says. It returns the last
// response as it came, its body unread, with a nil error: whatever its status, a
// response is never turned into an error. It returns an error if there is no
// response at all, an *OverdueError if req may not wait for its turn, and the
// context's error, among others, if the caller gave up.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		return t.base().RoundTrip(req) // which knows what to say, and closes the body
	}
	c := call{t: t, req: req, policy: &t.Retry, start: now(), host: hosts.Name(req.URL.Scheme, req.URL.Host)}
	c.override()
	defer c.cleanUp()
	c.deposit()
	for {
		if err := c.admit(); err != nil {
			return c.giveUp(err)
		}
		if err := c.send(); err != nil {
			return c.giveUp(err)
		}
		c.observe()
		verdict, wait := c.decide()
		if verdict != Again {
			return c.finish(verdict)
		}
		if err := c.pause(wait); err != nil {
			return c.giveUp(err)
		}
	}
}

// override goes by what the context says instead of the Transport.
func (c *call) override() {
	if o, ok := c.req.Context().Value(overridesKey{}).(*overrides); ok {
		if o.retry != nil {
			p := o.retry(c.t.Retry)
			c.policy = &p
		}
		c.traces = o.traces
		if c.req.Response == nil { // not after a redirect
			c.drain = o.drain
		}
	}
	c.out.policy = c.policy
	if c.policy.IdempotencyKey != nil && !idempotent(c.req) {
		c.out.key = c.policy.IdempotencyKey(c.req)
	}
}

// deposit spares a LocalBudget a clock reading of its own.
func (c *call) deposit() {
	if b := c.t.localBudget(); b != nil {
		b.deposit(c.host, c.start)
		return
	}
	c.t.Budget.Deposit(c.req.Context(), c.host.Key)
}

// admit waits until the next attempt may be sent: for the cool-down of its key, for its
// turn at the Pacer, and for a cool-down that began meanwhile.
func (c *call) admit() error {
	since := c.start
	if c.out.given {
		since = now()
	}
	for {
		if err := c.drained(); err != nil {
			return err
		}
		if err := c.coolDown(since); err != nil || c.t.Pacer == nil {
			return err
		}
		if err := c.pace(since); err != nil {
			return err
		}
		if !c.cooledMeanwhile() {
			return c.drained()
		}
		c.unused()
	}
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

// pace waits for the request's turn at the Pacer, for what is left of its MaxWait.
func (c *call) pace(since time.Duration) error {
	began := now()
	most, limit := c.policy.maxWait(), limitMaxWait
	if c.permitted() {
		most = max(0, most-(began-since))
	}
	if left := c.elapsedLeft(began); left < most {
		most, limit = left, limitMaxElapsed
	}
	paced, release := c.whilePaced()
	err := paceAtMost(c.t.Pacer, paced, most)
	release()
	if err != nil && cancelled(c.req) == nil && c.drained() != nil {
		return c.drained()
	}
	if err != nil {
		return c.refusedByPacer(err, began, most, limit)
	}
	c.paced = paced
	if c.t.Trace == nil && c.traces == nil {
		return nil
	}
	req, wait := c.req, now()-began
	c.allTraces(func(trace *Trace) {
		if trace.Paced != nil {
			trace.Paced(req, wait)
		}
	})
	return nil
}

// refusedByPacer traces the error of a Pacer, and returns it. An OverdueError gets the
// cause, and the limit that the wait is longer than.
func (c *call) refusedByPacer(err error, began, most time.Duration, limit string) error {
	var overdue *OverdueError
	if !errors.As(err, &overdue) || overdue == nil {
		c.traceRefused(&OverdueError{Key: c.host.Key, Cause: CausePace, Err: err})
		return err
	}
	e := *overdue
	e.Cause = CausePace
	switch spent := most - e.Left; {
	case e.Deadline:
		e.Limit = limitDeadline
	case 0 <= spent && spent <= now()-began:
		e.Limit = limit // of which the Pacer has used some
	}
	if err != error(overdue) {
		e.Err = err
		c.traceRefused(&e)
		return err
	}
	c.traceRefused(&e)
	return &e
}

// left is the time before the context's deadline, or within MaxElapsed if that
// is less; limit says which.
func (c *call) left(now time.Duration) (left time.Duration, limit string) {
	left = c.elapsedLeft(now)
	if deadline, ok := c.req.Context().Deadline(); ok {
		if d := time.Until(deadline); d <= left {
			return max(0, d), limitDeadline
		}
	}
	return left, limitMaxElapsed
}

func (c *call) elapsedLeft(now time.Duration) time.Duration {
	return max(0, c.policy.maxElapsed()-(now-c.start))
}

// timeLeft is how long an attempt that is sent now may take; 0 if there is no bound.
func (c *call) timeLeft() time.Duration {
	left, _ := c.left(now())
	if d := c.policy.AttemptTimeout; d > 0 {
		left = min(left, d)
	}
	if left > longestElapsed {
		return 0
	}
	return max(left, time.Millisecond)
}

// longestElapsed is what no bound is longer than.
const longestElapsed = 1 << 31 * time.Second

// send makes the attempt.
func (c *call) send() error {
	var timeLeft time.Duration
	if c.policy.TellServer {
		timeLeft = c.timeLeft()
	}
	out, err := c.out.next(c.req, c.number+1, timeLeft)
	if err != nil {
		return err
	}
	c.sent = c.start
	if c.out.given || c.paced != nil || c.permitted() {
		c.sent = now()
	}
	waited := time.Duration(0)
	if c.out.given {
		waited = c.sent - c.ended
		c.kept.discard()
		c.paid = false
	}
	c.number++
	c.out.given = true
	c.last = Attempt{Number: c.number, Request: c.req, Waited: waited, givenUps: givenUps.Load()}
	if d := c.policy.AttemptTimeout; d > 0 {
		c.resp, c.err = roundTripWithin(c.t.base(), out, d)
	} else {
		c.resp, c.err = c.t.base().RoundTrip(out)
	}
	c.resp, c.err = proper(c.req, out, c.resp, c.err)
	c.open = c.resp != nil
	return nil
}

// proper makes sure that there is either a response or an error. The response's Request
// is what Base sent, unless that is out, which may be a copy of heed's own: then it is req.
func proper(req, out *http.Request, resp *http.Response, err error) (*http.Response, error) {
	switch {
	case err != nil && resp != nil && resp.Body != nil:
		resp.Body.Close()
		return nil, err
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errNoResult
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	if resp.Request == nil || resp.Request == out {
		resp.Request = req
	}
	return resp, nil
}

// observe tells the Pacer, the cool-down and the Board what came of the attempt.
func (c *call) observe() {
	c.ended = now()
	a := &c.last
	a.Response, a.Err, a.Took, a.Elapsed = c.resp, c.err, c.ended-c.sent, c.ended-c.start
	a.most, a.keyed = int32(min(c.policy.maxAttempts(), math.MaxInt32)), c.out.key != ""
	if c.err != nil {
		c.errs = append(c.errs[max(0, len(c.errs)-maxCauses+1):], sent(c.err))
	}
	c.tellPacer(*a)
	c.policy.readHint(a)
	c.learn(a)
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

// decide returns what follows from the attempt.
func (c *call) decide() (Verdict, time.Duration) {
	if !c.policy.worthwhile(&c.last) || c.last.givenUp() {
		c.decided(Final, 0)
		return Final, 0
	}
	left, limit := c.left(c.ended)
	if c.drained() != nil {
		left, limit = 0, limitDrain
	}
	verdict, wait := c.policy.decide(&c.last, circumstances{
		replayable: c.out.replayable(c.req), cooling: c.cooling(), free: c.free, left: left, withdraw: c.withdraw,
	})
	if verdict == Again && !c.out.takeBack() {
		c.refund()
		verdict = NotReplayable
	}
	c.last.limit = limitOf(verdict, limit)
	c.last.Cause = c.last.cause(verdict, wait)
	c.decided(verdict, wait)
	return verdict, wait
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

func (c *call) withdraw() bool {
	c.paid = c.t.budgetOrOwn().Withdraw(c.req.Context(), c.host.Key)
	return c.paid
}

func (c *call) refund() {
	if c.paid {
		c.paid = false
		c.t.budgetOrOwn().Refund(c.req.Context(), c.host.Key)
	}
}

// pause waits before the next attempt. The wait for a cool-down is left to its
// line, where the request keeps its place meanwhile.
func (c *call) pause(wait time.Duration) error {
	c.traced = c.ended + wait
	if c.open {
		c.open = false
		c.kept = keep(c.resp, &c.t.draining, c.stoppedTimer)
	}
	if c.cooling() >= wait-(now()-c.ended) {
		return cancelled(c.req)
	}
	return c.sleep(c.ended+wait+c.jitter(wait)-now(), nil)
}

// jitter is what comes on top of a hint. It leaves the attempt half of the time that
// is left after the wait.
func (c *call) jitter(wait time.Duration) time.Duration {
	if c.last.hint == 0 {
		return 0
	}
	left, _ := c.left(c.ended)
	return min(uniform(jitterWindow(c.last.hint)), max(0, left-wait)/2)
}

// sleep waits for d or until woken. It returns why the caller gave up, or why it is to wait
// no longer.
func (c *call) sleep(d time.Duration, wake <-chan struct{}) error {
	if d <= 0 {
		return cancelled(c.req)
	}
	c.stoppedTimer().Reset(d)
	select {
	case <-c.timer.C:
	case <-wake:
	case <-c.req.Context().Done():
	case <-cancelOf(c.req):
	case <-c.draining():
	}
	if err := cancelled(c.req); err != nil {
		return err
	}
	return c.drained()
}

// stoppedTimer is the one timer of all waits of the call.
func (c *call) stoppedTimer() *time.Timer {
	if c.timer == nil {
		c.timer = time.NewTimer(time.Hour)
		c.timer.Stop()
	}
	return c.timer
}

// finish returns what the last attempt ended with.
func (c *call) finish(v Verdict) (*http.Response, error) {
	c.out.finish()
	if c.resp != nil && v != Final && c.policy.maxAttempts() > 1 {
		giveUpOn(c.resp)
	}
	// The server is up, and has room for more.
	if c.err == nil && c.resp.StatusCode < 500 && !c.last.throttled() {
		c.reportSuccess()
	}
	c.open = false
	if c.err != nil && c.number > 1 && !errors.Is(c.err, http.ErrSkipAltProtocol) {
		return nil, gaveUp(c.number, c.errs)
	}
	return c.resp, c.err
}

func (c *call) reportSuccess() {
	if b := c.t.localBudget(); b != nil {
		b.success(c.host, c.ended)
	} else if b, ok := c.t.Budget.(SuccessBudget); ok {
		b.Success(c.req.Context(), c.host.Key)
	}
}

// giveUp returns what there is when an attempt cannot be sent: the response of
// the one before it, unless the caller gave up, or else err, with what the
// attempts failed with.
func (c *call) giveUp(err error) (*http.Response, error) {
	c.unused()
	c.refund()
	c.out.finish()
	switch {
	case !c.out.given:
		return nil, unsent(err)
	case cancelled(c.req) == nil && c.kept.resp != nil:
		giveUpOn(c.kept.resp)
		return c.kept.response(), nil
	}
	return nil, stopped(c.last, sent(err), c.errs)
}

// unused gives back the turn of an attempt that was admitted and not sent.
func (c *call) unused() {
	c.tellPacer(Attempt{Number: c.number + 1, Err: ErrNotSent})
	c.returnPermits()
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

// tellPacer has the Pacer observe a, if it let the attempt go: with the request that it
// knows.
func (c *call) tellPacer(a Attempt) {
	if c.paced == nil {
		return
	}
	a.Request, c.paced = c.paced, nil
	c.t.Pacer.Observe(a)
}

// cleanUp closes what is still open, and gives back what was not used: after a
// panic in a hook, too. When all went well there is nothing but a timer.
func (c *call) cleanUp() {
	if !c.out.given && c.req.Body != nil {
		c.req.Body.Close()
	}
	if c.open {
		c.resp.Body.Close()
	}
	if c.kept.resp != nil {
		c.kept.discard()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.out.finish()
	c.unused()
	c.refund()
}
