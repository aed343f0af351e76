package heed

import (
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
	traces []*Trace // of the context
	start  time.Duration
	host   hostkey.Name // the budget's key

	cool   hostkey.Name  // the cool-down's key, once it was computed
	permit permit        // of the present attempt
	paced  bool          // the Pacer waits for the outcome of the present attempt
	traced time.Duration // the end of the wait that was traced
	round  int           // of the coolDown that this was for

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

// RoundTrip sends req, and sends it again as Retry says. It returns the last
// response as it came, its body unread, with a nil error: whatever its status, a
// response is never turned into an error. It returns an error if there is no
// response at all, an *OverdueError if req may not wait for its turn, and the
// context's error, among others, if the caller gave up.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		return t.base().RoundTrip(req) // which knows what to say, and closes the body
	}
	c := call{t: t, req: req, policy: &t.Retry, start: now(), round: -1, host: hosts.Name(req.URL.Scheme, req.URL.Host)}
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
		if err := c.coolDown(since); err != nil || c.t.Pacer == nil {
			return err
		}
		if err := c.pace(since); err != nil {
			return err
		}
		if !c.cooledMeanwhile() {
			return nil
		}
		c.unused()
	}
}

// coolDown waits in the line of the request's key, if that is closed.
func (c *call) coolDown(since time.Duration) error {
	d := c.closed(since)
	if d == nil {
		return nil
	}
	left, limit := c.left(since)
	w := &waiter{
		attempts: c.number, called: c.start, since: since, most: c.policy.maxWait(),
		bound: after(since, left-beforeDeadline), wake: make(chan struct{}, 1),
	}
	if !d.join(w, now()) {
		return c.overdue(d.closedFor(since), 0, limitLine)
	}
	defer d.leave(w)
	for {
		now := now()
		t := d.ask(w, now)
		switch {
		case t.permit.c != nil:
			c.permit = t.permit
			return nil
		case t.late && c.probe(d, now):
			return nil
		case t.late && t.most:
			return c.overdue(t.wait, c.policy.maxWait(), limitMaxWait)
		case t.late:
			left, _ := c.left(now)
			return c.overdue(t.wait, left, limit)
		}
		c.cooled(now, t)
		if c.t.sharedBoard() != nil {
			t.again = min(t.again, time.Second) // others may have opened the key
		}
		if err := c.sleep(t.again, w.wake); err != nil {
			return err
		}
		if time.Since(epoch)-now >= readEvery {
			c.readBoard()
		}
	}
}

// readEvery is how often a waiter reads the Board, however often it is woken.
const readEvery = 10 * time.Millisecond

// beforeDeadline is how long before its deadline a waiter gives up: so the error is an
// OverdueError, and not the context's.
const beforeDeadline = time.Millisecond

// closed returns the coolDown of the request's key if that is closed.
func (c *call) closed(now time.Duration) *coolDown {
	c.readBoard()
	if d := c.find(now); d != nil && !d.open(c.req, now) {
		return d
	}
	return nil
}

// find returns the coolDown of the request's key, or nil. A request to a host that never
// had one costs a few nanoseconds.
func (c *call) find(now time.Duration) *coolDown {
	b := c.t.localBoard()
	if b == nil || !b.used.Load() || c.t.Key == nil && !b.touched(c.host, now) {
		return nil
	}
	key := c.key()
	if key.Key == "" {
		return nil
	}
	return b.find(key)
}

// key is what a cool-down of this request applies to.
func (c *call) key() hostkey.Name {
	if c.cool.Hash == 0 {
		if c.t.Key != nil {
			c.cool = hostkey.NameOf(c.t.Key(c.req))
		} else {
			c.cool = hostkey.NameOf(ByCredential(c.req))
		}
	}
	return c.cool
}

// readBoard learns what others have posted, if there is a Board that others post to.
func (c *call) readBoard() {
	shared := c.t.sharedBoard()
	if shared == nil || c.key().Key == "" {
		return
	}
	wait, every, err := shared.Read(c.req.Context(), c.key().Key)
	if err != nil {
		c.degraded(err)
	}
	_, replaceable := shared.(ProbeBoard)
	if b, now := c.t.localBoard(), now(); wait > 0 || every > 0 {
		b.get(c.key(), now, wait).follow(now, wait, every, replaceable && err == nil)
	} else if d := b.find(c.key()); d != nil && replaceable && err == nil {
		d.follow(now, 0, 0, true)
	}
}

// probe lets the request go although its key is closed, to see whether it is still meant:
// one that would be refused now has nothing to lose.
func (c *call) probe(d *coolDown, now time.Duration) bool {
	if !d.probe(now) {
		return false
	}
	if b, ok := c.t.sharedBoard().(ProbeBoard); ok && !b.Probe(c.req.Context(), c.key().Key) {
		return false
	}
	c.permit = d.permitProbe()
	return true
}

// post lets everybody know that the key is to be left alone for so long, or, after a
// probe, that this holds instead of what was told before.
func (c *call) post(wait time.Duration, i interval, probe bool) {
	b := c.t.localBoard()
	if b == nil || c.key().Key == "" {
		return
	}
	wait = min(wait, longestCoolDown)
	every := time.Duration(0)
	if i.believed {
		every = i.every
	}
	// The shared Board first: a reading in between would look like an older state.
	shared := c.t.sharedBoard()
	var err error
	if p, ok := shared.(ProbeBoard); ok && probe {
		err = p.Replace(c.req.Context(), c.key().Key, wait, every)
	} else if shared != nil && wait > 0 {
		err = shared.Post(c.req.Context(), c.key().Key, wait, every)
	}
	if err != nil {
		c.degraded(err)
	}
	d := b.get(c.key(), c.ended, wait)
	if probe {
		d.replace(c.ended, wait, i)
	} else {
		d.post(c.ended, wait, i)
	}
	d.posted(shared != nil && err == nil)
}

