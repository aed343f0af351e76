package heed

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"

	"github.com/heedhttp/heed/ratelimit"
)

// RandomIdempotencyKey returns 122 random bits in the form of a UUID (RFC 9562,
// section 5.4), for RetryPolicy.IdempotencyKey.
func RandomIdempotencyKey(*http.Request) string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// marks reports whether a request is not sent as the caller gave it.
func (p *RetryPolicy) marks(req *http.Request) bool {
	return p.TellServer || p.IdempotencyKey != nil && !idempotent(req)
}

// mark decides what the attempts of the call say that the caller's request does not.
func (c *call) mark() {
	if c.policy.IdempotencyKey != nil && !idempotent(c.req) {
		c.idempotencyKey = c.policy.IdempotencyKey(c.req)
	}
}

// marked reports whether they say anything.
func (c *call) marked() bool { return c.policy.TellServer || c.idempotencyKey != "" }

// writeMarks has the next attempt say it. The header is that attempt's alone: the one
// before may still be being sent.
func (c *call) writeMarks(out *http.Request) {
	header := maps.Clone(out.Header)
	if header == nil {
		return // Base knows what to say
	}
	if c.idempotencyKey != "" {
		header["Idempotency-Key"] = []string{c.idempotencyKey}
	}
	if c.policy.TellServer {
		ratelimit.SetCall(header, ratelimit.Call{Attempt: c.number + 1, TimeLeft: c.timeLeft()})
	}
	out.Header = header
}
