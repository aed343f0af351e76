package contract

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// An Exchange is one request as a server received it, and the answer. The clauses need only some of
// the fields: in a log made by hand, fill in what you know.
type Exchange struct {
	// Key is what limits and cool-downs apply to, such as a customer's name. If empty, it is the
	// scheme and host of URL.
	Key string

	Method string
	URL    string      // absolute: http://host/path?query
	Header http.Header // of the request
	Remote string      // the peer's address

	BodyLength int64  // how many bytes of the request's body were read
	BodySHA256 string // of the request's body, in hex; empty if it was not read to its end
	BodyUnread bool   // there was a body, but nothing of it was read

	Arrived  time.Time // when the request's header had been read
	Answered time.Time // when the response's header was sent; if zero, Arrived
	Finished time.Time // when the server had finished; zero if it has not

	// ArrivalNo and AnswerNo number the arrivals and answers of a log from 1, in the order in which
	// they happened. They order events at the same time, as in a synctest bubble. If they are zero,
	// the order of the log counts.
	ArrivalNo, AnswerNo int64

	Status         int         // 0 if there is no answer, or not yet
	Dropped        bool        // the connection was closed without an answer
	ResponseHeader http.Header // as it was sent
	ResponseBody   []byte      // its beginning
	ResponseLength int64       // the body's length; ResponseBody may be shorter
}

// key is what limits of e apply to.
func (e *Exchange) key() string {
	if e.Key != "" {
		return e.Key
	}
	return e.origin()
}

// origin is the scheme and host of e's URL.
func (e *Exchange) origin() string {
	scheme, rest, ok := strings.Cut(e.URL, "://")
	if !ok {
		return ""
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		return strings.ToLower(scheme + "://" + rest[i+1:])
	}
	return strings.ToLower(e.URL[:len(scheme)+len("://")+len(rest)]) // the same string if it is lower already
}

// path is the URL without its secrets: user, password and query.
func (e *Exchange) path() string {
	u, err := url.Parse(e.URL)
	switch {
	case e.URL == "":
		return "(no URL)"
	case err != nil:
		return "(unreadable URL)"
	}
	u.User = nil
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return u.String()
}

// ended returns when e was answered or dropped. ok is false if neither has happened yet.
func (e *Exchange) ended() (at time.Time, ok bool) {
	if e.Status == 0 && !e.Dropped {
		return time.Time{}, false
	}
	for _, at := range []time.Time{e.Answered, e.Finished} {
		if !at.IsZero() {
			return at, true
		}
	}
	return e.Arrived, true
}

// idempotencyKey returns the client's Idempotency-Key, or "".
func (e *Exchange) idempotencyKey() string {
	return cmp.Or(e.Header.Get("Idempotency-Key"), e.Header.Get("X-Idempotency-Key"))
}

// idempotent reports whether e's method is idempotent by RFC 9110 section 9.2.2, or a query by IANA's
// HTTP Method Registry.
func (e *Exchange) idempotent() bool {
	switch e.Method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PROPFIND", "REPORT", "SEARCH", "QUERY":
		return true
	}
	return false
}

// failed reports whether e ended in a way after which clients retry.
func (e *Exchange) failed() bool {
	switch e.Status {
	case 0:
		return e.Dropped
	case 408, 425, 429:
		return true
	}
	return e.Status >= 500 || e.Status >= 400 && e.ResponseHeader.Get("Retry-After") != ""
}

// throttled reports whether e was refused because of a limit.
func (e *Exchange) throttled() bool {
	switch e.Status {
	case 429:
		return true
	case 403, 413, 418, 420, 430, 529:
		return e.ResponseHeader.Get("Retry-After") != ""
	}
	return false
}

// succeeded reports whether e was answered well: the server works, and had capacity for it.
func (e *Exchange) succeeded() bool { return e.Status > 0 && e.Status < 500 && !e.throttled() }

// An event is the arrival of a request, or its answer.
type event struct {
	at     time.Time
	no     int64
	i      int // which exchange of the log
	answer bool
}

// events returns the arrivals and answers of log in their order.
func events(log []Exchange) []event {
	all := make([]event, 0, 2*len(log))
	for i := range log {
		all = append(all, event{at: log[i].Arrived, no: log[i].ArrivalNo, i: i})
		if at, ok := log[i].ended(); ok {
			all = append(all, event{at: at, no: log[i].AnswerNo, i: i, answer: true})
		}
	}
	slices.SortFunc(all, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.no, b.no), cmp.Compare(a.i, b.i), arrivalFirst(a, b))
	})
	return all
}

func arrivalFirst(a, b event) int {
	switch {
	case a.answer == b.answer:
		return 0
	case b.answer:
		return -1
	}
	return 1
}
