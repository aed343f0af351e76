package heed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/testserver"
)

func TestOnlyCallsThatWereNeverSentMatchErrNotSent(t *testing.T) {
	hour := testserver.Step{Status: 429, RetryAfter: time.Hour}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for name, c := range map[string]struct {
		steps   []testserver.Step
		before  int // requests sent before
		pacer   func() heed.Pacer
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		timeout bool
		notSent bool
	}{
		"a cool-down that is too long": {steps: []testserver.Step{hour}, before: 1, timeout: true, notSent: true},
		"a pace that is too slow":      {before: 1, pacer: hourly, timeout: true, notSent: true},
		"a full queue":                 {pacer: fullQueue, notSent: true},
		"cancelled while it waits":     {before: 1, pacer: halfMinute, ctx: cancelled(time.Second), notSent: true},
		"deadline while it waits": {
			before: 1, pacer: halfMinute, ctx: deadline(time.Second), timeout: true, notSent: true,
		},
		"drained":                         {ctx: drained(stopped), notSent: true},
		"cancelled under way":             {steps: []testserver.Step{{Delay: time.Minute}}, ctx: cancelled(time.Second)},
		"cancelled before the retry":      {steps: []testserver.Step{{Status: 503}}, ctx: cancelled(time.Millisecond)},
		"a broken connection, four times": {steps: []testserver.Step{{Drop: true, Times: 4}}},
		"a cool-down, after one broken":   {steps: []testserver.Step{{Drop: true}, hour}, timeout: false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, c.steps...)
				tr := &heed.Transport{Base: srv.Transport(), Budget: heed.Unlimited, Retry: heed.RetryPolicy{
					Backoff: func(heed.Attempt) time.Duration { return time.Second },
				}}
				if c.pacer != nil {
					tr.Pacer = c.pacer()
				}
				client := &http.Client{Transport: tr}
				for range c.before {
					once := heed.WithRetry(t.Context(), heed.RetryPolicy{MaxAttempts: 1})
					req, _ := http.NewRequestWithContext(once, "GET", srv.URL, nil)
					resp, err := client.Do(req)
					require.NoError(t, err)
					resp.Body.Close()
				}
				ctx := t.Context()
				if c.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = c.ctx(ctx)
					defer cancel()
				}
				req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
				resp, err := client.Do(req)
				if err == nil {
					resp.Body.Close()
					assert.False(t, c.notSent)
					return
				}
				assert.Equal(t, c.notSent, errors.Is(err, heed.ErrNotSent), "%v", err)
				if c.notSent {
					assert.Len(t, srv.Log(), c.before)
					var timeout *url.Error
					require.ErrorAs(t, err, &timeout)
					assert.Equal(t, c.timeout, timeout.Timeout())
				}
			})
		})
	}
}

func TestACallThatWasSentNeverMatchesErrNotSent(t *testing.T) {
	refused := newScript(throttle("3600"))
	inner := &heed.Transport{Base: refused, Retry: heed.RetryPolicy{MaxAttempts: 1}}
	assert.Equal(t, 429, status(t, inner, get(t.Context())))
	_, notSent := inner.RoundTrip(get(t.Context()))
	require.ErrorIs(t, notSent, heed.ErrNotSent)

	t.Run("cancelled under way with the error of another call", func(t *testing.T) {
		for _, cause := range []error{notSent, fmt.Errorf("another call: %w", notSent)} {
			ctx, cancel := context.WithCancelCause(t.Context()) // as an errgroup does
			tr := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				cancel(cause)
				return nil, context.Cause(req.Context()) // as net/http does
			})}
			_, err := tr.RoundTrip(get(ctx))
			assert.ErrorAs(t, err, new(*heed.OverdueError))
			assert.NotErrorIs(t, err, heed.ErrNotSent)
		}
	})
	t.Run("a Transport in Base refuses the retry", func(t *testing.T) {
		attempts := 0
		tr := &heed.Transport{
			Budget: heed.Unlimited,
			Retry:  heed.RetryPolicy{Backoff: func(heed.Attempt) time.Duration { return 0 }},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				if attempts++; attempts == 1 {
					return nil, errBroken
				}
				_, err := inner.RoundTrip(req)
				return nil, fmt.Errorf("middleware: %w", err)
			}),
		}
		_, err := tr.RoundTrip(get(t.Context()))
		assert.Equal(t, 2, attempts)
		assert.ErrorAs(t, err, new(*heed.OverdueError))
		assert.NotErrorIs(t, err, heed.ErrNotSent)
		assert.ErrorIs(t, err, errBroken)
		assert.True(t, (&url.Error{Err: err}).Timeout())
	})
	t.Run("refused after a redirect", func(t *testing.T) {
		req := get(t.Context())
		req.Response = &http.Response{StatusCode: 303} // as http.Client does
		_, err := inner.RoundTrip(req)
		assert.ErrorAs(t, err, new(*heed.OverdueError))
		assert.NotErrorIs(t, err, heed.ErrNotSent)
	})
}

func hourly() heed.Pacer     { return pace.PerHost(1./3600, 1) }
func halfMinute() heed.Pacer { return pace.PerHost(1./30, 1) }

// fullQueue is a Pacer that has no place.
func fullQueue() heed.Pacer { return refusing{} }

type refusing struct{}

func (refusing) Wait(*http.Request) error { return pace.ErrQueueFull }
func (refusing) Observe(heed.Attempt)     {}

func cancelled(after time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(after, cancel)
		return ctx, cancel
	}
}

func deadline(after time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, after)
	}
}

func drained(stop context.Context) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		return heed.WithDrain(ctx, stop), func() {}
	}
}
