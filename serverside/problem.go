package serverside

import (
	"net/http"
	"strconv"
)

// Problem types (RFC 9457, section 3.1.1) in the problem documents of denials.
const (
	// ProblemQuota means that a quota is used up. It is quota-exceeded in
	// draft-ietf-httpapi-ratelimit-headers-11, section 5.
	ProblemQuota = "https://iana.org/assignments/http-problem-types#quota-exceeded"

	// ProblemOutage means that the limiter cannot check the quota, or that the server is
	// overloaded. It is temporary-reduced-capacity in the same draft.
	ProblemOutage = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	// ProblemInFlight means that Rule.MaxInFlight requests are being served already.
	ProblemInFlight = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemInFlight"

	// ProblemPenalty means that a Penalty blocks the client.
	ProblemPenalty = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemPenalty"

	// ProblemUnread means that the body does not contain the key to charge: it is too long,
	// lacks the value, or has different ones.
	ProblemUnread = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemUnread"

	// ProblemBlocked means that the key is blocked. Retrying does not help.
	ProblemBlocked = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemBlocked"

	// ProblemNever means that the request costs more than its quota ever holds. Retrying it
	// does not help.
	ProblemNever = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemNever"
)

// appendProblem appends a problem document (RFC 9457), which does not identify the client. It
// is written by hand because a flood of requests causes many of them.
func (d *Denial) appendProblem(b []byte) []byte {
	switch {
	case d.Unread && d.Status == http.StatusRequestEntityTooLarge:
		b = appendKind(b, ProblemUnread, "Content Too Large", d.Status)
		b = append(b, "The body is longer than 64 KiB."...)
	case d.Unread:
		b = appendKind(b, ProblemUnread, "Bad Request", d.Status)
		b = append(b, "The body lacks the value that this limit counts by, or has different ones."...)
	case d.Blocked:
		b = appendKind(b, ProblemBlocked, "Blocked", d.Status)
		b = append(b, "The server refuses all requests of this client."...)
	case d.Penalized:
		b = appendKind(b, ProblemPenalty, "Temporarily Blocked", d.Status)
		b = append(b, "The client is blocked after too many failures or denials."...)
	case d.InFlight:
		b = appendKind(b, ProblemInFlight, "Too Many Requests at Once", d.Status)
		b = append(b, "The client has too many requests in flight. The limit is "...)
		b = append(strconv.AppendInt(b, d.Quota, 10), '.')
	case d.Outage:
		b = appendKind(b, ProblemOutage, "Service Unavailable", d.Status)
		b = append(b, "Requests cannot be counted at the moment."...)
	case d.Status == http.StatusServiceUnavailable:
		b = appendKind(b, ProblemOutage, "Service Unavailable", d.Status)
		b = append(b, "The server is overloaded."...)
	case d.Never:
		b = appendKind(b, ProblemNever, "Request Exceeds Quota", d.Status)
		b = append(b, "The request costs more than the quota ever holds: "...)
		b = append(d.appendNames(b, ", "), '.')
	default:
		b = appendKind(b, ProblemQuota, "Quota Exceeded", d.Status)
		b = append(b, "The quota is used up: "...)
		b = append(d.appendNames(b, ", "), '.')
	}
	if !d.Never {
		b = strconv.AppendInt(append(b, " Retry in "...), d.seconds(), 10)
		b = append(b, " s."...)
	}
	if len(d.Policies) > 0 {
		b = append(b, `","violated-policies":["`...)
		b = append(d.appendNames(b, `","`), `"]`...)
	} else {
		b = append(b, '"')
	}
	if !d.Never { // Retry-After rounds this up to seconds
		b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), d.millis(), 10)
	}
	if d.FitsNow > 0 {
		b = strconv.AppendInt(append(b, `,"cost":`...), d.Cost, 10)
		b = strconv.AppendInt(append(b, `,"fits_now":`...), d.FitsNow, 10)
	}
	return append(b, "}\n"...)
}

// appendKind appends the document up to the beginning of its detail.
func appendKind(b []byte, kind, title string, status int) []byte {
	b = append(append(b, `{"type":"`...), kind...)
	b = append(append(b, `","title":"`...), title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(status), 10)
	return append(b, `,"detail":"`...)
}

// appendNames appends the names of d's policies inside a JSON string. They are printable ASCII,
// so only two characters need escapes.
func (d *Denial) appendNames(b []byte, separator string) []byte {
	for i, name := range d.Policies {
		if i > 0 {
			b = append(b, separator...)
		}
		for _, c := range []byte(name) {
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
	}
	return b
}
