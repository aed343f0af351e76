package lab

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Log is what happened in one run. All times are since its beginning.
type Log struct {
	Calls    []Call
	Attempts []Attempt
	InFlight int // the most calls at the same time
}

// A Call is one that a program made of its client.
type Call struct {
	At   time.Duration
	Took time.Duration
	Wait time.Duration // Took without the call's last attempt
	OK   bool
	Path string // of the request's URL
}

// An Attempt is a request that a client sent, or tried to.
type Attempt struct {
	At     time.Duration
	Status int  // 0 without a response
	Dial   bool // no server was reached: the dial or the look-up failed
	Path   string
}

// ShareLost returns the share of calls that failed, of those that began at a time or later.
func ShareLost(calls []Call, from time.Duration) float64 {
	all, lost := 0, 0
	for _, c := range calls {
		if c.At >= from {
			all++
			if !c.OK {
				lost++
			}
		}
	}
	return float64(lost) / float64(max(all, 1))
}

// Succeeded reports whether a call got a 200.
func Succeeded(resp *http.Response, err error) bool {
	return err == nil && resp.StatusCode == http.StatusOK
}

// A recorder is a RoundTripper that keeps the log.
type recorder struct {
	start  time.Time
	server http.RoundTripper

	mu       sync.Mutex // guards log, inFlight and all attempts
	log      Log
	inFlight int
}

// lastAttempt is the context key, and its value, of a call's last attempt.
type lastAttempt struct{ began, ended time.Duration }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	last, _ := req.Context().Value(lastAttempt{}).(*lastAttempt)
	if last == nil {
		last = &lastAttempt{}
	}
	began := time.Since(r.start)
	r.mu.Lock()
	i := len(r.log.Attempts)
	r.log.Attempts = append(r.log.Attempts, Attempt{At: began, Path: req.URL.Path})
	last.began, last.ended = began, -1
	r.mu.Unlock()

	resp, err := r.server.RoundTrip(req)

	r.mu.Lock()
	defer r.mu.Unlock()
	if last.began == began {
		last.ended = time.Since(r.start)
	}
	if resp != nil {
		r.log.Attempts[i].Status = resp.StatusCode
	}
	var op *net.OpError
	r.log.Attempts[i].Dial = errors.As(err, &op) && op.Op == "dial"
	return resp, err
}

// begin and end are of a call.
func (r *recorder) begin() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight++
	r.log.InFlight = max(r.log.InFlight, r.inFlight)
	return time.Since(r.start)
}

func (r *recorder) end(c Call, last *lastAttempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	now := time.Since(r.start)
	c.Took = now - c.At
	if last.ended < 0 { // the client gave the attempt up
		last.ended = now
	}
	c.Wait = c.Took - (last.ended - last.began)
	r.log.Calls = append(r.log.Calls, c)
}
