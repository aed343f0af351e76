package ratelimit

import (
	"net/http"
	"strings"
	"time"
)

// A clock turns the times in a response into waits. It measures them against the server's
// clock, because the server wrote them by that clock.
type clock struct {
	local  time.Time // when the response was received; if zero, time.Now
	server time.Time // the same instant by the server's clock
	known  bool      // whether server is set
}

// until returns the time until t, in [0, maxWait]. h is the response's header.
func (c *clock) until(t time.Time, h http.Header) time.Duration {
	if !c.known {
		c.server, c.known = serverTime(h, c.now()), true
	}
	wait := t.Sub(c.server)
	if wait > 24*time.Hour {
		// The server's clock is not set. t may still come from another machine, whose
		// clock is.
		if local := t.Sub(c.now()); 0 <= local && local <= 24*time.Hour {
			wait = local
		}
	}
	return min(max(wait, 0), maxWait)
}

// now returns when the response was received. It reads the system clock only if it has
// to; few responses need it.
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

// age reads Age, which is 1*DIGIT. RFC 9111, section 5.1: the first of several values
// counts, and an invalid one is ignored.
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
