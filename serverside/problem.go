package serverside

import (
	"net/http"
	"strconv"
)

// Problem types (RFC 9457, section 3.1.1) of denials.
const (
	// ProblemQuota is that a quota is used up. It is the quota-exceeded of
	// draft-ietf-httpapi-ratelimit-headers-11, section 5.
	ProblemQuota = "https://iana.org/assignments/http-problem-types#quota-exceeded"

	// ProblemOutage is that the limiter cannot tell whether a quota is used up.
	// It is the temporary-reduced-capacity of the same draft.
	ProblemOutage = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	// ProblemInFlight is that as many requests are being served as may be at once.
	ProblemInFlight = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemInFlight"

	// ProblemPenalty is that the client is kept out for what it did before.
	ProblemPenalty = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemPenalty"

	// ProblemUnread is that the body of a request does not say whose quota it is charged
	// to: it is too long, or says it not at all, or in two ways.
	ProblemUnread = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemUnread"

	// ProblemNever is that a request costs more than its quota ever holds: the
	// same request will not be admitted, however long it waits.
	ProblemNever = "https://pkg.go.dev/github.com/heedhttp/heed/serverside#ProblemNever"
)

// appendProblem appends a problem document (RFC 9457), which says nothing about
// who the client is. It is written by hand because denials must cost little: they
// are what a flood of requests gets.
func (d *Denial) appendProblem(b []byte) []byte {
	switch {
	case d.Unread && d.Status == http.StatusRequestEntityTooLarge:
		b = appendKind(b, ProblemUnread, "Content Too Large", d.Status)
		b = append(b, "The body is longer than 64 KiB."...)
	case d.Unread:
		b = appendKind(b, ProblemUnread, "Bad Request", d.Status)
		b = append(b, "The body does not say, or says in two ways, whose request it is."...)
	case d.Penalized:
		b = appendKind(b, ProblemPenalty, "Kept Out for Now", d.Status)
		b = append(b, "There were too many failures or denials."...)
	case d.InFlight:
		b = appendKind(b, ProblemInFlight, "Too Many Requests at Once", d.Status)
		b = append(b, "As many requests are being served as may be at once: "...)
		b = append(strconv.AppendInt(b, d.Quota, 10), '.')
	case d.Outage:
		b = appendKind(b, ProblemOutage, "Service Unavailable", d.Status)
		b = append(b, "Requests cannot be counted at the moment."...)
	case d.Status == http.StatusServiceUnavailable:
		b = appendKind(b, ProblemOutage, "Service Unavailable", d.Status)
		b = append(b, "The server has more to do than it can."...)
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
	if !d.Never { // Retry-After is this in seconds, rounded up
		b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), d.millis(), 10)
	}
	if d.FitsNow > 0 {
		b = strconv.AppendInt(append(b, `,"cost":`...), d.Cost, 10)
		b = strconv.AppendInt(append(b, `,"fits_now":`...), d.FitsNow, 10)
	}
	return append(b, "}\n"...)
}

// appendKind appends the document up to its detail.
func appendKind(b []byte, kind, title string, status int) []byte {
	b = append(append(b, `{"type":"`...), kind...)
	b = append(append(b, `","title":"`...), title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(status), 10)
	return append(b, `,"detail":"`...)
}

// appendNames appends the names of d's policies, as within a string. They are
// printable ASCII, of which JSON escapes two characters.
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
