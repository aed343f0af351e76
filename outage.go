package heed

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/heedhttp/heed/internal/cool"
	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// A hostWait is what a call knows of its host's outages.
type hostWait struct {
	permit    cool.Permit   // to send the next attempt to a host that is or was down
	patience  time.Duration // until when the call waits for its host; 0 until it is known
	probeFrom time.Duration // the next attempt is no probe before
	unsent    int           // dials that failed within patience: they count for no attempt
	met       bool          // the host was down when the call began
	owes      bool          // decide let it wait free: it pays a retry if it is sent while the host is down
	early     bool          // decide did not know yet whether the host is down: it pays if it is not
	full      bool          // the line was full: the next attempt does not wait
}

// outage returns what is known of the host, or nil if the call does not wait for it.
func (c *call) outage() *cool.Outage {
	if c.server == nil || c.policy.MaxWait < 0 || c.policy.MaxOutage < 0 || c.policy.maxAttempts() == 1 {
		return nil
	}
	return &c.server.outage
}

// patience returns until when the call waits for its host. It leaves a quarter of the call's time for the
// attempt, a second at most.
func (c *call) patience(o *cool.Outage) time.Duration {
	w := &c.hostWait
	if w.patience == 0 {
		at := now()
		left, _ := c.left(at)
		total := cool.After(left, at-c.start)
		latest := cool.After(c.start, total-min(total/4, time.Second))
		w.patience = min(o.Patience(c.start, min(c.policy.maxOutage(), c.policy.maxWait())), latest)
	}
	return w.patience
}

// held reports whether the next attempt must wait until the host is up. A retry with a Backoff of the
// caller's own keeps its waits.
func (c *call) held() bool {
	o := c.outage()
	if o == nil || c.hostWait.full || c.number > 0 && c.policy.Backoff != nil {
		return false
	}
	at := now()
	return o.Holds(c.start, at) && at < c.patience(o)
}

// awaitHost waits while the host is down, whatever the method: nothing is sent. At the end of its patience
// the call is sent nevertheless. But if it was sent before, that costs a retry. Only a call that waits
// alone pays it: of others, somebody's probe would have opened the host.
func (c *call) awaitHost() error {
	if !c.held() {
		return c.payRetry()
	}
	o, begin := c.outage(), now()
	c.hostWait.met = c.hostWait.met || c.number == 0
	defer func() { c.pending.held += now() - begin }()
	w := &cool.Waiter{
		Attempts: c.attempts(), Called: c.start, Patience: c.patience(o), ProbeFrom: c.hostWait.probeFrom,
		LastAttempt: c.lastAttempt(), Wake: make(chan struct{}, 1),
	}
	if !o.Join(w, c.hostWait.owes, begin) {
		return c.goAtOnce(o)
	}
	defer o.Leave(w)
	c.hostWait.early = false
	for {
		at := now()
		switch turn := o.Ask(w, at); {
		case turn.Over && c.hostWait.owes && !turn.Last && o.Down(at):
			return errStillDown
		case turn.Over:
			return c.payRetry()
		case turn.Pay:
			o.Pay(w, c.payRetry() == nil)
		case turn.Permit.Given():
			c.hostWait.permit, c.hostWait.owes = turn.Permit, false
			return nil
		default:
			if err := c.sleep(turn.Again-at, w.Wake); err != nil {
				return err
			}
		}
	}
}

// goAtOnce is for a call that found no place in line: the host is up, or the line is full. A retry waits for
// its own backoff then.
func (c *call) goAtOnce(o *cool.Outage) error {
	if at := now(); o.Down(at) {
		c.hostWait.full = true
		if err := c.sleep(c.hostWait.probeFrom-at, nil); err != nil {
			return err
		}
	}
	return c.payRetry()
}

// payRetry pays for the next attempt of a call that has waited free of budget, unless the host is up again.
func (c *call) payRetry() error {
	w := &c.hostWait
	if w.owes && (w.early || c.outage().Down(now())) && !c.withdraw() {
		return errStillDown
	}
	w.owes, w.early = false, false
	return nil
}

var errStillDown = errors.New("heed: the host is still down")

