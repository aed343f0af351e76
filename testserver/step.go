package testserver

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A Step is how a Server answers one request, for example
//
//	testserver.Step{Status: 429, RetryAfter: 30 * time.Second, Body: "slow down"}
//
// The zero Step is a 200 without a body.
type Step struct {
	Status     int         // if 0, 200
	Header     http.Header // added to what net/http sends; may have any Retry-After, such as a date or nonsense
	Body       string
	RetryAfter time.Duration // if positive, sent as Retry-After in whole seconds, rounded up
	Delay      time.Duration // before the answer or the drop

	// Drop closes the connection without an answer; all other fields but Delay and Times are
	// ignored. On a reused connection, net/http's own Transport then resends a request without a
	// body at once, which is one more arrival.
	Drop bool

	// Times is how many requests this Step answers. If 0, one; if negative, all that follow.
	Times int
}

// afterLast answers after the last Step.
var afterLast = Step{Body: "ok\n"}

// validate returns an error for what net/http cannot send.
func (s Step) validate() error {
	switch {
	case s.Status != 0 && (s.Status < 200 || s.Status > 999):
		return fmt.Errorf("its Status is %d, want 200 to 999", s.Status)
	case s.RetryAfter < 0:
		return fmt.Errorf("its RetryAfter is %v, must not be negative", s.RetryAfter)
	case s.Delay < 0:
		return fmt.Errorf("its Delay is %v, must not be negative", s.Delay)
	}
	return nil
}

// validated returns a copy of steps. It fails the test if one is invalid.
func validated(t testing.TB, where string, steps []Step) []Step {
	t.Helper()
	for i, step := range steps {
		if err := step.validate(); err != nil {
			t.Fatalf("testserver: %s: step %d: %v", where, i+1, err)
		}
	}
	return slices.Clone(steps)
}

// play answers r. It reads the body first, unless the client expects 100 Continue for a request
// that is refused.
func (s Step) play(w http.ResponseWriter, r *http.Request, stop <-chan struct{}) {
	if r.Header.Get("Expect") == "" || s.Status < 400 {
		_, _ = io.Copy(io.Discard, r.Body) // an error here means that the client is gone
	}
	if !sleep(r, s.Delay, stop) || s.Drop {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	for name, values := range s.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	if s.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((s.RetryAfter-1)/time.Second)+1, 10))
	}
	w.WriteHeader(cmp.Or(s.Status, http.StatusOK))
	_, _ = io.WriteString(w, s.Body)
}

// sleep reports whether the client and the server are still there after d.
func sleep(r *http.Request, d time.Duration, stop <-chan struct{}) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-stop:
	}
	return false
}

// A script gives its steps to requests in the order of their arrival.
type script struct {
	stop <-chan struct{}

	mu    sync.Mutex // guards the fields below
	steps []Step
	used  int // how many requests the first step has answered
}

func (s *script) next() Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) == 0 {
		return afterLast
	}
	step := s.steps[0]
	if s.used++; step.Times >= 0 && s.used >= step.Times {
		s.steps, s.used = s.steps[1:], 0
	}
	return step
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.next().play(w, r, s.stop) }
