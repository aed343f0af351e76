package pace_test

import (
	"context"
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
	"github.com/heedhttp/heed/pace"
)

// GitHub's limits on requests that create content are in no field.
func TestLimitsThatOnlyTheDocumentationTellsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, start := &pace.Advertised{}, time.Now()
		request := func(method, path, token string) *http.Request {
			req, err := http.NewRequestWithContext(t.Context(), method, "https://api.github.com"+path, nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+token)
			return req
		}
		send := func(req *http.Request) time.Duration {
			require.NoError(t, p.Wait(req))
			p.Observe(heed.Attempt{Request: req, Response: &http.Response{StatusCode: 201, Header: http.Header{}}})
			return time.Since(start)
		}
		for range 20 {
			assert.Zero(t, send(request("POST", "/repos/a/b/issues", "a")), "a quarter at once")
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		sent := make([]time.Duration, 20)
		for range 180 {
			all.Go(func() {
				at := send(request("PATCH", "/repos/a/b/issues/1", "a"))
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, at)
			})
		}
		synctest.Wait()
		for _, free := range []*http.Request{
			request("GET", "/repos/a/b/issues", "a"), request("POST", "/graphql", "a"), request("POST", "/repos/a/b/issues", "b"),
		} {
			assert.Zero(t, send(free), "%s %s", free.Method, free.URL.Path)
		}
		write := request("DELETE", "/repos/a/b", "a")
		for range 100 {
			assert.NoError(t, p.WaitAtMost(write, time.Second), "what cannot wait goes at once")
			p.Observe(heed.Attempt{Request: write, Err: heed.ErrNotSent}) // and has no token to give back
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, p.Wait(write.WithContext(ctx)), context.Canceled)
		all.Wait()
		for i := range sent[80:] {
			assert.Greater(t, sent[i+80]-sent[i], time.Minute-time.Millisecond, "80 a minute")
		}
		assert.Less(t, sent[199], 14*time.Minute)
	})
}

// A refusal in the first event of a stream has no fields, and contradicts none.
func TestARefusalInAStreamLeavesWhatWasAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []*http.Response{
			{StatusCode: 200, Body: http.NoBody, Header: http.Header{
				"X-Ratelimit-Limit-Requests": {"10"}, "X-Ratelimit-Remaining-Requests": {"1"}, "X-Ratelimit-Reset-Requests": {"60s"},
			}},
			{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(
				"data: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n"))},
			{StatusCode: 200, Body: http.NoBody, Header: http.Header{}},
		}
		var sent []time.Duration
		start := time.Now()
		tr := &heed.Transport{Pacer: &pace.Advertised{}, Board: heed.NoBoard, Retry: heed.RetryPolicy{MaxAttempts: 1}}
		tr.Base = roundTripper(func(req *http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(start))
			answers[0].Request = req
			defer func() { answers = answers[1:] }()
			return answers[0], nil
		})
		for range 3 {
			req, err := http.NewRequestWithContext(t.Context(), "POST", "https://api.openai.com/v1/responses", strings.NewReader(`{"model":"m"}`))
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			resp.Body.Close()
		}
		assert.GreaterOrEqual(t, sent[1], 20*time.Second, "what is announced holds")
		assert.GreaterOrEqual(t, sent[2]-sent[1], 20*time.Second, "also after the refusal")
	})
}