// learnHost reports the attempt's outcome to all calls to the host, also that of a call which does not
// wait for outages itself.
func (c *call) learnHost() {
	a := &c.last
	a.dial = failedDial(c.err) && cancelled(c.req) == nil
	if c.server == nil {
		return
	}
	o, p := &c.server.outage, c.hostWait.permit
	c.hostWait.permit, c.hostWait.full = cool.Permit{}, false
	switch {
	case a.dial && (!finalError(c.err) || o.AnsweredLately(c.ended) && noSuchName(c.err)), a.unavailable():
		o.Failed(outageRoute(c.req), p, a.dial, a.Took, c.ended)
	case c.resp != nil && (c.resp.StatusCode < 500 && !a.failedInBody() || a.throttled()) &&
		c.resp.Header["X-From-Cache"] == nil: // that is a cache in Base
		o.Good(c.req, outageRoute, p, c.sent, c.ended)
		if a.good() {
			c.server.answeredWell(c.ended)
		}
		return
	default:
		o.Unclear(p, c.resp != nil, c.ended)
	}
	a.known, a.nobodyReached = o.AnsweredLately(c.ended), !o.GoodSince(c.start)
}

func outageRoute(req *http.Request) cool.Route {
	return cool.Route{Method: req.Method, Path: scope.Prefix(req.URL.Path), Credential: credentialOf(req.Header)}
}

// unavailable reports whether the response says that nobody is there to answer.
func (a *Attempt) unavailable() bool {
	if a.Response == nil {
		return false
	}
	switch a.Response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return !a.hinted && !a.throttled() && !a.notCached() && !ratelimit.FromCache(a.Response.Header)
	}
	return false
}

// failedDial reports whether err says that there was no connection to send the request on: a name was
// not found, or a dial failed.
func failedDial(err error) bool {
	if err == nil || !notSent(err) {
		return false
	}
	var dial *net.OpError
	return errors.As(err, new(*net.DNSError)) || errors.As(err, &dial) && dials(dial.Op)
}

// noSuchName reports whether err is a look-up that found no name. Where the name was known a moment ago,
// that is a restart: a service without instances has no name in some clusters.
func noSuchName(err error) bool {
	var lookUp *net.DNSError
	return errors.As(err, &lookUp) && lookUp.IsNotFound && !saysFinal(err)
}

// A hold is what the state of the host changes about a retry. The zero hold changes nothing.
type hold struct {
	unsent  bool          // the attempt was not sent: another one costs nothing
	waits   bool          // the retry waits until the host is up, and costs nothing before
	backoff time.Duration // instead of the policy's, if unsent
	suspect time.Duration // how long it takes to know whether the host is down; the retry may wait for that
	over    bool          // the call has waited for the host for as long as it may
}

// hold returns what the state of the host changes about a retry after the last attempt.
func (c *call) hold() (h hold) {
	o, a := c.outage(), &c.last
	if o == nil || c.policy.Backoff != nil || !a.dial && !a.unavailable() {
		return hold{}
	}
	until := c.patience(o)
	switch down := o.Down(c.ended); {
	case c.ended >= until:
		return hold{over: down}
	case a.dial:
		return hold{unsent: true, waits: down, backoff: min(c.dialBackoff(), until-c.ended)}
	case down:
		return hold{waits: true}
	}
	return hold{suspect: max(0, o.SuspectUntil()-c.ended)}
}

// dialBackoff is the wait after a failed dial. It is shorter where somebody else reached the host
// meanwhile, because then only some of its addresses fail, and longer for a call that met an outage.
func (c *call) dialBackoff() time.Duration {
	n := c.hostWait.unsent
	if c.hostWait.met && c.last.nobodyReached {
		n += 3
	}
	edge := min(firstFailed<<min(n, 10), longestDialBackoff)
	if !c.last.nobodyReached {
		return uniform(edge)
	}
	return edge - uniform(edge/2)
}

const longestDialBackoff = 8 * time.Second

// attempts is how many attempts count: those that could be sent.
func (c *call) attempts() int { return c.number - c.hostWait.unsent }

// lastAttempt reports whether the next attempt is the last one, after others.
func (c *call) lastAttempt() bool {
	return c.attempts() > 0 && c.attempts()+1 >= c.policy.maxAttempts()
}

// traceStillDown tells that the call gives up although the host may come back.
func (c *call) traceStillDown() {
	c.traceRefused(&OverdueError{Key: c.host.Key, Left: c.policy.maxOutage(), Cause: CauseOutage, Limit: limitMaxOutage})
}
