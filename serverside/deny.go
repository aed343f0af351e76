package serverside

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Problem types (RFC 9457, section 3.1.1) of denials.
const (
	// ProblemQuota is that a quota is used up. It is the quota-exceeded of
	// draft-ietf-httpapi-ratelimit-headers-11, section 5.
	ProblemQuota = "https://iana.org/assignments/http-problem-types#quota-exceeded"

	// ProblemOutage is that the limiter cannot tell whether a quota is used up.
	// It is the temporary-reduced-capacity of the same draft.
	ProblemOutage = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	// ProblemNever is that a request costs more than its quota ever holds: the
	// same request will not be admitted, however long it waits.
	ProblemNever = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemNever"
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
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if d.Never {
		h.Del("Retry-After")
		h.Set("X-Should-Retry", "false") // as Stripe's, OpenAI's and heed's clients read it
	} else {
		h.Set("Retry-After", strconv.FormatInt(d.seconds(), 10))
	}
	body := &denialWriter{ResponseWriter: w, status: d.Status, head: r.Method == http.MethodHead}
	if p.Deny != nil {
		p.Deny(body, r, d)
	} else {
		h.Set("Content-Type", "application/problem+json")
		body.Write(d.problem())
	}
	body.WriteHeader(d.Status)
}

// seconds is what Retry-After says (RFC 9110, section 10.2.3): rounded up, for a
// client that comes early is denied again, and never 0, for that says "now".
func (d Denial) seconds() int64 { return max(1, ceil(d.RetryAfter, time.Second)) }

// ceil is d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// A problem is a problem document (RFC 9457). It says nothing about who the
// client is.
type problem struct {
	Type         string   `json:"type"`
	Title        string   `json:"title"`
	Status       int      `json:"status"`
	Detail       string   `json:"detail"`
	Policies     []string `json:"violated-policies,omitempty"`
	RetryAfterMS int64    `json:"retry_after_ms,omitempty"` // Retry-After is this in seconds, rounded up
}

func (d Denial) problem() []byte {
	p := problem{Status: d.Status, Policies: d.Policies}
	if !d.Never {
		p.RetryAfterMS = max(1, ceil(d.RetryAfter, time.Millisecond))
	}
	switch {
	case d.Status == http.StatusServiceUnavailable:
		p.Type, p.Title = ProblemOutage, "Service Unavailable"
		p.Detail = fmt.Sprintf("Requests cannot be counted at the moment. Retry in %d s.", d.seconds())
	case d.Never:
		p.Type, p.Title = ProblemNever, "Request Exceeds Quota"
		p.Detail = fmt.Sprintf("The request costs more than the quota ever holds: %s.", strings.Join(d.Policies, ", "))
	default:
		p.Type, p.Title = ProblemQuota, "Quota Exceeded"
		p.Detail = fmt.Sprintf("The quota is used up: %s. Retry in %d s.", strings.Join(d.Policies, ", "), d.seconds())
	}
	body, _ := json.Marshal(p) // strings and integers always can be
	return append(body, '\n')
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
