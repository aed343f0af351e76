package heed

import (
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/ratelimit"
)

// A begin is when a RoundTrip was called, and the budget's key.
type begin struct {
	start time.Duration
	host  hostkey.Name
}

// A call is one RoundTrip. It lives on the stack, which is why nothing keeps a
// pointer to it.
type call struct {
	t      *Transport
	req    *http.Request
	policy *RetryPolicy
	traces []*Trace // of the context

	begin
	cool  hostkey.Name // the cool-down's key, once it was asked for
	asked bool

	number int            // of the present attempt, or the last one
	resp   *http.Response // its outcome, as far as there is one
	err    error
	sent   time.Duration // when it was sent
	ended  time.Duration // and when it was over
	still  bool          // whether that was just now: nothing was waited for since
	waited time.Duration // since the one before
	told   time.Duration // the end of the wait that was traced with its verdict
	last   Attempt       // the same for others to see, once it was observed

	idempotencyKey string // of the call's own, if it has one

	copy    *resend // what is sent again
	src     *source // the body, if it has no GetBody
	given   bool    // whether Base has had the body, whose duty it is to close it
	open    bool    // whether resp's body is still this call's to close
	kept    kept    // what the caller gets if the retry cannot be sent
	errs    []error // what the attempts failed with
	pass    pass    // of the present attempt
	paced   bool    // the Pacer waits for the outcome
	looking bool    // the present attempt goes although its key cools down
	paid    bool    // the present retry was withdrawn
	timer   *time.Timer
}

func (c *call) override(o *overrides) {
	if o == nil {
		return
	}
	if o.retry != nil {
		c.policy = o.retry
	}
	c.traces = o.traces
}

// runCall makes all attempts.
func runCall(t *Transport, req *http.Request, b begin, o *overrides) (*http.Response, error) {
	c := call{t: t, req: req, policy: &t.Retry, begin: b}
	c.override(o)
	defer c.cleanUp()
	c.mark()
	c.deposit()
	return c.attempt()
}

// resumeCall goes on after a first attempt that was made, and paid in for.
func resumeCall(t *Transport, req *http.Request, b begin, resp *http.Response, err error) (*http.Response, error) {
	c := call{t: t, req: req, policy: &t.Retry, begin: b}
	defer c.cleanUp()
	c.given, c.number, c.sent = true, 1, c.start
	c.resp, c.err, c.open = resp, err, resp != nil
	if verdict, err := c.settle(); err != nil {
		return c.refused(err)
	} else if verdict != Again {
		return c.finish()
	}
	return c.attempt()
}

