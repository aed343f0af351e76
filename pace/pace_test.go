package pace_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

const ms = time.Millisecond

var errGone = errors.New("the user went away")

func request(ctx context.Context, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

// An inProcess calls a handler in the caller's goroutine, without a connection: in a
// bubble, thousands of requests take no time.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel() // a server's request ends with its handler
	served := req.WithContext(ctx)
	served.RemoteAddr = "192.0.2.1:1234"
	rec := httptest.NewRecorder()
	p.handler.ServeHTTP(rec, served)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	resp := rec.Result()
	resp.Request = req
	return resp, nil
}

// sleeps waits for d, or until ctx ends.
func sleeps(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func get() *http.Request { return request(context.Background(), "http://example.com/") }

// A timeline runs waiters in a bubble and records when each is admitted.
type timeline struct {
	t     *testing.T
	pacer heed.BoundedPacer
	start time.Time
	wg    sync.WaitGroup
}

func newTimeline(t *testing.T, pacer heed.Pacer) *timeline {
	require.Implements(t, (*heed.BoundedPacer)(nil), pacer)
	return &timeline{t: t, pacer: pacer.(heed.BoundedPacer), start: time.Now()}
}

// A result is the outcome of a waiter.
type result struct {
	at     time.Duration // since the timeline's start
	err    error
	cancel context.CancelCauseFunc
}

// at sleeps until d after the start.
func (tl *timeline) at(d time.Duration) {
	time.Sleep(time.Until(tl.start.Add(d)))
	synctest.Wait()
}

// joins starts a waiting request.
func (tl *timeline) joins() *result {
	ctx, cancel := context.WithCancelCause(context.Background())
	w := &result{cancel: cancel}
	tl.wg.Go(func() {
		w.err = tl.pacer.Wait(request(ctx, "http://example.com/"))
		w.at = time.Since(tl.start)
	})
	synctest.Wait()
	return w
}

// goes asserts that a request is admitted now, without a wait.
func (tl *timeline) goes() {
	tl.t.Helper()
	before := time.Now()
	require.NoError(tl.t, tl.pacer.WaitAtMost(get(), 0), "at %v", time.Since(tl.start))
	require.Zero(tl.t, time.Since(before))
}

// waits asserts that a request is refused now, at once, because it would wait d.
func (tl *timeline) waits(d time.Duration) {
	tl.t.Helper()
	before := time.Now()
	err := tl.pacer.WaitAtMost(get(), 0)
	overdue := overdueError(tl.t, err)
	require.Equal(tl.t, d.String(), overdue.Wait.String(), "at %v", time.Since(tl.start))
	require.Zero(tl.t, overdue.Left)
	require.False(tl.t, overdue.Deadline)
	require.Zero(tl.t, time.Since(before))
}

// givesBack returns an unused token.
func (tl *timeline) givesBack() {
	tl.pacer.Observe(heed.Attempt{Request: get(), Err: heed.ErrNotSent})
	synctest.Wait()
}

func overdueError(t *testing.T, err error) *heed.OverdueError {
	t.Helper()
	var overdue *heed.OverdueError
	require.ErrorAs(t, err, &overdue)
	return overdue
}

func (tl *timeline) admittedAt(want time.Duration, w *result) {
	tl.t.Helper()
	assert.NoError(tl.t, w.err)
	assert.Equal(tl.t, want.String(), w.at.String())
}
