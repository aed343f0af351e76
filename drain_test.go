package heed_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

var errSignal = errors.New("terminated signal received")

// outcomes counts how calls ended.
type outcomes struct {
	start time.Time

	mu                           sync.Mutex // guards the fields below
	answered, notSent, attempted int
	latest                       time.Duration // when the last call of notSent returned
}

// call sends req and counts its outcome.
func (o *outcomes) call(rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		resp.Body.Close()
		o.answered++
	case errors.Is(err, heed.ErrNotSent):
		o.notSent++
		o.latest = time.Since(o.start)
	default:
		o.attempted++
	}
}

func drainable(t *testing.T, after time.Duration) context.Context {
	stop, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(after, func() { cancel(errSignal) })
	return heed.WithDrain(t.Context(), stop)
}

func newRequest(ctx context.Context, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, "http://example.com/", body)
	if err != nil {
		panic(err)
	}
	return req
}

// One request is under way. Another is refused, and its cool-down makes all others wait.
func TestDrainEndsTheWaitForACoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newScript(reply{status: 200, took: 10 * time.Second},
			reply{status: 429, header: []string{"Retry-After", "30"}}, reply{status: 200})
		tr := &heed.Transport{Base: server}
		ctx, o := drainable(t, 5*time.Second), outcomes{start: time.Now()}
		var all sync.WaitGroup
		for i := range 22 {
			all.Go(func() { o.call(tr, newRequest(ctx, "GET", nil)) })
			if i < 2 {
				time.Sleep(time.Second)
			}
		}
		all.Wait()
		assert.Equal(t, 10*time.Second, time.Since(o.start), "the request under way was completed")
		assert.Equal(t, 5*time.Second, o.latest, "the others failed at once")
		assert.Equal(t, 2, o.answered, "the refused one gets its response")
		assert.Equal(t, 20, o.notSent)
		assert.Zero(t, o.attempted)
		assert.Equal(t, 2, server.count())

		o.call(tr, newRequest(ctx, "GET", nil))
		assert.Equal(t, 21, o.notSent, "a new request is refused")
		assert.Equal(t, 2, server.count())
	})
}

func TestDrainReturnsTheLastResponseInsteadOfARetry(t *testing.T) {
	for name, first := range map[string]reply{
		"in its backoff": {status: 503, header: []string{"Retry-After", "20"},
			body: io.NopCloser(strings.NewReader("busy"))},
		"while it was sent": {status: 503, took: 7 * time.Second, body: io.NopCloser(strings.NewReader("busy"))},
		"for its cool-down": {status: 429, header: []string{"Retry-After", "20"},
			body: io.NopCloser(strings.NewReader("busy"))},
		"with a long body": {status: 503, took: 7 * time.Second,
			body: io.NopCloser(io.MultiReader(strings.NewReader("busy"), strings.NewReader(strings.Repeat(" ", 1<<20))))},
		"for a slow throttle": {status: 429, body: io.NopCloser(strings.NewReader("busy")), took: 4999 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newScript(first, reply{status: 200})
				var verdicts []heed.Verdict
				trace := &heed.Trace{
					Decided: func(_ heed.Attempt, v heed.Verdict, _ time.Duration) { verdicts = append(verdicts, v) },
				}
				policy := heed.RetryPolicy{Backoff: constant(time.Second)}
				tr := &heed.Transport{Base: server, Retry: policy, Trace: trace}
				start := time.Now()
				resp, err := tr.RoundTrip(newRequest(drainable(t, 5*time.Second), "GET", nil))
				require.NoError(t, err)
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				resp.Body.Close()
				assert.Equal(t, "busy", strings.TrimSpace(string(body)))
				assert.Equal(t, first.status, resp.StatusCode)
				assert.Equal(t, max(5*time.Second, first.took), time.Since(start))
				assert.Equal(t, 1, server.count())
				want := heed.Again
				if first.took > 5*time.Second {
					want = heed.OutOfTime
				}
				assert.Equal(t, []heed.Verdict{want}, verdicts)
			})
		})
	}
}

func TestDrainSaysThatARetryWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newScript(reply{err: io.ErrUnexpectedEOF}, reply{status: 200})
		tr := &heed.Transport{Base: server,
			Retry: heed.RetryPolicy{Backoff: func(heed.Attempt) time.Duration { return 20 * time.Second }}}
		start := time.Now()
		_, err := tr.RoundTrip(newRequest(drainable(t, 5*time.Second), "GET", nil))
		assert.EqualError(t, err,
			"heed: not sent again after attempt 1, which failed: stopped by WithDrain: terminated signal received")
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.NotErrorIs(t, err, heed.ErrNotSent, "the first attempt was sent")
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Equal(t, 1, server.count())
	})
}