// attempt is the loop: admit, send, decide, wait.
func (c *call) attempt() (*http.Response, error) {
	for {
		if err := c.admit(); err != nil {
			return c.refused(err)
		}
		out, err := c.outgoing()
		if err != nil {
			return c.refused(err)
		}
		if c.send(out); c.simple() {
			return c.finish()
		}
		if verdict, err := c.settle(); err != nil {
			return c.refused(err)
		} else if verdict != Again {
			return c.finish()
		}
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

// settle decides what follows from an attempt, and waits if it is another one.
func (c *call) settle() (Verdict, error) {
	c.observe()
	verdict, wait := c.decide()
	if verdict != Again {
		return verdict, nil
	}
	c.told = c.ended + wait
	return verdict, c.pause(wait)
}

// clock reads the clock, unless it has just been read.
func (c *call) clock() time.Duration {
	if c.still {
		return c.ended
	}
	return now()
}

// outgoing is the request of the next attempt: the caller's own for the first,
// unless its body has to be watched, or it says more than that.
func (c *call) outgoing() (*http.Request, error) {
	body, rewinds, marked := hasBody(c.req), c.policy.rewinds(c.req), c.marked()
	asItIs := !body || !c.given && (rewinds || c.policy.maxAttempts() == 1)
	if asItIs && !c.given && !marked {
		return c.req, nil
	}
	out := c.copied(body || marked)
	if marked {
		c.writeMarks(out)
	}
	switch {
	case asItIs:
		return out, nil
	case rewinds:
		var err error
		out.Body, err = c.req.GetBody()
		return out, err
	}
	if c.src == nil {
		c.src = &source{body: c.req.Body, keep: c.policy.MaxBodyBuffer}
	}
	out.Body = c.src.lend()
	return out, nil
}

// send makes the attempt. Its clock starts with the call if nothing came
// between, so that a request which needs nothing reads the clock once.
func (c *call) send(out *http.Request) {
	c.sent = c.start
	if c.given || c.paced || c.pass.lane != nil || c.looking {
		c.sent = c.clock()
	}
	if c.given {
		c.waited = c.sent - c.ended
		c.kept.discard()
		c.paid = false
	}
	c.given, c.last = true, Attempt{}
	c.number++
	c.resp, c.err = c.roundTrip(out)
	c.open, c.still = c.resp != nil, false
}

func (c *call) roundTrip(out *http.Request) (*http.Response, error) {
	if d := c.policy.AttemptTimeout; d > 0 {
		resp, err := roundTripWithin(c.t.base(), out, d)
		return proper(c.req, out, resp, err)
	}
	resp, err := c.t.base().RoundTrip(out)
	return proper(c.req, out, resp, err)
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

// simple reports that there is nothing to decide, and nobody to tell.
func (c *call) simple() bool {
	return c.err == nil && c.resp.StatusCode < 400 &&
		c.policy.If == nil && c.policy.Hint == nil && !c.policy.suspects(c.req, c.resp) &&
		!c.paced && c.pass.lane == nil && c.t.Trace == nil && c.traces == nil
}

// observe tells the Pacer, the lane and the Board what came of the attempt.
func (c *call) observe() {
	c.ended, c.still = now(), true
	c.last = Attempt{
		Number: c.number, Request: c.req, Response: c.resp, Err: c.err,
		Took: c.ended - c.sent, Elapsed: c.ended - c.start, Waited: c.waited,
		most: int32(min(c.policy.maxAttempts(), math.MaxInt32)), keyed: c.idempotencyKey != "",
	}
	a := &c.last
	if c.err != nil {
		c.errs = append(c.errs[max(0, len(c.errs)-maxCauses+1):], c.err)
	}
	if c.paced {
		c.paced = false
		c.t.Pacer.Observe(*a)
	}
	c.policy.hear(a)
	c.still = len(c.policy.Profiles) == 0 // or a body may have been waited for
	if a.invited() && !ratelimit.FromCache(a.Response.Header) {
		c.post(a) // first, or the answer would let the next one go
	}
	if c.pass.lane != nil {
		c.pass.answered(!a.throttled() && cancelled(c.req) == nil)
		c.pass = pass{}
	}
}

func (c *call) decide() (Verdict, time.Duration) {
	left, limit := c.left(c.ended)
	verdict, wait := c.policy.decide(&c.last, circumstances{
		replayable: c.replayable(), cooling: c.cooling(), left: left, withdraw: c.withdraw,
	})
	if verdict == Again && c.src != nil && !c.src.takeBack() {
		c.refund()
		verdict = NotReplayable
	}
	c.last.limit = limitOf(verdict, limit)
	c.last.Cause = c.last.cause(verdict, wait)
	c.decided(verdict, wait)
	return verdict, wait
}

func (c *call) replayable() bool {
	switch {
	case !hasBody(c.req), c.policy.rewinds(c.req):
		return true
	case c.src != nil:
		return c.src.replayable()
	}
	return false
}

func (c *call) withdraw() bool {
	c.paid = c.t.retries().Withdraw(c.req.Context(), c.host.Key)
	return c.paid
}

// succeeded reports that the server is up and has room for more.
func (c *call) succeeded() bool {
	return c.err == nil && c.resp.StatusCode < 500 && !c.last.throttled()
}

func (c *call) reportSuccess() {
	if b := c.t.localBudget(); b != nil {
		b.success(c.host)
	} else if b, ok := c.t.Budget.(SuccessBudget); ok {
		b.Success(c.req.Context(), c.host.Key)
	}
}

func (c *call) refund() {
	if c.paid {
		c.paid = false
		c.t.retries().Refund(c.req.Context(), c.host.Key)
	}
}

// finish returns what the last attempt ended with.
func (c *call) finish() (*http.Response, error) {
	if c.src != nil {
		c.src.finish()
	}
	if c.succeeded() {
		c.reportSuccess()
	}
	c.open = false
	if c.err != nil && c.number > 1 && !errors.Is(c.err, http.ErrSkipAltProtocol) {
		return nil, gaveUp(c.number, c.errs)
	}
	return c.resp, c.err
}

// refused returns what there is when an attempt cannot be sent: the response of
// the one before it, unless the caller gave up, or else err, with what the
// attempts failed with.
func (c *call) refused(err error) (*http.Response, error) {
	c.unused()
	c.refund()
	if c.src != nil {
		c.src.finish()
	}
	switch {
	case !c.given:
		return nil, err
	case cancelled(c.req) != nil:
		return nil, stopped(c.last, err, c.errs)
	case c.kept.resp != nil:
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
	c.pass.answered(false)
	c.pass = pass{}
}

// cleanUp closes what is still open, and gives back what was not used: after a
// panic in a hook, too. When all went well there is nothing but a timer.
func (c *call) cleanUp() {
	if !c.given && c.req.Body != nil {
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
	if c.src != nil {
		c.src.finish()
	}
	c.unused()
	c.refund()
}
