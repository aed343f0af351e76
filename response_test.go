package heed_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// stalledBody is a body whose Read blocks until it is released. Read and Close must not run at the
// same time.
type stalledBody struct {
	release chan struct{}
	mu      sync.Mutex // held by Read and by Close
	closed  *atomic.Int64
}

func (s *stalledBody) Read([]byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	<-s.release
	return 0, io.ErrUnexpectedEOF
}

func (s *stalledBody) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed.Add(1)
	return nil
}

func TestAStalledBodyIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, start := make(chan struct{}), time.Now()
		b := &stalledBody{release: release, closed: new(atomic.Int64)}
		s := newScript(reply{status: 503, body: b}, ok)
		assert.Equal(t, 200,
			status(t, &heed.Transport{Base: s, Retry: heed.RetryPolicy{Backoff: constant(0)}}, get(t.Context())))
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		synctest.Wait()
		assert.Zero(t, b.closed.Load(), "a Read is under way")
		close(release)
		synctest.Wait()
		assert.EqualValues(t, 1, b.closed.Load())
	})
}

// An abandoned reader may stay for ever, so their number is limited.
func TestAtMostSixtyFourStalledBodiesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 200
		release, closed, start := make(chan struct{}), new(atomic.Int64), time.Now()
		tr := &heed.Transport{Budget: heed.Unlimited, Retry: heed.RetryPolicy{MaxAttempts: 2, Backoff: constant(0)}}
		tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if heed.ResendCount(req.Context()) == 0 {
				return response(req, reply{status: 503, body: &stalledBody{release: release, closed: closed}}), nil
			}
			return response(req, ok), nil
		})
		var all sync.WaitGroup
		for range calls {
			all.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
		}
		all.Wait()
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		synctest.Wait()
		assert.EqualValues(t, calls-64, closed.Load(), "the others are closed unread")
		close(release)
		synctest.Wait()
		assert.EqualValues(t, calls, closed.Load())
	})
}

// net/http's gzip reader holds a lock while it waits for the first ten bytes.
func TestAStalledGzipBodyIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []net.Conn
		base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			servers = append(servers, server)
			answer := "HTTP/1.1 503 Service Unavailable\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
			if len(servers) > 1 {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
			}
			go func() {
				_, err := http.ReadRequest(bufio.NewReader(server))
				assert.NoError(t, err)
				io.WriteString(server, answer)
			}()
			return client, nil
		}}
		defer base.CloseIdleConnections()
		start := time.Now()
		resp, err := (&heed.Transport{Base: base, Retry: heed.RetryPolicy{Backoff: constant(0)}}).RoundTrip(get(t.Context()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		resp.Body.Close()
		servers[0].Close()
	})
}

// The retry is refused, so the caller gets what was read of the first response.
func TestTheBeginningOfAStalledBodyIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := io.Pipe()
		go w.Write([]byte("the beginning"))
		tr := &heed.Transport{Pacer: &onlyFirst{}, Retry: heed.RetryPolicy{Backoff: constant(0)}}
		tr.Base = newScript(reply{status: 503, body: b})
		resp, err := tr.RoundTrip(get(t.Context()))
		require.NoError(t, err)
		content, err := io.ReadAll(resp.Body)
		assert.Equal(t, "the beginning", string(content))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		w.Close()
	})
}

// panickingBody panics when it is read.
type panickingBody struct{ closed int }

func (*panickingBody) Read([]byte) (int, error) { panic("no body") }
func (p *panickingBody) Close() error           { p.closed++; return nil }

// The body is drained in another goroutine, where the caller could not recover.
func TestAPanicInABodyReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &panickingBody{}
		tr := &heed.Transport{Base: newScript(reply{status: 503, body: b}, ok)}
		assert.PanicsWithValue(t, "no body", func() { tr.RoundTrip(get(t.Context())) })
		assert.Equal(t, 1, b.closed)
	})
}

// A drain that waits for a slot does not delay the retry.
func TestWaitingForASlotIsPartOfTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, closed := make(chan struct{}), new(atomic.Int64)
		tr := &heed.Transport{Budget: heed.Unlimited,
			Retry: heed.RetryPolicy{MaxAttempts: 2, Backoff: constant(300 * time.Millisecond)}}
		var calls sync.WaitGroup
		start := time.Now()
		tr.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if heed.ResendCount(req.Context()) > 0 {
				assert.Equal(t, 300*time.Millisecond, time.Since(start))
				return response(req, ok), nil
			}
			return response(req, reply{status: 503, body: &stalledBody{release: release, closed: closed}}), nil
		})
		for range 65 {
			calls.Go(func() { assert.Equal(t, 200, status(t, tr, get(t.Context()))) })
		}
		calls.Wait()
		close(release)
	})
}
