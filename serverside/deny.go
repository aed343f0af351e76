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

// crowdWait is what a client is told to wait for one that is being served.
const crowdWait = time.Second

// A Denial is a request that is not admitted.
type Denial struct {
	// Status is 429; or 503 if a rule of the Overload stage with that Status
	// denies, or for an Outage, if Config.ClosedStatus does not say otherwise.
	Status int

	// RetryAfter is how long it is until a request of the same cost fits. In the
	// header it is rounded up to a second. Of what is in flight nobody knows, so it
	// is a second.
	RetryAfter time.Duration

	// Never is that it costs more than the quota ever holds: RetryAfter is 0,
	// and the header tells not to retry.
	Never bool

	// InFlight is that as many requests as may be are being served.
	InFlight bool

	// Penalized is that a Penalty keeps the client out.
	Penalized bool

	// Outage is that the Store failed, and the rule fails closed.
	Outage bool

	// Rule is the name of the rule that denies: of several, of the first that was
	// asked.
	Rule string

	// Policies are the names, as in the RateLimit field, of all policies that
	// deny, the one with the longest wait first. It is empty if the Store failed,
	// and for what is in flight.
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

// first returns the first of t's policies in the order in which rules are asked.
func (t *trial) first() *policy {
	first := t.policies[0]
	for _, p := range t.policies[1:] {
		if p.rule.order < first.rule.order {
			first = p
		}
	}
	return first
}

// denial sums up what denies a request: the policies of denials, which told is
// part of.
func (denials *trial) denial(told *trial) Denial {
	rule, longest, d := denials.first().rule, denials.policies[0], &denials.decisions[0]
	return Denial{
		Status:     rule.status,
		RetryAfter: d.RetryAfter,
		Never:      d.Never,
		Penalized:  longest.hidden,
		Rule:       rule.name,
		Policies:   denials.names(),
		Quota:      longest.fields.Quota,
		Window:     longest.fields.Window,
		ResetAt:    d.At.Add(d.ResetAfter),
		Cost:       denials.charges[0].Units(),
		FitsNow:    told.fitsNow(),
	}
}

// fitsNow is the least that is left of any policy.
func (t *trial) fitsNow() int64 {
	least := t.decisions[0].Remaining
	for i := range t.decisions {
		least = min(least, t.decisions[i].Remaining)
	}
	return least
}

// outageOf is that nobody knows whether r would deny.
func (p *plan) outageOf(r *rule) Denial {
	return Denial{Status: cmp.Or(p.ClosedStatus, http.StatusServiceUnavailable), RetryAfter: outageWait, Outage: true, Rule: r.name}
}

// crowdOf is that as many requests as r allows are being served.
func crowdOf(r *rule) Denial {
	return Denial{Status: r.status, RetryAfter: crowdWait, InFlight: true, Rule: r.name, Quota: r.inFlight, Cost: 1}
}

// refuse answers with d. It does not touch the body of r.
func (p *plan) refuse(w http.ResponseWriter, r *http.Request, d Denial) {
	h, values := w.Header(), make([]string, 3) // each in a place of its own
	values[0], values[1] = "no-store", p.advice(&d)
	h["Cache-Control"] = values[0:1:1]
	if d.Never {
		h.Del("Retry-After")
		h["X-Should-Retry"] = values[1:2:2]
	} else {
		h["Retry-After"] = values[1:2:2]
	}
	if p.RetryAfterMS && !d.Never {
		h["Retry-After-Ms"] = []string{strconv.FormatInt(d.millis(), 10)}
	}
	head := r.Method == http.MethodHead
	if p.Deny != nil {
		body := &denialWriter{ResponseWriter: w, status: d.Status, head: head}
		p.Deny(body, r, d)
		body.WriteHeader(d.Status)
		return
	}
	values[2] = "application/problem+json"
	h["Content-Type"] = values[2:3:3]
	w.WriteHeader(d.Status)
	if !head {
		w.Write(d.appendProblem(make([]byte, 0, 320)))
	}
}

// advice is what Retry-After says, or X-Should-Retry as Stripe's, OpenAI's and
// heed's clients read it.
func (p *plan) advice(d *Denial) string {
	switch {
	case d.Never:
		return "false"
	case p.RetryAfterDate: // a second more, since a date has no fraction
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
