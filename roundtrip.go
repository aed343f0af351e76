package heed

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/cool"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/ratelimit"
)

// epoch is earlier than any clock reading, also in a synctest bubble, whose time starts in the year
// 2000, so that now is always positive. Add, unlike AddDate, keeps the monotonic reading.
var epoch = time.Now().Add(-60 * 365 * 24 * time.Hour)

// now reads the monotonic clock, at half the cost of time.Now.
func now() time.Duration { return time.Since(epoch) }

// A call is one RoundTrip. It lives on the stack: nothing may keep a pointer to it.
type call struct {
	t      *Transport
	req    *http.Request
	policy *RetryPolicy
	traces []*Trace        // from the context
	drain  context.Context // from WithDrain, or nil
	start  time.Duration
	host   hostkey.Name       // scheme and host, the budget's key
	server *server            // what the Board knows of it, or nil
	vendor *ratelimit.Profile // of the host, or nil; set before each attempt

	keysKnown bool          // coolKeys and keyCount are set
	keyCount  int           // how many coolKeys there are
	coolKeys  [2]coolKey    // the keys of the credential and of the request's scope
	paced     *http.Request // the request that the Pacer admitted and has not observed yet, or nil
	pending   pendingWait   // what the next attempt waits for
	hostWait  hostWait

	out       outgoing
	number    int            // of the current or last attempt
	sent      time.Duration  // when it was sent
	ended     time.Duration  // when it ended
	resp      *http.Response // its response, if there is one
	err       error
	last      Attempt  // the same, for hooks
	bodyOpen  bool     // resp's body must still be closed by this call
	fallback  fallback // what the caller gets if the retry cannot be sent
	errs      []error  // the errors of the attempts
	withdrawn bool     // a retry was withdrawn from the budget, but not sent yet
	paid      int      // retries that were withdrawn and sent
	timeouts  int      // attempts that timed out, and may be repeated only because the vendor says so
	freeRetry bool     // the next retry costs no budget
	timer     *time.Timer
}

// RoundTrip sends req, and sends it again as the RetryPolicy says. It returns the last response as
// it came, with its body unread and a nil error, whatever its status. It returns an error only if
// there is no response: an *OverdueError if req would have to wait too long, the context's error if
// the caller gave up, or the errors of the attempts.
//
// If a retry was decided on and then could not be sent, for example because of another cool-down,
// the last response was drained already: over HTTP/1, a body of more than 16 KiB, or one that took
// more than 100 ms to read, ends early with io.ErrUnexpectedEOF.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.marks.Load() && req.Context().Value(mark{t}) != nil {
		return firstDefault.RoundTrip(req)
	}
	if req.URL == nil {
		base, out := t.base(req)
		return base.RoundTrip(out) // it closes the body and returns the right error
	}
	c := call{t: t, req: req, policy: &t.Retry, start: now(), host: hosts.Name(req.URL.Scheme, req.URL.Host)}
	if b := t.localBoard(); b != nil {
		c.server = b.server(c.host, c.start)
	}
	c.applyContext()
	defer c.cleanUp()
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

// applyContext applies what WithRetry, WithTrace and WithDrain stored in the request's context.
func (c *call) applyContext() {
	if o, ok := c.req.Context().Value(overridesKey{}).(*overrides); ok {
		if o.retry != nil {
			p := o.retry(c.t.Retry)
			c.policy = &p
		}
		c.traces = o.traces
		if c.req.Response == nil { // a request after a redirect goes on
			c.drain = o.drain
		}
	}
	c.out.policy = c.policy
	if c.policy.IdempotencyKey != nil && !idempotent(c.req) {
		c.out.key = c.policy.IdempotencyKey(c.req)
	}
}

// deposit spares a LocalBudget another clock reading.
func (c *call) deposit() {
	if b := c.t.localBudget(); b != nil {
		b.deposit(c.host, c.sent)
		return
	}
	c.t.Budget.Deposit(c.req.Context(), c.host.Key)
}

// admit waits until the next attempt may be sent: for a host that is down, for cool-downs, for the Pacer,
// and for what began meanwhile.
func (c *call) admit() error {
	since := c.start
	if c.out.handedOver {
		since = now()
	}
	for {
		if err := c.drained(); err != nil {
			return err
		}
		if err := c.awaitHost(); err != nil {
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
		c.returnUnused()
	}
}

// pace waits for the Pacer, for what is left of MaxWait.
func (c *call) pace(since time.Duration) error {
	began := now()
	most, limit := c.policy.maxWait(), limitMaxWait
	if c.hasPermit() || c.pending.held > 0 {
		most = max(0, most-(began-since))
	}
	if left := c.elapsedLeft(began); left < most {
		most, limit = left, limitMaxElapsed
	}
	paced, release := c.pacedRequest()
	err := paceAtMost(c.t.Pacer, paced, most)
	release()
	took := now() - began
	c.pending.paced += took
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
	req := c.req
	c.allTraces(func(trace *Trace) {
		if trace.Paced != nil {
			trace.Paced(req, took)
		}
	})
	return nil
}

// refusedByPacer traces a Pacer's error and returns it. It adds the cause and the exceeded setting
// to an OverdueError.
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
		e.Limit = limit // the Pacer used up a part of it
	}
	if err != error(overdue) {
		e.Err = err
		c.traceRefused(&e)
		return err
	}
	c.traceRefused(&e)
	return &e
}

