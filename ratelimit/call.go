package ratelimit

import (
	"net/http"
	"strconv"
	"time"
)

// The request fields in which a client tells the server how often it has sent a request
// and how long it will wait for the answer. They are heed's own, and Integers of RFC
// 9651. Servers ignore them unless configured to read them, and must not trust them with
// anything that the client could not have anyway.
const (
	AttemptField  = "Heed-Attempt"   // 1 for the first attempt of a request, 2 for the next
	TimeLeftField = "Heed-Time-Left" // milliseconds, from when the request was sent
)

// A Call is what a request says about itself. The zero Call says nothing.
type Call struct {
	Attempt  int           // 1 for the first attempt; 0 if unknown
	TimeLeft time.Duration // until the client gives up; 0 if unknown, or if the client never gives up or already has
}

// SetCall writes the known fields of c into a request header. It rounds TimeLeft down to
// a millisecond, with a minimum of 1 and a maximum of 999999999999999.
func SetCall(h http.Header, c Call) {
	if c.Attempt > 0 {
		h[AttemptField] = []string{strconv.Itoa(c.Attempt)}
	}
	if c.TimeLeft > 0 {
		h[TimeLeftField] = []string{strconv.FormatInt(min(max(1, c.TimeLeft.Milliseconds()), maxInteger), 10)}
	}
}

// ParseCall reads the fields that SetCall writes. A malformed, negative or repeated field
// counts as unknown.
func ParseCall(h http.Header) Call {
	attempt, _ := integer(h[AttemptField])
	left, _ := integer(h[TimeLeftField])
	return Call{
		int(min(attempt, 1<<31-1)),
		time.Duration(min(left, int64(maxWait/time.Millisecond))) * time.Millisecond,
	}
}

// integer reads a non-negative Integer. ok is false if there is not exactly one.
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
