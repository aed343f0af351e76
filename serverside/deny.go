package serverside

import (
	"net/http"
	"strconv"
	"time"
)

// outageWait is what a client is told to wait while the Store fails: about as
// long as it takes to ask again.
const outageWait = time.Second

// A Denial is a request that is not admitted.
type Denial struct {
	// Status is 429, or 503 if the Store failed and the rule fails closed.
	Status int

	// RetryAfter is how long it is until a request of the same cost fits. In the
	// header it is rounded up to a second.
	RetryAfter time.Duration

	// Never is that it costs more than the quota ever holds: RetryAfter is 0,
	// and the header tells not to retry.
	Never bool

	// Rule is the name of the rule that denies; of several, of the one with the
	// longest wait.
	Rule string

	// Policies are the names, as in the RateLimit field, of all policies that
	// deny. It is empty if Status is 503.
	Policies []string
}

// denial sums up what denies a request.
func (t *trial) denial() Denial {
	return Denial{
		Status:     http.StatusTooManyRequests,
		RetryAfter: t.decisions[0].RetryAfter,
		Never:      t.decisions[0].Never,
		Rule:       t.policies[0].rule.name,
		Policies:   t.names(),
	}
}

func outageOf(r *rule) Denial {
	return Denial{Status: http.StatusServiceUnavailable, RetryAfter: outageWait, Rule: r.name}
}

// refuse answers with d. It does not touch the body of r.
func (p *plan) refuse(w http.ResponseWriter, r *http.Request, d Denial) {
	h, values := w.Header(), make([]string, 3) // each in a place of its own
	values[0], values[1] = "no-store", d.advice()
	h["Cache-Control"] = values[0:1:1]
	if d.Never {
		h.Del("Retry-After")
		h["X-Should-Retry"] = values[1:2:2]
	} else {
		h["Retry-After"] = values[1:2:2]
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
func (d *Denial) advice() string {
	if d.Never {
		return "false"
	}
	return strconv.FormatInt(d.seconds(), 10)
}

// seconds is what Retry-After says (RFC 9110, section 10.2.3): rounded up, for a
// client that comes early is denied again, and never 0, for that says "now".
func (d *Denial) seconds() int64 { return max(1, ceil(d.RetryAfter, time.Second)) }

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
