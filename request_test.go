package heed_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/testserver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sent is what a recorder received.
type sent struct {
	header http.Header
	body   string
	count  int
}

// recorder is a base that answers with one status after the other, then repeats the last one. It
// appends what it receives to all.
func recorder(t *testing.T, all *[]sent, statuses ...int) roundTripFunc {
	return func(req *http.Request) (*http.Response, error) {
		s := sent{header: req.Header, count: heed.ResendCount(req.Context())}
		if req.Body != nil {
			b, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			require.NoError(t, req.Body.Close())
			s.body = string(b)
		}
		*all = append(*all, s)
		status := statuses[min(len(*all), len(statuses))-1]
		if status == 0 {
			return nil, errors.New("broken")
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}, nil
	}
}

func TestAllAttemptsOfAPostHaveOneIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := map[string]func() io.Reader{
			"with GetBody": func() io.Reader { return strings.NewReader("order") },
			"kept":         func() io.Reader { return io.MultiReader(strings.NewReader("order")) },
		}
		for name, body := range bodies {
			var all []sent
			tr := &heed.Transport{Base: recorder(t, &all, 503, 0, 200), Retry: heed.RetryPolicy{
				IdempotencyKey: heed.RandomIdempotencyKey, MaxBodyBuffer: 100,
			}}
			req, err := http.NewRequest(http.MethodPost, "https://api.example/orders", body())
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err, name)
			assert.Same(t, req, resp.Request)
			assert.NotContains(t, req.Header, "Idempotency-Key", "the caller's request is not modified")
			require.Len(t, all, 3, name)
			key := all[0].header.Get("Idempotency-Key")
			assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, key)
			for i, s := range all {
				assert.Equal(t, key, s.header.Get("Idempotency-Key"))
				assert.Equal(t, "order", s.body)
				assert.Equal(t, i, s.count)
			}
		}
	})
}

func TestRequestsThatNeedNoIdempotencyKeyGetNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			method string
			header http.Header
			key    func(*http.Request) string
			want   []string // of Idempotency-Key
			sent   int
		}{
			{"GET", http.Header{}, heed.RandomIdempotencyKey, nil, 2},
			{"PUT", http.Header{}, heed.RandomIdempotencyKey, nil, 2},
			{"POST", http.Header{"Idempotency-Key": {"mine"}}, heed.RandomIdempotencyKey, []string{"mine"}, 2},
			{"POST", http.Header{"X-Idempotency-Key": {"mine"}}, heed.RandomIdempotencyKey, nil, 2},
			{"POST", http.Header{}, func(*http.Request) string { return "" }, nil, 1},
			{"POST", http.Header{}, nil, nil, 1},
			{"PATCH", http.Header{}, func(r *http.Request) string { return "of " + r.URL.Path }, []string{"of /orders"}, 2},
		} {
			var all []sent
			tr := &heed.Transport{Base: recorder(t, &all, 503, 200), Retry: heed.RetryPolicy{IdempotencyKey: test.key}}
			req, err := http.NewRequest(test.method, "https://api.example/orders", nil)
			require.NoError(t, err)
			req.Header = test.header
			_, err = tr.RoundTrip(req)
			require.NoError(t, err)
			require.Len(t, all, test.sent, "%+v", test)
			for _, s := range all {
				assert.Equal(t, test.want, s.header["Idempotency-Key"], "%+v", test)
			}
		}
	})
}

func TestIdempotencyKeyIsCalledOncePerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		ctx := heed.WithRetry(context.Background(),
			heed.RetryPolicy{IdempotencyKey: func(*http.Request) string { asked++; return "k" }})
		var all []sent
		tr := &heed.Transport{Base: recorder(t, &all, 503, 503, 200)}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example/orders", nil)
		require.NoError(t, err)
		_, err = tr.RoundTrip(req)
		require.NoError(t, err)
		assert.Equal(t, 1, asked)
		assert.Len(t, all, 3)
	})
}

// callsWithTimeLeft returns a Call for each attempt, with the time left.
func callsWithTimeLeft(times ...time.Duration) (calls []ratelimit.Call) {
	for i, left := range times {
		calls = append(calls, ratelimit.Call{Attempt: i + 1, TimeLeft: left})
	}
	return calls
}

func TestTellServerSendsAttemptAndTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tell := func(p heed.RetryPolicy, deadline time.Duration) (calls []ratelimit.Call) {
			p.TellServer, p.Backoff = true, steady
			var all []sent
			tr := &heed.Transport{Base: recorder(t, &all, 503, 503, 200), Retry: p}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			resp, err := tr.RoundTrip(get(ctx))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			for _, s := range all {
				calls = append(calls, ratelimit.ParseCall(s.header))
			}
			return calls
		}
		assert.Equal(t, callsWithTimeLeft(10*time.Second, 8*time.Second, 6*time.Second),
			tell(heed.RetryPolicy{}, 10*time.Second), "of the context")
		assert.Equal(t, callsWithTimeLeft(5*time.Minute, 298*time.Second, 296*time.Second),
			tell(heed.RetryPolicy{}, time.Hour), "of MaxElapsed")
		assert.Equal(t, callsWithTimeLeft(3*time.Second, 3*time.Second, 3*time.Second),
			tell(heed.RetryPolicy{AttemptTimeout: 3 * time.Second}, time.Hour), "of the attempt")
		assert.Equal(t, callsWithTimeLeft(0, 0, 0),
			tell(heed.RetryPolicy{MaxElapsed: -1}, 100*365*24*time.Hour), "there is no limit")
	})
}

func TestAddedFieldsReachTheServer(t *testing.T) {
	srv := testserver.NewTCP(t, testserver.Step{Status: 503}, testserver.Step{Status: 200})
	tr := &heed.Transport{Retry: heed.RetryPolicy{
		TellServer: true, IdempotencyKey: heed.RandomIdempotencyKey, Backoff: func(heed.Attempt) time.Duration { return 0 },
	}}
	defer tr.CloseIdleConnections()
	resp,
		err := (&http.Client{Transport: tr, Timeout: time.Minute}).Post(srv.URL, "text/plain", strings.NewReader("order"))
	require.NoError(t, err)
	defer resp.Body.Close()
	log := srv.Log()
	require.Len(t, log, 2)
	for i, exchange := range log {
		call := ratelimit.ParseCall(exchange.Header)
		assert.Equal(t, i+1, call.Attempt)
		assert.Positive(t, call.TimeLeft)
		assert.LessOrEqual(t, call.TimeLeft, time.Minute)
		assert.Equal(t, log[0].Header["Idempotency-Key"], exchange.Header["Idempotency-Key"])
	}
	srv.Check(t)
}
