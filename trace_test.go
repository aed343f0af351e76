package heed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

func TestTraceHooksAreCalledInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		note := func(name string) *heed.Trace {
			return &heed.Trace{
				Paced: func(_ *http.Request, wait time.Duration) {
					events = append(events, fmt.Sprint(name, " paced ", wait))
				},
				Cooled: func(_ *http.Request, key string, wait time.Duration) {
					events = append(events, fmt.Sprint(name, " cooled ", key, " ", wait))
				},
				Decided: func(a heed.Attempt, v heed.Verdict, wait time.Duration) {
					events = append(events, fmt.Sprint(name, " ", a.Number, " ", v, " ", wait))
				},
			}
		}
		tr := &heed.Transport{Base: newScript(throttle("10"), ok), Trace: note("own"), Pacer: &intervalPacer{}}
		ctx := heed.WithTrace(heed.WithTrace(t.Context(), note("outer")), note("inner"))
		ctx = heed.WithTrace(heed.WithRetry(ctx, heed.RetryPolicy{Backoff: constant(time.Second)}), nil)
		assert.Equal(t, 200, status(t, tr, get(ctx)))
		var want []string
		for _, event := range []string{"paced 0s", "1 again 10s", "paced 0s", "2 final 0s"} {
			for _, name := range []string{"own", "outer", "inner"} {
				want = append(want, name+" "+event)
			}
		}
		assert.Equal(t, want, events)
	})
}

func TestContextsOfOneParentDoNotMixTheirTraces(t *testing.T) {
	calls := map[string]int{}
	trace := func(name string) *heed.Trace {
		return &heed.Trace{Decided: func(heed.Attempt, heed.Verdict, time.Duration) { calls[name]++ }}
	}
	parent := heed.WithTrace(heed.WithTrace(heed.WithTrace(t.Context(), trace("p")), trace("p")), trace("p"))
	a, b := heed.WithTrace(parent, trace("a")), heed.WithTrace(parent, trace("b"))
	for _, ctx := range []context.Context{a, a, b} {
		status(t, &heed.Transport{Base: newScript(ok)}, get(ctx))
	}
	assert.Equal(t, map[string]int{"p": 9, "a": 2, "b": 1}, calls)
}

func TestLogTraceShowsNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		inner := &url.Error{Op: "Get", URL: "http://u:s3cret@api.example.com/s3cret?key=s3cret",
			Err: errors.New("reset by peer")}
		board := &sharedBoard{err: &url.Error{Op: "Get", URL: "redis://:s3cret@db", Err: errors.New("no route")}}
		tr := &heed.Transport{
			Base:  newScript(throttle("10"), reply{err: fmt.Errorf("oops: %w", inner)}, unavailable, ok),
			Pacer: &intervalPacer{every: 30 * time.Second}, Board: board, Trace: heed.LogTrace(logger),
			Retry: heed.RetryPolicy{Backoff: constant(time.Second)},
		}
		req := get(t.Context())
		req.URL, _ = url.Parse("http://u:s3cret@api.example.com/s3cret?key=s3cret")
		req.Header.Set("Authorization", "Bearer s3cret")
		assert.Equal(t, 200, status(t, tr, req))
		log := out.String()
		assert.NotContains(t, log, "s3cret")
		for _, want := range []string{
			`level=WARN msg="request will be retried" method=GET host=api.example.com status=429 ` +
				`verdict=again attempt=1 max=4 wait=10s`,
			`level=WARN msg="request will be retried" method=GET host=api.example.com error="reset by peer" ` +
				`verdict=again attempt=2 max=4 wait=1s`,
			`level=DEBUG msg="request paced" method=GET host=api.example.com wait=`,
			`level=ERROR msg="shared store unavailable" error="no route"`,
		} {
			assert.Contains(t, log, want)
		}
		assert.Equal(t, 3, strings.Count(log, "level=WARN"))

		out.Reset()
		tr = &heed.Transport{Base: newScript(throttle("3600")), Trace: heed.LogTrace(logger)}
		status(t, tr, get(t.Context()))
		assert.Contains(t, out.String(),
			`msg="request not retried" method=GET host=api.example.com status=429 verdict="wait too long"`)

		out.Reset()
		status(t, &heed.Transport{Base: newScript(ok), Trace: heed.LogTrace(logger)}, get(t.Context()))
		assert.Empty(t, out.String(), "a request that succeeds at once is not logged")
	})
}

func TestANilLoggerIsTheDefaultLogger(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	trace := heed.LogTrace(nil)
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	trace.Degraded(errors.New("gone"))
	require.Contains(t, out.String(), "gone")
}

func TestErrorsShowNoURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &url.Error{Op: "Get", URL: "http://api.example.com/?key=s3cret", Err: timeout{errors.New("i/o timeout")}}
		_, err := (&heed.Transport{Base: newScript(reply{err: inner}), Budget: heed.Unlimited}).RoundTrip(get(t.Context()))
		assert.EqualError(t, err, "heed: 4 attempts failed: i/o timeout")
		assert.True(t, err.(interface{ Timeout() bool }).Timeout())
	})
}
