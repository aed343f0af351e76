package contract

import (
	"net/http"
	"strings"
	"time"
)

// A hint is a server's statement when to come back.
type hint struct {
	i     int           // the index of its exchange
	at    time.Time     // when it was given
	wait  time.Duration // how long to wait from there
	until time.Time     // the end of the wait
	date  bool          // it was an HTTP-date
	spent bool          // a field says that nothing is left
}

// maxWait is the longest wait: 2^31 s, as for delta-seconds in RFC 9111 section 1.2.2.
const maxWait = 1 << 31 * time.Second

// retryAfter returns the hint in e's Retry-After. ok is false unless there is exactly one, which is
// delay-seconds or an HTTP-date.
//
// A date is compared with the response's own Date (RFC 9110 section 6.6.1). Dates have a resolution
// of a second, so both are relative to the second in which the response was sent.
func retryAfter(i int, e *Exchange) (h hint, ok bool) {
	values := e.ResponseHeader.Values("Retry-After")
	at, answered := e.ended()
	if len(values) != 1 || !answered {
		return hint{}, false
	}
	if seconds, ok := digits(values[0]); ok {
		wait := e.unrounded(min(time.Duration(min(seconds, 1<<31))*time.Second, maxWait))
		return hint{i: i, at: at, wait: wait, until: at.Add(wait), spent: leastRemaining(e) == 0}, true
	}
	date, ok := parseDate(values[0], at)
	if !ok {
		return hint{}, false
	}
	until := date
	if server, ok := parseDate(e.ResponseHeader.Get("Date"), at); ok {
		until = at.Truncate(time.Second).Add(min(date.Sub(server), maxWait))
	}
	return hint{i: i, at: at, wait: until.Sub(at), until: until, date: true, spent: leastRemaining(e) == 0}, true
}

// unrounded returns the wait in milliseconds that Retry-After was rounded up from, if a field says
// so, as OpenAI's and Azure's do. A client that waits for that long obeys the server.
func (e *Exchange) unrounded(wait time.Duration) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		values := e.ResponseHeader.Values(name)
		if len(values) != 1 {
			continue
		}
		ms, ok := digits(values[0])
		if exact := time.Duration(min(ms, 1<<41)) * time.Millisecond; ok && exact < wait && wait-exact < time.Second {
			return exact
		}
	}
	return wait
}

// digits reads 1*DIGIT. A number of more than 15 digits, the most that a structured Integer has,
// becomes 999999999999999.
func digits(s string) (n int64, ok bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	if s = strings.TrimLeft(s, "0"); len(s) > 15 {
		return 999_999_999_999_999, true
	}
	for _, c := range []byte(s) {
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// rfc850 is the obsolete format of RFC 9110 section 5.6.7, in GMT only.
const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"

// parseDate reads the three forms of an HTTP-date strictly: formatting the result must give the
// same bytes. now decides the century of a two-digit year.
func parseDate(s string, now time.Time) (time.Time, bool) {
	if strings.Count(s, ":60 ") == 1 { // a leap second
		t, ok := parseDate(strings.Replace(s, ":60 ", ":59 ", 1), now)
		return t.Add(time.Second), ok
	}
	for _, layout := range []string{http.TimeFormat, rfc850, time.ANSIC} {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if layout == rfc850 {
			t = century(t, now)
		}
		if t.Format(layout) == s {
			return t, true
		}
	}
	return time.Time{}, false
}

// century puts t into the latest century in which it is at most 50 years in the future (RFC 9110
// section 5.6.7).
func century(t, now time.Time) time.Time {
	limit := now.AddDate(50, 0, 0)
	in := func(century int) time.Time {
		return time.Date(100*century+t.Year()%100, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
	}
	if latest := in(limit.Year() / 100); !latest.After(limit) {
		return latest
	}
	return in(limit.Year()/100 - 1)
}
