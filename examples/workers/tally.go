package main

import (
	"net/http"
	"time"
)

// A tally is what can be counted in a log.
type tally struct {
	begun    int           // jobs that were asked for
	done     int           // jobs that were answered with 200
	requests int           // arrivals
	refused  int           // 429s
	took     time.Duration // from the first arrival to the last answer
	seconds  []second      // the arrivals, from the first one on
}

// A second is how many requests arrived in it, by how they were answered.
type second struct {
	admitted, refused int
}

func (s second) arrivals() int { return s.admitted + s.refused }

// tallyOf counts log, which is in the order of arrival.
func tallyOf(log []arrival) tally {
	t := tally{requests: len(log)}
	done := map[string]bool{}
	for _, a := range log {
		done[a.job] = done[a.job] || a.status == http.StatusOK
		if a.status == http.StatusTooManyRequests {
			t.refused++
		}
		t.took = max(t.took, a.answered.Sub(log[0].at))
		t.count(a.at.Sub(log[0].at), a.status)
	}
	t.begun = len(done)
	for _, ok := range done {
		if ok {
			t.done++
		}
	}
	return t
}

func (t *tally) count(at time.Duration, status int) {
	for len(t.seconds) <= int(at/time.Second) {
		t.seconds = append(t.seconds, second{})
	}
	if s := &t.seconds[at/time.Second]; status == http.StatusOK {
		s.admitted++
	} else {
		s.refused++
	}
}

// wasted is how many requests did no job.
func (t tally) wasted() int { return t.requests - t.done }

// retriesPerJob is how many requests a job took beside the first one.
func (t tally) retriesPerJob() float64 {
	return float64(t.requests-t.begun) / float64(max(1, t.begun))
}

// wastedPercent is wasted as a part of all requests, rounded.
func (t tally) wastedPercent() int {
	return (200*t.wasted() + t.requests) / max(1, 2*t.requests)
}

// busiest is the most arrivals of a second.
func (t tally) busiest() (most int) {
	for _, s := range t.seconds {
		most = max(most, s.arrivals())
	}
	return most
}
