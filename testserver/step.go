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

// A Step is how a Server answers one request. The zero Step is a 200 without a
// body.
type Step struct {
	Status     int           // of the response; if 0, 200
	Header     http.Header   // of the response, beside what net/http adds; it may hold a Retry-After that is a date, or nonsense
	Body       string        // of the response
	RetryAfter time.Duration // if positive, Retry-After says so, in whole seconds rounded up
	Delay      time.Duration // before the answer, or before the connection is dropped

	// Drop closes the connection without an answer. The other fields but Delay
	// and Times mean nothing then. net/http's own Transport at once repeats a
	// request without a body that was dropped on a connection it had used
	// before; that is one more arrival.
	Drop bool

	// Times is how many requests are answered in this way. If 0, one; if
	// negative, all that are to come.
	Times int
}

// done is the Step after the last.
var done = Step{Body: "ok\n"}

// fault reports what net/http could not send.
func (s Step) fault() error {
	switch {
	case s.Status != 0 && (s.Status < 100 || s.Status > 999):
		return fmt.Errorf("its Status is %d, which is no status", s.Status)
	case 100 <= s.Status && s.Status < 200:
		return fmt.Errorf("its Status is %d, which is no answer", s.Status)
	case s.RetryAfter < 0:
		return fmt.Errorf("its RetryAfter is %v, less than 0", s.RetryAfter)
	case s.Delay < 0:
		return fmt.Errorf("its Delay is %v, less than 0", s.Delay)
	}
	return nil
}

// checked returns a copy of steps. It fails the test because of one that cannot
// be.
func checked(t testing.TB, where string, steps []Step) []Step {
	t.Helper()
	for i, step := range steps {
		if err := step.fault(); err != nil {
			t.Fatalf("testserver: %s: step %d: %v", where, i+1, err)
		}
	}
	return slices.Clone(steps)
}

// play answers r. It reads the body first, unless the client waits to hear
// whether it should send one that would be refused: then it is not asked for.
func (s Step) play(w http.ResponseWriter, r *http.Request, stop <-chan struct{}) {
	if r.Header.Get("Expect") == "" || s.Status < 400 {
		_, _ = io.Copy(io.Discard, r.Body) // if the client breaks off, there is nobody left to tell
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

// A script hands out its steps in the order in which requests arrive.
type script struct {
	stop <-chan struct{}

	mu    sync.Mutex // guards what follows
	steps []Step
	used  int // how many requests the first step has answered
}

func (s *script) next() Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) == 0 {
		return done
	}
	step := s.steps[0]
	if s.used++; step.Times >= 0 && s.used >= step.Times {
		s.steps, s.used = s.steps[1:], 0
	}
	return step
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.next().play(w, r, s.stop) }
