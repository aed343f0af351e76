package stage

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// A journal is a server's log.
type journal struct {
	mu       sync.Mutex // guards arrivals
	arrivals []Arrival
}

// An Arrival is a request as the server saw it.
type Arrival struct {
	Job      string // its path
	At       time.Time
	Status   int // 0 until it is answered
	Answered time.Time
}

// record writes down what h is asked, and what it answers.
func (j *journal) record(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := j.arrived(r.URL.Path, time.Now())
		seen := &witness{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(seen, r)
		j.answered(i, seen.status, time.Now())
	})
}

func (j *journal) arrived(job string, now time.Time) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.arrivals = append(j.arrivals, Arrival{Job: job, At: now})
	return len(j.arrivals) - 1
}

func (j *journal) answered(i, status int, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.arrivals[i].Status, j.arrivals[i].Answered = status, now
}

func (j *journal) soFar() []Arrival {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.arrivals)
}

// A witness sees the status of a response.
type witness struct {
	http.ResponseWriter
	status int
}

func (w *witness) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