func TestDrainClosesTheBodyOfARefusedRequest(t *testing.T) {
	server := newScript(reply{status: 200})
	stop, cancel := context.WithCancelCause(t.Context())
	cancel(errSignal)
	closed := make(chan struct{})
	body := struct {
		io.Reader
		io.Closer
	}{strings.NewReader("x"), closer(func() error { close(closed); return nil })}
	_, err := (&heed.Transport{Base: server}).RoundTrip(newRequest(heed.WithDrain(t.Context(), stop), "POST", body))
	assert.EqualError(t, err, "heed: not sent: stopped by WithDrain: terminated signal received")
	assert.ErrorIs(t, err, heed.ErrNotSent)
	<-closed
	assert.Zero(t, server.count())
}

type closer func() error

func (c closer) Close() error { return c() }

func TestDrainDoesNotCancelRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newScript(reply{status: 200, took: 10 * time.Second})
		tr := &heed.Transport{Base: server}
		gone := errors.New("the user went away")
		ctx, cancel := context.WithCancelCause(drainable(t, 5*time.Second))
		time.AfterFunc(7*time.Second, func() { cancel(gone) })
		_, err := tr.RoundTrip(newRequest(ctx, "GET", nil))
		assert.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, heed.ErrNotSent)

		// An inner WithDrain wins, with nil or with a stop that has not ended.
		over := drainable(t, 0)
		time.Sleep(time.Second)
		for _, ctx := range []context.Context{heed.WithDrain(over, nil), heed.WithDrain(over, t.Context())} {
			resp, err := tr.RoundTrip(newRequest(ctx, "GET", nil))
			require.NoError(t, err)
			resp.Body.Close()
		}
	})
}

func TestDrainLetsARedirectGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newScript(reply{status: 303, header: []string{"Location", "/result"}, took: 10 * time.Second},
			reply{status: 200})
		client := &http.Client{Transport: &heed.Transport{Base: server}}
		resp, err := client.Do(newRequest(drainable(t, 5*time.Second), "POST", nil))
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, 2, server.count())
	})
}

// gatePacer blocks requests until the test opens it or they end.
type gatePacer struct {
	opened   chan struct{}
	req      *http.Request
	observed []heed.Attempt
}

func (p *gatePacer) Wait(req *http.Request) error {
	p.req = req
	select {
	case <-p.opened:
		return nil
	case <-req.Context().Done():
		return context.Cause(req.Context())
	}
}

func (p *gatePacer) Observe(a heed.Attempt) { p.observed = append(p.observed, a) }

func (p *gatePacer) WaitAtMost(req *http.Request, _ time.Duration) error { return p.Wait(req) }

func TestDrainEndsTheWaitOfAnyPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounded := &gatePacer{}
		for _, p := range []heed.Pacer{bounded, struct{ heed.Pacer }{&gatePacer{}}} {
			server := newScript(reply{status: 200})
			start := time.Now()
			_, err := (&heed.Transport{Base: server, Pacer: p}).RoundTrip(newRequest(drainable(t, 5*time.Second), "GET", nil))
			assert.EqualError(t, err, "heed: not sent: stopped by WithDrain: terminated signal received")
			assert.Equal(t, 5*time.Second, time.Since(start))
			assert.Zero(t, server.count())
		}
		assert.Empty(t, bounded.observed, "it did not let the request go")
	})
}

func TestAPacerObservesTheRequestItLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatePacer{opened: make(chan struct{})}
		tr := &heed.Transport{Base: newScript(reply{status: 200, took: 10 * time.Second}), Pacer: p}
		time.AfterFunc(time.Second, func() { close(p.opened) })
		resp, err := tr.RoundTrip(newRequest(drainable(t, 5*time.Second), "GET", nil))
		require.NoError(t, err)
		resp.Body.Close()
		require.Len(t, p.observed, 1)
		assert.Same(t, p.req, p.observed[0].Request)
		assert.NoError(t, p.req.Context().Err(), "WithDrain must not end it after Wait returned")
	})
}

// The inner Transport blocks a request that the outer one has already sent once.
func TestDrainWorksInANestedTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &gatePacer{opened: make(chan struct{}, 1)}
		p.opened <- struct{}{} // for the first attempt
		server := newScript(reply{err: io.ErrUnexpectedEOF}, reply{status: 200})
		tr := &heed.Transport{Base: &heed.Transport{Base: server, Pacer: p}}
		_, err := tr.RoundTrip(newRequest(drainable(t, 5*time.Second), "GET", nil))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.NotErrorIs(t, err, heed.ErrNotSent, "one attempt was sent")
		assert.ErrorContains(t, err, "stopped by WithDrain")
		assert.Equal(t, 1, server.count())

		_, err = tr.RoundTrip(newRequest(drainable(t, 5*time.Second), "GET", nil))
		assert.ErrorIs(t, err, heed.ErrNotSent)
		assert.Equal(t, 1, server.count())
	})
}
