package heed

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sdkSeenFor is how long it counts that an SDK has repeated a request to a host.
const sdkSeenFor = time.Hour

// learnSDK finds out who may repeat a failed attempt: the SDK that made the request, or heed, because the vendor's
// own SDK would.
func (c *call) learnSDK() {
	a := &c.last
	inBody := a.failedInBody()
	if a.Err == nil && a.Response.StatusCode < 400 && !inBody {
		return
	}
	a.sdkRepeats = !inBody && c.sdkRepeats() // SDKs repeat nothing after a 200
	if !a.sdkRepeats && !a.idempotent() {
		a.vendorRepeats = c.declaredSafe()
	}
}

// sdkRepeats reports whether an SDK above heed makes the attempts of this request, and heed should not
// multiply them.
func (c *call) sdkRepeats() bool {
	attempt, certain := sdkAttempt(c.req.Header)
	switch {
	case attempt == 0:
		return false
	case certain || c.server == nil:
		return certain || attempt > 1
	case attempt > 1:
		c.server.sdkRepeated.Store(int64(c.ended))
		return true
	}
	last := c.server.sdkRepeated.Load()
	return last > 0 && c.ended-time.Duration(last) < sdkSeenFor
}

// sdkAttempt returns which attempt of an SDK this request is, from 1, or 0 if no SDK counts. certain is true
// if the fields say that more may follow.
func sdkAttempt(h http.Header) (attempt int, certain bool) {
	if values := h["X-Stainless-Retry-Count"]; len(values) > 0 { // it is 0 also if the SDK never repeats
		if n, err := strconv.Atoi(values[0]); err == nil && 0 <= n && n < 1000 {
			return n + 1, false
		}
	}
	values := h["Amz-Sdk-Request"] // such as attempt=1; max=3
	if len(values) == 0 {
		return 0, false
	}
	n, _ := strconv.Atoi(parameter(strings.ToLower(values[0]), "attempt"))
	most, err := strconv.Atoi(parameter(strings.ToLower(values[0]), "max"))
	if n < 1 || err == nil && most <= 1 {
		return 0, false
	}
	return n, true
}

// declaredSafe reports whether the vendor's own client sends such a request again after such an outcome. What timed
// out may do so once: the answer was probably made, and paid for.
func (c *call) declaredSafe() bool {
	p := c.profile()
	if p == nil || len(p.Repeats) == 0 || hasBody(c.req) && !c.policy.canRewind(c.req) {
		return false
	}
	a, status := &c.last, 0
	if a.Response != nil && !a.failedInBody() {
		status = a.Response.StatusCode
	}
	if !p.Repeatable(c.req, status) {
		return false
	}
	var timeout net.Error
	if a.Err != nil && errors.As(a.Err, &timeout) && timeout.Timeout() {
		c.timeouts++
	}
	return c.timeouts <= 1
}
