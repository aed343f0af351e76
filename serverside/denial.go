package serverside

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
)

// outageWait is the Retry-After while the Store fails: about the time to the next try.
const outageWait = time.Second

// inFlightWait is the Retry-After when too many requests are in flight.
const inFlightWait = time.Second

// A Denial describes a request that was denied. Config.Deny gets it.
type Denial struct {
	// Status is 429, or 503 if a rule of the Overload stage with that Status denies. It is
	// Config.ClosedStatus for an Outage, 400 or 413 if Unread, and 403 if Blocked.
	Status int

	// RetryAfter is the time until a request of the same cost fits. The header rounds it up to
	// seconds. For InFlight and Outage it is a second, an estimate.
	RetryAfter time.Duration

	// Never means that retrying does not help, because the request costs more than the quota
	// ever holds, or is Unread or Blocked. RetryAfter is 0, and the header has X-Should-Retry: false.
	Never bool

	// InFlight means that Rule.MaxInFlight requests are being served.
	InFlight bool

	// Penalized means that a Penalty blocks the client.
	Penalized bool

	// Outage means that the Store failed and the rule has FailClosed.
	Outage bool

	// Unread means that the body does not contain the key to charge. Status is 413 if it is
	// longer than 64 KiB, and 400 if it lacks the value or has different ones.
	Unread bool

	// Blocked means that Rule.Limits block the key.
	Blocked bool

	// Rule is the name of the rule that denies: of several, the first that was checked.
	Rule string

	// Policies are the names, as in the RateLimit field, of all policies that deny, the one
	// with the longest wait first. It is empty for Outage, InFlight, Unread and Blocked, and if
	// only a Penalty denies.
	Policies []string

	// Quota and Window are those of the first of Policies. For InFlight, Quota is
	// Rule.MaxInFlight.
	Quota  int64
	Window time.Duration

	// ResetAt is when that quota is full again, or zero if Policies is empty.
	ResetAt time.Time

	// Cost is the cost of the request by that policy, and FitsNow the largest cost that all
	// policies would admit now. A client may split its request instead of waiting.
	Cost, FitsNow int64
}

// denialOf returns the Denial of a request that the charges denying deny. They are part of all.
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

// firstAsked returns the first rule in the order in which rules are checked.
func firstAsked(all []charged) *rule {
	first := all[0].policy.rule
	for i := range all {
		if r := all[i].policy.rule; r.order < first.order {
			first = r
		}
	}
	return first
}

// outageDenial returns the denial for a failed Store.
func (c *compiled) outageDenial(r *rule) Denial {
	status := cmp.Or(c.ClosedStatus, http.StatusServiceUnavailable)
	return Denial{Status: status, RetryAfter: outageWait, Outage: true, Rule: r.name}
}

// inFlightDenial returns the denial for too many requests in flight.
func inFlightDenial(r *rule) Denial {
	return Denial{Status: r.status, RetryAfter: inFlightWait, InFlight: true, Rule: r.name, Quota: r.inFlight, Cost: 1}
}

// refuseUnasked denies a request because m's key is blocked, or is not in the body.
func (c *check) refuseUnasked(m match, status int) {
	c.unasked = true
	e := c.about(Denied, m.rule, m.key)
	e.Status = status
	c.Audit(e)
	c.observeRefusal(m.rule, m.key)
	blocked := status == http.StatusForbidden
	c.refuse(Denial{Status: status, Never: true, Unread: !blocked, Blocked: blocked, Rule: m.rule.name})
}

// refuse writes the denial d. It does not read the request's body.
func (c *check) refuse(d Denial) {
	c.progress.denied.Store(true)
	c.exposeFields()
	h, values := c.w.Header(), make([]string, 3) // one allocation for three fields
	values[0], values[1] = "no-store", c.retryValue(&d)
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

// retryValue returns the value of Retry-After or, if d is Never, of X-Should-Retry, which
// clients of Stripe, OpenAI and heed read.
func (c *compiled) retryValue(d *Denial) string {
	switch {
	case d.Never:
		return "false"
	case c.RetryAfterDate: // rounded up, because a date has whole seconds
		return time.Now().Add(d.RetryAfter + time.Second - 1).UTC().Format(http.TimeFormat)
	default:
		return strconv.FormatInt(d.seconds(), 10)
	}
}

// seconds returns the value of Retry-After (RFC 9110, section 10.2.3). It is rounded up,
// because a client that comes early is denied again, and never 0, which means "now".
func (d *Denial) seconds() int64 { return max(1, ceil(d.RetryAfter, time.Second)) }

// millis returns the same in milliseconds.
func (d *Denial) millis() int64 { return max(1, ceil(d.RetryAfter, time.Millisecond)) }

// ceil returns d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// A denialWriter passes on the body that Config.Deny writes, but always the denial's status.
type denialWriter struct {
	http.ResponseWriter
	status int
	head   bool // the request was a HEAD
	wrote  bool // the header was written
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

// Flush implements http.Flusher.
func (w *denialWriter) Flush() {
	w.WriteHeader(w.status)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap supports http.ResponseController.
func (w *denialWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