// left returns the time until the context's deadline or the end of MaxElapsed, whichever is first,
// and the name of that limit.
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

// timeLeft returns how long an attempt that is sent now, with a limit of its own if most is positive,
// may take, or 0 if there is no limit.
func (c *call) timeLeft(most time.Duration) time.Duration {
	left, _ := c.left(now())
	if most > 0 {
		left = min(left, most)
	}
	if left > longestElapsed {
		return 0
	}
	return max(left, time.Millisecond)
}

// longestElapsed is about 68 years. Longer times count as no limit.
const longestElapsed = 1 << 31 * time.Second

// send makes one attempt.
func (c *call) send() error {
	var timeLeft time.Duration
	most, split := c.attemptTimeout()
	if c.policy.TellServer {
		timeLeft = c.timeLeft(most)
	}
	out, err := c.out.next(c.req, c.attempts()+1, timeLeft)
	if err != nil {
		return err
	}
	c.sent = c.start
	if c.out.handedOver || c.paced != nil || c.hasPermit() || c.pending.held > 0 {
		c.sent = now()
	}
	c.traceWaited(c.sent)
	waited := time.Duration(0)
	if c.out.handedOver {
		waited = c.sent - c.ended
		c.fallback.discard()
		if c.withdrawn {
			c.paid++
		}
		c.withdrawn = false
	} else {
		c.deposit()
	}
	c.number++
	c.out.handedOver = true
	c.last = Attempt{Number: c.number, Request: c.req, Waited: waited, sent: c.sent, givenUps: givenUps.Load()}
	base, out := c.t.base(out)
	c.vendor = c.profile()
	if most > 0 || c.watches() {
		c.resp, c.err = roundTripWithin(base, out, most, split)
	} else {
		c.resp, c.err = base.RoundTrip(out)
	}
	c.resp, c.err = checkResult(c.req, out, c.resp, asProxyError(base, out, c.err))
	c.bodyOpen = c.resp != nil
	c.watchBody()
	return nil
}

