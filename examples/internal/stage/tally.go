package stage

import (
	"net/http"
	"time"
)

// A Tally is what can be counted in a log.
type Tally struct {
	Begun    int           // jobs that were asked for
	Done     int           // jobs that were answered with 200
	Requests int           // arrivals
	Refused  int           // 429s
	Took     time.Duration // from the first arrival to the last answer
	Seconds  []Second      // the arrivals, from the first one on
}

// A Second is how many requests arrived in it, by how they were answered.
type Second struct {
	Admitted, Refused int
}

// Arrivals are those of both kinds.
func (s Second) Arrivals() int { return s.Admitted + s.Refused }

// TallyOf counts log, which is in the order of arrival.
func TallyOf(log []Arrival) Tally {
	t := Tally{Requests: len(log)}
	done := map[string]bool{}
	for _, a := range log {
		done[a.Job] = done[a.Job] || a.Status == http.StatusOK
		if a.Status == http.StatusTooManyRequests {
			t.Refused++
		}
		t.Took = max(t.Took, a.Answered.Sub(log[0].At))
		t.count(a.At.Sub(log[0].At), a.Status)
	}
	t.Begun = len(done)
	for _, ok := range done {
		if ok {
			t.Done++
		}
	}
	return t
}

func (t *Tally) count(at time.Duration, status int) {
	for len(t.Seconds) <= int(at/time.Second) {
		t.Seconds = append(t.Seconds, Second{})
	}
	if s := &t.Seconds[at/time.Second]; status == http.StatusOK {
		s.Admitted++
	} else {
		s.Refused++
	}
}

// Wasted is how many requests did no job.
func (t Tally) Wasted() int { return t.Requests - t.Done }

// RetriesPerJob is how many requests a job took beside the first one.
func (t Tally) RetriesPerJob() float64 {
	return float64(t.Requests-t.Begun) / float64(max(1, t.Begun))
}

// WastedPercent is wasted as a part of all requests, rounded.
func (t Tally) WastedPercent() int {
	return (200*t.Wasted() + t.Requests) / max(1, 2*t.Requests)
}

// Busiest is the most arrivals of a second.
func (t Tally) Busiest() (most int) {
	for _, s := range t.Seconds {
		most = max(most, s.Arrivals())
	}
	return most
}
