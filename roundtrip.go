package heed

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
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
