package serverside

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Bodies of denials for Config.Deny, in the formats that many APIs use. Their numbers equal
// those of the header. Their code is rate_limited if a quota is used up, and otherwise
// service_unavailable, too_many_at_once or cost_exceeds_limit, in the case that the format
// uses.

// EnvelopeBody is a Config.Deny that writes
//
//	{"error":{"code":"rate_limited","message":"Too many requests. Retry after 12 seconds.","request_id":"01HXY"}}
//
// The request_id is X-Request-Id of the response or else of the request. It is left out if
// there is none.
func EnvelopeBody(w http.ResponseWriter, r *http.Request, d Denial) {
	id := w.Header().Get("X-Request-Id")
	if id == "" {
		id = r.Header.Get("X-Request-Id")
	}
	if len(id) > maxRequestID {
		id = ""
	}
	type fault struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		ID      string `json:"request_id,omitempty"`
	}
	f := fault{d.code("rate_limited"), d.message("Too many requests."), id}
	writeJSON(w, "application/json", map[string]fault{"error": f})
}

// maxRequestID is the length of the longest request_id that is sent back.
const maxRequestID = 128

// LimitBody is a Config.Deny that writes
//
//	{"error":{"code":"rate_limit_exceeded","message":"Rate limit exceeded. Maximum 1000 requests per hour.",
//	 "retry_after":30,"limit":1000,"reset_at":"2025-07-01T12:00:00Z"}}
func LimitBody(w http.ResponseWriter, _ *http.Request, d Denial) {
	type fault struct {
		Code       string `json:"code"`
		Message    string `json:"message"`
		RetryAfter int64  `json:"retry_after,omitempty"`
		Limit      int64  `json:"limit,omitempty"`
		ResetAt    string `json:"reset_at,omitempty"`
	}
	f := fault{
		Code: d.code("rate_limit_exceeded"), Limit: d.Quota,
		Message: d.reason("Rate limit exceeded. Maximum " + requests(d.Quota, d.Window) + "."),
	}
	if !d.Never {
		f.RetryAfter = d.seconds()
	}
	if !d.ResetAt.IsZero() { // rounded up, as in the header
		f.ResetAt = d.ResetAt.Add(time.Second - 1).UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	writeJSON(w, "application/json", map[string]fault{"error": f})
}

// DetailBody is a Config.Deny that writes
//
//	{"detail":"Rate limit exceeded. Please try again later."}
func DetailBody(w http.ResponseWriter, _ *http.Request, d Denial) {
	writeJSON(w, "application/json", map[string]string{"detail": d.reason("Rate limit exceeded.") + " " + d.advice()})
}

// FlatBody is a Config.Deny that writes
//
//	{"error":"Rate limit exceeded","message":"Please try again later","retryAfter":12}
func FlatBody(w http.ResponseWriter, _ *http.Request, d Denial) {
	type body struct {
		Error      string `json:"error"`
		Message    string `json:"message"`
		RetryAfter int64  `json:"retryAfter,omitempty"`
	}
	b := body{trimDot(d.reason("Rate limit exceeded.")), trimDot(d.advice()), d.seconds()}
	if d.Never {
		b.RetryAfter = 0
	}
	writeJSON(w, "application/json", b)
}

// CodedProblem returns a Config.Deny that writes a problem document (RFC 9457) with a code. Its
// type is uri:
//
//	{"type":"https://example.com/errors/rate_limited","title":"Rate Limited","status":429,
//	 "detail":"Rate limit exceeded: 51 requests per second exceeded (limit: 50)","code":"RATE_LIMITED"}
func CodedProblem(uri string) func(http.ResponseWriter, *http.Request, Denial) {
	type problem struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Code   string `json:"code"`
	}
	return func(w http.ResponseWriter, _ *http.Request, d Denial) {
		limited := fmt.Sprintf("Rate limit exceeded: %s exceeded (limit: %d)", requests(d.Quota+1, d.Window), d.Quota)
		writeJSON(w, "application/problem+json", problem{
			uri, "Rate Limited", d.Status, trimDot(d.reason(limited)), strings.ToUpper(d.code("rate_limited")),
		})
	}
}

