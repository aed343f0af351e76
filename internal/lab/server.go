package lab

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A Func is a RoundTripper.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f Func) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Answer returns a response without a body.
func Answer(req *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: http.NoBody, Request: req}
}

// A Reply is what a request gets: an error or a status, after a while.
type Reply struct {
	Err        error
	Status     int
	RetryAfter time.Duration // whole seconds, rounded up, if positive
	Took       time.Duration
}

// A Server says what a request gets that comes at a time since the trouble began. Before that the
// time is negative.
type Server func(at time.Duration, req *http.Request) Reply

// from returns a RoundTripper with a trouble that begins in healthy.
func (s Server) from(healthy time.Duration) http.RoundTripper {
	start := time.Now()
	return Func(func(req *http.Request) (*http.Response, error) {
		reply := s(time.Since(start)-healthy, req)
		if !sleep(req.Context(), reply.Took) {
			return nil, context.Cause(req.Context())
		}
		if reply.Err != nil {
			return nil, reply.Err
		}
		resp := Answer(req, reply.Status)
		if reply.RetryAfter > 0 {
			seconds := (reply.RetryAfter + time.Second - 1) / time.Second
			resp.Header.Set("Retry-After", strconv.Itoa(int(seconds)))
		}
		return resp, nil
	})
}

// sleep reports false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Done() == nil {
		time.Sleep(d)
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// good is the ordinary answer.
func good(random *Random) Reply {
	return Reply{Status: http.StatusOK, Took: 4*time.Millisecond + random.Wait(8*time.Millisecond)}
}

// The ways to fail.
var (
	refused     = Reply{Err: dialError(os.NewSyscallError("connect", syscall.ECONNREFUSED)), Took: time.Millisecond}
	unavailable = Reply{Status: http.StatusServiceUnavailable, Took: 3 * time.Millisecond}
	hang        = Reply{Err: timeoutError{}, Took: 2 * time.Second}
	reset       = Reply{Took: 5 * time.Millisecond,
		Err: &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}}
)

func dialError(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// timeoutError is like the one of http.Transport.ResponseHeaderTimeout.
type timeoutError struct{}

func (timeoutError) Error() string   { return "timeout awaiting response headers" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// A queue is a server that takes a capacity of requests a second, one by one. A request that would
// wait for more than a second gets a 503.
type queue struct {
	capacity func(at time.Duration) float64

	mu   sync.Mutex
	idle time.Duration // when all requests so far are answered; guarded by mu
}

func (q *queue) take(at time.Duration, r Reply) Reply {
	q.mu.Lock()
	defer q.mu.Unlock()
	begin := max(q.idle, at)
	if begin-at > time.Second {
		return unavailable
	}
	q.idle = begin + time.Duration(float64(time.Second)/q.capacity(at))
	r.Took += q.idle - at
	return r
}
