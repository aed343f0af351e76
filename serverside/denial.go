package serverside

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
)

// outageWait is what a client is told to wait while the Store fails: about as
// long as it takes to ask again.
const outageWait = time.Second

// fullWait is what a client is told to wait for a place in flight.
const fullWait = time.Second

// A Denial is a request that is not admitted.
type Denial struct {
	// Status is 429; 503 if a rule of the Overload stage with that Status denies, or for
	// an Outage, if Config.ClosedStatus does not say otherwise; or 400 or 413, if Unread.
	Status int

	// RetryAfter is how long it is until a request of the same cost fits. In the
	// header it is rounded up to a second. Of what is in flight nobody knows, so it
	// is a second.
	RetryAfter time.Duration

	// Never is that it will not be admitted however long it waits: it costs more than the
	// quota ever holds, or is Unread. RetryAfter is 0, and the header tells not to retry.
	Never bool

	// InFlight is that as many requests as may be are being served.
	InFlight bool

	// Penalized is that a Penalty keeps the client out.
	Penalized bool

	// Outage is that the Store failed, and the rule fails closed.
	Outage bool

	// Unread is that the body does not say whose quota the request is charged to: it is
	// longer than 64 KiB (413), or says it not at all, or in two ways (400).
	Unread bool

	// Rule is the name of the rule that denies: of several, of the first that was
	// asked.
	Rule string

	// Policies are the names, as in the RateLimit field, of all policies that
	// deny, the one with the longest wait first. It is empty if the Store failed, if the
	// body is Unread, for what is in flight, and if a Penalty alone denies.
	Policies []string

	// Quota and Window are those of the first of Policies; or Quota is how many
	// requests may be in flight.
	Quota  int64
	Window time.Duration

	// ResetAt is when that quota is whole again; zero if there is none.
	ResetAt time.Time

	// Cost is what the request costs by that policy, and FitsNow the largest cost
	// that all policies would admit at once. It may be worth splitting a request
	// rather than to wait.
	Cost, FitsNow int64
}

// denialOf sums up what denies a request: denying, which are part of all.
func denialOf(denying, all []charged) Denial {
	longest, rule := &denying[0], firstAsked(denying)
	d := Denial{
		Status:     rule.status,
		RetryAfter: longest.decision.RetryAfter,
		Never:      longest.decision.Never,
		Penalized:  longest.policy.isPenalty(),
		Rule:       rule.name,
		Quota:      longest.policy.fields.Quota,
		Window:     longest.policy.fields.Window,
		ResetAt:    longest.decision.At.Add(longest.decision.ResetAfter),
		Cost:       longest.n,
		FitsNow:    all[0].decision.Remaining,
	}
	for i := range denying {
		if p := denying[i].policy; !p.isPenalty() {
			d.Policies = append(d.Policies, p.fields.Name)
		}
	}
	for i := range all {
		d.FitsNow = min(d.FitsNow, all[i].decision.Remaining)
	}
	return d
}

// firstAsked is the rule of those that is asked first.
func firstAsked(all []charged) *rule {
	first := all[0].policy.rule
	for i := range all {
		if r := all[i].policy.rule; r.order < first.order {
			first = r
		}
	}
	return first
}

// outageOf is that nobody knows whether r would deny.
func (c *compiled) outageOf(r *rule) Denial {
	status := cmp.Or(c.ClosedStatus, http.StatusServiceUnavailable)
	return Denial{Status: status, RetryAfter: outageWait, Outage: true, Rule: r.name}
}

// fullOf is that as many requests as r allows are being served.
func fullOf(r *rule) Denial {
	return Denial{Status: r.status, RetryAfter: fullWait, InFlight: true, Rule: r.name, Quota: r.inFlight, Cost: 1}
}

// refuseUnread answers a request whose body does not say what m's key is.
func (c *check) refuseUnread(all matched, m match, status int) {
	c.unread = true
	all.matches = append(all.matches, m)
	e := c.about(Denied, m.rule, m.key)
	e.Status = status
	c.Audit(e)
	c.observe(all, Refused)
	c.refuse(Denial{Status: status, Never: true, Unread: true, Rule: m.rule.name})
}

// refuse answers with d. It does not touch the body of the request.
func (c *check) refuse(d Denial) {
	c.exposeFields()
	h, values := c.w.Header(), make([]string, 3) // each in a place of its own
	values[0], values[1] = "no-store", c.advice(&d)
	h["Cache-Control"] = values[0:1:1]
	if d.Never {
		h.Del("Retry-After")
		h["X-Should-Retry"] = values[1:2:2]
	} else {
		h["Retry-After"] = values[1:2:2]
	}
	if c.RetryAfterMS && !d.Never {
		h["Retry-After-Ms"] = []string{strconv.FormatInt(d.millis(), 10)}
	}
	head := c.r.Method == http.MethodHead
	if c.Deny != nil {
		body := &denialWriter{ResponseWriter: c.w, status: d.Status, head: head}
		c.Deny(body, c.r, d)
		body.WriteHeader(d.Status)
		return
	}
	values[2] = "application/problem+json"
	h["Content-Type"] = values[2:3:3]
	c.w.WriteHeader(d.Status)
	if !head {
		c.w.Write(d.appendProblem(make([]byte, 0, 320)))
	}
}

// advice is what Retry-After says, or X-Should-Retry as Stripe's, OpenAI's and
// heed's clients read it.
func (c *compiled) advice(d *Denial) string {
	switch {
	case d.Never:
		return "false"
	case c.RetryAfterDate: // a second more, since a date has no fraction
		return time.Now().Add(d.RetryAfter + time.Second - 1).UTC().Format(http.TimeFormat)
	default:
		return strconv.FormatInt(d.seconds(), 10)
	}
}

// seconds is what Retry-After says (RFC 9110, section 10.2.3): rounded up, for a
// client that comes early is denied again, and never 0, for that says "now".
func (d *Denial) seconds() int64 { return max(1, ceil(d.RetryAfter, time.Second)) }

// millis is the same in milliseconds.
func (d *Denial) millis() int64 { return max(1, ceil(d.RetryAfter, time.Millisecond)) }

// ceil is d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// A denialWriter writes a denial's body, and nothing but its status: what Deny
// forgets or does wrong does not turn a denial into a success.
type denialWriter struct {
	http.ResponseWriter
	status int
	head   bool // the request was a HEAD
	wrote  bool // the status
}

func (w *denialWriter) WriteHeader(status int) {
	switch {
	case w.wrote:
	case 100 <= status && status < 200 && status != http.StatusSwitchingProtocols:
		w.ResponseWriter.WriteHeader(status)
	default:
		w.wrote = true
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *denialWriter) Write(b []byte) (int, error) {
	w.WriteHeader(w.status)
	if w.head {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Flush sends what was written.
func (w *denialWriter) Flush() {
	w.WriteHeader(w.status)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *denialWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
