package ratelimit

import (
	"net/http"
	"strconv"
	"time"
)

// The fields in which a client tells the server what it cannot know: how often it
// has sent a request, and for how long it will wait for the answer. They are heed's
// own, Integers of RFC 9651, and nobody but a server that is told to reads them. A
// server must not trust them with more than the client could have anyway.
const (
	AttemptField  = "Heed-Attempt"   // 1 for the first attempt of a request, 2 for the next
	TimeLeftField = "Heed-Time-Left" // milliseconds, from when the request was sent
)

// A Call is what a client tells of its call. The zero Call tells nothing.
type Call struct {
	Attempt  int           // 1 for the first; 0 if unknown
	TimeLeft time.Duration // until the client gives up; 0 if unknown, or if it has, or never will
}

// SetCall writes what is known of c into the header of a request. TimeLeft is
// rounded down to a millisecond, one at least, and at most 999999999999999.
func SetCall(h http.Header, c Call) {
	if c.Attempt > 0 {
		h[AttemptField] = []string{strconv.Itoa(c.Attempt)}
	}
	if c.TimeLeft > 0 {
		h[TimeLeftField] = []string{strconv.FormatInt(min(max(1, c.TimeLeft.Milliseconds()), maxInteger), 10)}
	}
}

// ParseCall reads what a request tells. What is malformed, negative, or there more
// than once, counts as unknown.
func ParseCall(h http.Header) Call {
	attempt, _ := integer(h[AttemptField])
	left, _ := integer(h[TimeLeftField])
	return Call{int(min(attempt, 1<<31-1)), time.Duration(min(left, int64(maxWait/time.Millisecond))) * time.Millisecond}
}

// integer reads one that is not negative.
func integer(values []string) (n int64, ok bool) {
	if len(values) != 1 || len(values[0]) == 0 || len(values[0]) > 15 {
		return 0, false
	}
	for _, c := range []byte(values[0]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
