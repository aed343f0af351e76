package ratelimit

import (
	"net/http"
	"strings"
	"time"
)

// A clock measures the moments that a response names. The server wrote them by
// its own clock, so that is what they are measured against.
type clock struct {
	local  time.Time // when the response was received; if zero, now
	server time.Time // the same moment by the server's clock
	known  bool      // whether server was read
}

// until returns how long it is until t, in [0, maxWait]. h is the response's.
func (c *clock) until(t time.Time, h http.Header) time.Duration {
	if !c.known {
		c.server, c.known = serverTime(h, c.now()), true
	}
	wait := t.Sub(c.server)
	if wait > 24*time.Hour {
		// A server whose clock was never set may still pass on a target of
		// somebody's whose clock was.
		if local := t.Sub(c.now()); 0 <= local && local <= 24*time.Hour {
			wait = local
		}
	}
	return min(max(wait, 0), maxWait)
}

// now is when the response was received. The clock is read only if a date or a
// Unix time asks for it, which few do.
func (c *clock) now() time.Time {
	if c.local.IsZero() {
		c.local = time.Now()
	}
	return c.local
}

// serverTime returns Date + Age, or now unless exactly one Date line is valid.
func serverTime(h http.Header, now time.Time) time.Time {
	valid, server := 0, now
	for _, line := range h["Date"] {
		if date, ok := parseDate(trim(line), now); ok {
			valid, server = valid+1, date
		}
	}
	if valid != 1 {
		return now
	}
	return server.Add(age(h["Age"]))
}

// age reads Age, which is 1*DIGIT. RFC 9111, section 5.1: of several members
// the first counts, and an invalid one is ignored.
func age(lines []string) time.Duration {
	if len(lines) == 0 {
		return 0
	}
	first, _, _ := strings.Cut(lines[0], ",")
	d, rest, _ := cutDecimal(trim(first))
	if rest != "" || d.fraction != "" {
		return 0
	}
	return d.times(time.Second)
}