// cooled traces a wait for a cool-down, as far as it goes beyond what was traced: once for
// each closure.
func (c *call) cooled(now time.Duration, t standing) {
	if c.round == t.round {
		return
	}
	c.round = t.round
	more := now + t.wait - max(now, c.traced)
	if more <= 0 {
		return
	}
	c.traced = now + t.wait
	if c.t.Trace == nil && c.traces == nil {
		return
	}
	req, key := c.req, c.key().Key
	c.allTraces(func(trace *Trace) {
		if trace.Cooled != nil {
			trace.Cooled(req, key, more)
		}
	})
}

// overdue is the error of a request that would wait too long for a cool-down.
func (c *call) overdue(wait, left time.Duration, limit string) error {
	err := &OverdueError{Key: c.key().Key, Wait: wait, Left: left, Limit: limit, Cause: CauseCoolDown, Deadline: limit == limitDeadline}
	c.traceRefused(err)
	return err
}

// cooledMeanwhile reports that a cool-down began while the Pacer held the request back.
func (c *call) cooledMeanwhile() bool {
	switch {
	case c.permit.probe:
		return false
	case c.permit.c != nil:
		c.readBoard()
		return c.permit.stale()
	}
	d := c.closed(now())
	return d != nil
}

// pace waits for the request's turn at the Pacer, for what is left of its MaxWait.
func (c *call) pace(since time.Duration) error {
	began := now()
	most, limit := c.policy.maxWait(), limitMaxWait
	if c.permit.c != nil {
		most = max(0, most-(began-since))
	}
	if left := c.elapsedLeft(began); left < most {
		most, limit = left, limitMaxElapsed
	}
	if err := paceAtMost(c.t.Pacer, c.req, most); err != nil {
		return c.refusedByPacer(err, began, most, limit)
	}
	c.paced = true
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
	if c.out.given || c.paced || c.permit.c != nil {
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
		c.errs = append(c.errs[max(0, len(c.errs)-maxCauses+1):], c.err)
	}
	if c.paced {
		c.paced = false
		c.t.Pacer.Observe(*a)
	}
	c.policy.readHint(a)
	c.learn(a)
}

// learn has the cool-down of the request's key learn from a.
func (c *call) learn(a *Attempt) {
	p, refused, hinted := c.permit, a.throttled(), a.hintedThrottle()
	c.permit, c.free = permit{}, hinted
	if p.probe && p.stale() {
		p = permit{} // others have heard since
	}
	if p.c == nil && !refused && c.activeCoolDown() == nil {
		return
	}
	if cancelled(c.req) != nil || a.Response != nil && ratelimit.FromCache(a.Response.Header) {
		if p.c != nil {
			p.c.unused(p) // it says nothing of the server
		}
		return
	}
	if p.probe && a.Response != nil && !refused {
		c.post(0, interval{}, true)
	} else if hinted {
		c.post(a.hint, intervalOf(a.Response.Header), p.probe)
	}
	if b := c.t.localBoard(); b != nil && p.c != nil {
		b.touch(c.key(), c.ended, 0) // a line may live for longer than what was posted
	}
	d := c.learner(p, refused && !hinted)
	if d == nil {
		return
	}
	answer := answer{route: scope.Route(c.req), sent: c.sent, failed: a.Err != nil, refused: refused, plain: refused && !hinted}
	if p.c != nil && a.Response != nil && !refused {
		answer.limits = ratelimit.Parse(a.Response.Header, time.Time{})
	}
	c.free = d.answer(p, answer, c.ended) && refused || hinted
}

// learner returns the coolDown that is to know of an answer, nil if none is. A refusal that
// says nothing more begins one.
func (c *call) learner(p permit, plain bool) *coolDown {
	if p.c != nil {
		return p.c
	}
	if d := c.activeCoolDown(); d != nil {
		return d
	}
	b := c.t.localBoard()
	if !plain || b == nil || c.key().Key == "" {
		return nil
	}
	d := b.get(c.key(), c.ended, countFor)
	d.startCounting()
	return d
}

// activeCoolDown returns the coolDown of the request's key unless that is open.
func (c *call) activeCoolDown() *coolDown {
	if d := c.find(c.ended); d != nil && d.state.Load() != stateOpen {
		return d
	}
	return nil
}

// decide returns what follows from the attempt.
func (c *call) decide() (Verdict, time.Duration) {
	if !c.policy.worthwhile(&c.last) || c.last.givenUp() {
		c.decided(Final, 0)
		return Final, 0
	}
	left, limit := c.left(c.ended)
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

// cooling is what is left of the key's cool-down.
func (c *call) cooling() time.Duration {
	if d := c.find(c.ended); d != nil && !d.open(c.req, c.ended) {
		return d.closedFor(c.ended)
	}
	return 0
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

// sleep waits for d or until woken. It returns why the caller gave up.
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
	}
	return cancelled(c.req)
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
		return nil, err
	case cancelled(c.req) == nil && c.kept.resp != nil:
		giveUpOn(c.kept.resp)
		return c.kept.response(), nil
	}
	return nil, stopped(c.last, err, c.errs)
}

// unused gives back the turn of an attempt that was admitted and not sent.
func (c *call) unused() {
	if c.paced {
		c.paced = false
		c.t.Pacer.Observe(Attempt{Number: c.number + 1, Request: c.req, Err: ErrNotSent})
	}
	if c.permit.c != nil {
		c.permit.c.unused(c.permit)
		c.permit = permit{}
	}
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