// checkResult returns either a response or an error, never both or neither. The response's Request
// is what Base sent; a copy that heed made is replaced by the caller's request.
func checkResult(req, out *http.Request, resp *http.Response, err error) (*http.Response, error) {
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

// observe reports the attempt's outcome to the Pacer and to the cool-downs.
func (c *call) observe() {
	c.ended = now()
	a := &c.last
	a.Response, a.Err, a.Took, a.Elapsed = c.resp, c.err, c.ended-c.sent, c.ended-c.start
	a.maxAttempts, a.hasKey = int32(min(c.policy.maxAttempts(), math.MaxInt32)), c.out.key != ""
	if c.err != nil {
		c.errs = append(c.errs[max(0, len(c.errs)-maxCauses+1):], asAttemptError(c.err))
	}
	c.policy.readHint(a, c.vendor)
	c.learnSDK()
	c.tellPacer(*a)
	c.learnHost()
	c.learn(a)
}

// decide returns the verdict on the attempt, and how long the next one waits.
func (c *call) decide() (Verdict, time.Duration) {
	if !c.policy.worthwhile(&c.last) || c.last.givenUp() {
		wait := time.Duration(0)
		if c.last.exhausted() {
			wait = c.last.hint
		}
		c.traceDecided(Final, wait)
		return Final, 0
	}
	left, limit := c.left(c.ended)
	if c.drained() != nil {
		left, limit = 0, limitDrain
	}
	h := c.hold()
	if h.unsent {
		c.hostWait.unsent++
	}
	cooling, contended := c.cooling()
	verdict, wait := c.policy.decide(&c.last, circumstances{
		attempts: c.attempts(), replayable: c.out.replayable(c.req), cooling: cooling, contended: contended, hold: h,
		free: c.freeRetry || h.waits, left: left, withdraw: c.withdraw,
	})
	if verdict == Again && !c.out.takeBack() {
		c.refund()
		verdict = NotReplayable
	}
	if h.over && verdict == OutOfTime {
		limit = limitMaxOutage
	}
	c.hostWait.early = verdict == Again && h.suspect > 0 && !c.freeRetry && !c.withdrawn
	c.hostWait.owes, c.hostWait.probeFrom = h.waits && !h.unsent || c.hostWait.early, 0
	c.last.limit = limitOf(verdict, limit)
	c.last.Cause = c.last.cause(verdict, wait)
	if h.waits && verdict == Again {
		c.last.Cause, c.hostWait.probeFrom = CauseOutage, c.ended+wait
	}
	c.pending = pendingWait{cause: c.last.Cause, required: wait, tracedUntil: c.ended + wait}
	c.traceDecided(verdict, wait)
	return verdict, wait
}

func (c *call) withdraw() bool {
	c.withdrawn = c.t.budgetOrOwn().Withdraw(c.req.Context(), c.host.Key)
	return c.withdrawn
}

func (c *call) refund() {
	if c.withdrawn {
		c.withdrawn = false
		c.t.budgetOrOwn().Refund(c.req.Context(), c.host.Key)
	}
}

// pause waits before the next attempt. If a cool-down lasts longer than the wait, or the host is down, it
// returns at once: the request then waits in line.
func (c *call) pause(wait time.Duration) error {
	if c.bodyOpen {
		c.bodyOpen = false
		body := c.resp.Body
		c.fallback = keepFallback(c.resp, &c.t.draining, c.stoppedTimer)
		endDropped(body)
	}
	if cooling, _ := c.cooling(); c.hostWait.probeFrom > 0 || cooling >= wait-(now()-c.ended) {
		return cancelled(c.req)
	}
	return c.sleep(c.ended+wait+c.jitter(wait)-now(), nil)
}

// jitter returns what is added to a hint: at most half of the time that remains after the wait, so
// that the attempt has the rest.
func (c *call) jitter(wait time.Duration) time.Duration {
	if c.last.hint == 0 {
		return 0
	}
	left, _ := c.left(c.ended)
	return min(uniform(cool.Jitter(c.last.hint)), max(0, left-wait)/2)
}

// sleep waits for d, or until something is received from wake. It returns an error if the request
// was cancelled or drained.
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

// stoppedTimer returns the call's timer, which all its waits use.
func (c *call) stoppedTimer() *time.Timer {
	if c.timer == nil {
		c.timer = time.NewTimer(time.Hour)
		c.timer.Stop()
	}
	return c.timer
}

// finish returns the outcome of the last attempt.
func (c *call) finish(v Verdict) (*http.Response, error) {
	c.out.finish()
	if c.resp != nil && v != Final && c.policy.maxAttempts() > 1 {
		recordGivenUp(c.resp)
	}
	if c.last.good() {
		c.reportSuccess()
	}
	c.bodyOpen = false
	if c.err != nil && c.number > 1 && !errors.Is(c.err, http.ErrSkipAltProtocol) {
		return nil, attemptsFailed(c.number, c.errs)
	}
	if c.err != nil && c.number == 1 {
		c.err = onlyError(c.req, c.err)
	}
	return c.resp, c.err
}

func (c *call) reportSuccess() {
	for ; c.paid > 0; c.paid-- {
		c.t.budgetOrOwn().Refund(c.req.Context(), c.host.Key)
	}
	if b := c.t.localBudget(); b != nil {
		b.success(c.host, c.ended)
	} else if b, ok := c.t.Budget.(SuccessBudget); ok {
		b.Success(c.req.Context(), c.host.Key)
	}
}

// giveUp returns the result of a call whose next attempt cannot be sent because of err: the last
// response, if there is one and the caller has not cancelled, and otherwise an error.
func (c *call) giveUp(err error) (*http.Response, error) {
	c.traceWaited(now())
	if err == errStillDown {
		c.traceStillDown()
	}
	c.returnUnused()
	c.refund()
	c.out.finish()
	switch {
	case !c.out.handedOver && c.req.Response != nil: // http.Client sent the hops before this redirect
		return nil, asAttemptError(err)
	case !c.out.handedOver:
		return nil, &notSentError{err}
	case cancelled(c.req) == nil && c.fallback.resp != nil:
		recordGivenUp(c.fallback.resp)
		return c.fallback.response(), nil
	}
	return nil, notSentAgain(c.last, asAttemptError(err), c.errs)
}

// returnUnused returns what an admitted attempt got from the Pacer and the cool-downs and did not
// use.
func (c *call) returnUnused() {
	c.tellPacer(Attempt{Number: c.number + 1, Err: ErrNotSent})
	c.returnPermits()
}

// tellPacer has the Pacer observe a, if the Pacer admitted the attempt. Observe gets the same
// request as Wait.
func (c *call) tellPacer(a Attempt) {
	if c.paced == nil {
		return
	}
	a.Request, c.paced = c.paced, nil
	c.t.Pacer.Observe(a)
}

// cleanUp closes and returns whatever is left, also after a panic in a hook. Usually only a timer
// is.
func (c *call) cleanUp() {
	if !c.out.handedOver && c.req.Body != nil {
		c.req.Body.Close()
	}
	if c.bodyOpen {
		c.resp.Body.Close()
	}
	if c.fallback.resp != nil {
		c.fallback.discard()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.out.finish()
	c.returnUnused()
	c.refund()
}