// TimedProblem returns a Config.Deny that writes a problem document (RFC 9457) with the wait in
// seconds. Its type is uri:
//
//	{"type":"https://api.example.com/problems/rate-limited","title":"Too Many Requests","status":429,
//	 "detail":"API rate limit exceeded. Limit: 100 requests per minute.","retryAfter":47}
func TimedProblem(uri string) func(http.ResponseWriter, *http.Request, Denial) {
	type problem struct {
		Type       string `json:"type"`
		Title      string `json:"title"`
		Status     int    `json:"status"`
		Detail     string `json:"detail"`
		RetryAfter int64  `json:"retryAfter,omitempty"`
	}
	return func(w http.ResponseWriter, _ *http.Request, d Denial) {
		detail := d.reason("API rate limit exceeded. Limit: " + requests(d.Quota, d.Window) + ".")
		p := problem{uri, http.StatusText(d.Status), d.Status, detail, d.seconds()}
		if d.Never {
			p.RetryAfter = 0
		}
		writeJSON(w, "application/problem+json", p)
	}
}

// code returns the code of d's cause: limited if a quota is used up.
func (d *Denial) code(limited string) string {
	switch {
	case d.Unread && d.Status == http.StatusRequestEntityTooLarge:
		return "content_too_large"
	case d.Unread:
		return "bad_request"
	case d.Blocked:
		return "forbidden"
	case d.Never:
		return "cost_exceeds_limit"
	case d.InFlight:
		return "too_many_at_once"
	case d.Outage, d.Status == http.StatusServiceUnavailable:
		return "service_unavailable"
	default:
		return limited
	}
}

// reason describes d's cause: limited if a quota is used up.
func (d *Denial) reason(limited string) string {
	switch d.code("") {
	case "content_too_large":
		return "The body is too long."
	case "bad_request":
		return "The body does not say whose request it is."
	case "forbidden":
		return "The client is blocked."
	case "cost_exceeds_limit":
		return "The request costs more than the limit ever allows."
	case "too_many_at_once":
		return "Too many requests at once."
	case "service_unavailable":
		return "Service temporarily unavailable."
	default:
		return limited
	}
}

// message returns reason and the wait.
func (d *Denial) message(limited string) string {
	if d.Never {
		return d.reason(limited)
	}
	unit := "seconds"
	if d.seconds() == 1 {
		unit = "second"
	}
	return fmt.Sprintf("%s Retry after %d %s.", d.reason(limited), d.seconds(), unit)
}

// advice returns what a person can do about d.
func (d *Denial) advice() string {
	switch d.code("") {
	case "forbidden":
		return "Please do not try again."
	case "bad_request":
		return "Please correct the request."
	case "content_too_large", "cost_exceeds_limit":
		return "Please send less at once."
	default:
		return "Please try again later."
	}
}

// requests describes n requests per window.
func requests(n int64, window time.Duration) string {
	switch window {
	case 0: // a calendar window
		return fmt.Sprintf("%d requests", n)
	case time.Second:
		return fmt.Sprintf("%d requests per second", n)
	case time.Minute:
		return fmt.Sprintf("%d requests per minute", n)
	case time.Hour:
		return fmt.Sprintf("%d requests per hour", n)
	case 24 * time.Hour:
		return fmt.Sprintf("%d requests per day", n)
	default:
		return fmt.Sprintf("%d requests per %s", n, windowName(quota.Policy{Window: window}))
	}
}

func trimDot(s string) string { return strings.TrimSuffix(s, ".") }

func writeJSON(w http.ResponseWriter, contentType string, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		return // cannot happen: bodies consist of strings and numbers
	}
	w.Header().Set("Content-Type", contentType)
	w.Write(append(b, '\n'))
}
