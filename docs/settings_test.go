package docs_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/testserver"
)

// The functions of settings.md. Each returns a Transport, which its test gives the test server
// for a Base.

func forHandlers() *heed.Transport {
	return &heed.Transport{Retry: heed.RetryPolicy{
		MaxAttempts:    3,
		AttemptTimeout: 700 * time.Millisecond, // a replica that hangs is left for another one
		MaxWait:        500 * time.Millisecond, // a longer wait is the caller's to decide on
	}}
}

func forReplicas() *heed.Transport {
	return &heed.Transport{Retry: heed.RetryPolicy{
		MaxAttempts:   5,    // the last one has all that is left
		SplitDeadline: true, // of ten seconds: 5, 2.4, 1.2, 0.6, and 0.5
	}}
}

func forBatches() *heed.Transport {
	return &heed.Transport{
		Retry: heed.RetryPolicy{
			MaxAttempts:    10,
			AttemptTimeout: time.Minute,
			MaxWait:        90 * time.Minute, // hourly limits reset after an hour
			MaxOutage:      15 * time.Minute, // a server that is down is waited for
			MaxElapsed:     -1,               // a job may take as long as it takes
		},
		Budget: &heed.LocalBudget{Ratio: 0.5}, // a retry for every two requests
		Pacer:  &pace.Queue{Pacer: pace.PerHost(10, 1)},
	}
}

func forSlowAnswers() *heed.Transport {
	return &heed.Transport{
		Retry: heed.RetryPolicy{
			MaxWait:    10 * time.Minute, // for a place
			MaxElapsed: time.Hour,
		},
		Pacer: &pace.InFlight{Limit: 10}, // of each account of each host
	}
}

func forStreams() *heed.Transport {
	return &heed.Transport{Retry: heed.RetryPolicy{
		AttemptTimeout: time.Minute,      // for the header
		IdleTimeout:    30 * time.Second, // a stream that sends nothing for so long ends with an error
	}}
}

func forRestarts() *heed.Transport {
	return &heed.Transport{
		Retry: heed.RetryPolicy{MaxOutage: 30 * time.Second}, // the server starts in twenty
		Trace: heed.LogTrace(nil),                            // says which calls waited, and how long
	}
}

func forFleets(rdb redis.UniversalClient, processes int) (*heed.Transport, error) {
	trace := heed.LogTrace(nil) // logs, and says when Redis is lost
	pacer := &pace.Shared{
		Store:     &redisstore.Store{Client: rdb},
		Policies:  []quota.Policy{{Name: "api", Quota: 600, Window: time.Minute, Burst: 1}},
		Key:       heed.ByCredential, // each account of each host; nil is one count for everything
		Processes: processes,         // each keeps to its share while Redis is lost
		Degraded:  trace.Degraded,
	}
	transport := &heed.Transport{
		Pacer:  pacer,
		Budget: &redisstore.Budget{Client: rdb, Degraded: trace.Degraded},
		Board:  &redisstore.Board{Client: rdb},
		Trace:  trace,
	}
	return transport, pacer.Check() // which says what is wrong with the policies
}

// NewClient returns a client of the API. It sends its requests through httpClient; if that is nil,
// it retries and keeps to the API's limits.
func NewClient(httpClient *http.Client) *Client {
	if httpClient == nil {
		httpClient = &http.Client{Transport: forSDKs()}
	}
	return &Client{http: httpClient}
}

func forSDKs() *heed.Transport {
	return &heed.Transport{Retry: heed.RetryPolicy{
		AttemptTimeout: 30 * time.Second,
		IdempotencyKey: heed.RandomIdempotencyKey, // only if the API acts on each key once
		Profiles: []*ratelimit.Profile{{
			Name:  "example",
			Hosts: []string{"api.example.com"},
			// A 403 with this code in its JSON is the rate limit's, and may be sent again.
			Signs: []ratelimit.Sign{{
				Means: ratelimit.Limited, Status: []int{403}, Body: "code", Is: []string{"rate_limited"},
			}},
		}},
	}}
}

type Client struct{ http *http.Client }

func forNginx() *heed.Transport {
	return &heed.Transport{
		Retry: heed.RetryPolicy{Profiles: []*ratelimit.Profile{{
			Name:  "our nginx",
			Hosts: []string{"api.internal.example"},
			Signs: []ratelimit.Sign{{Means: ratelimit.Limited, Status: []int{503}, Without: "Retry-After"}},
		}}},
	}
}

type customer struct{} // the context key of the customer's name

func forCustomers() *heed.Transport {
	byCustomer := func(req *http.Request) string {
		name, _ := req.Context().Value(customer{}).(string)
		return heed.ByHost(req) + " " + name
	}
	return &heed.Transport{
		Key:   byCustomer,                                       // whose cool-down it is
		Pacer: &pace.Keyed{Limit: 5, Burst: 1, Key: byCustomer}, // whose pace
	}
}

// get sends a GET and returns the status, or the error.
func get(ctx context.Context, t *testing.T, transport http.RoundTripper, url string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestHandlersGetAnAnswerWithinTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t,
			testserver.Step{Delay: time.Hour}, testserver.Step{}, // a replica that hangs
			testserver.Step{Status: 429, RetryAfter: 30 * time.Second},
		)
		client := &http.Client{Transport: forHandlers()}
		transport := client.Transport.(*heed.Transport)
		transport.Base = srv.Transport()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		status, err := get(ctx, t, transport, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, 200, status)

		start := time.Now()
		status, err = get(ctx, t, transport, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, 429, status, "the wait does not fit")
		_, err = get(ctx, t, transport, srv.URL)
		var overdue *heed.OverdueError
		require.ErrorAs(t, err, &overdue, "the cool-down is the others', too")
		assert.Greater(t, overdue.Wait, 29*time.Second)
		assert.Zero(t, time.Since(start))
	})
}

func TestAReplicaThatHangsIsLeftInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, transport := testserver.New(t, testserver.Step{Delay: time.Hour, Times: 4}), forReplicas()
		transport.Base, transport.Budget = srv.Transport(), heed.Unlimited
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		status, err := get(ctx, t, transport, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, 200, status)
		assert.Greater(t, time.Since(start), 9*time.Second)
		var at []float64
		for _, exchange := range srv.Log() {
			at = append(at, exchange.Arrived.Sub(start).Seconds())
		}
		assert.InDeltaSlice(t, []float64{0, 5.3, 7.7, 8.9, 9.5}, at, 0.4)
	})
}

func TestAModelsAnswerIsRetriedAndDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, sent := forStreams(), 0
		transport.Base = function(func(req *http.Request) (*http.Response, error) {
			text := "data: 1\n\n"
			if sent++; sent == 1 {
				text = "event: error\ndata: {\"error\":{\"type\":\"overloaded_error\"}}\n\n"
			}
			r, w := io.Pipe()
			go io.WriteString(w, text)
			context.AfterFunc(req.Context(), func() { w.CloseWithError(req.Context().Err()) })
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r}, nil
		})
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://api.anthropic.com/v1/messages", nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		start := time.Now()
		got, err := io.ReadAll(resp.Body)
		assert.Equal(t, "data: 1\n\n", string(got))
		assert.ErrorContains(t, err, "IdleTimeout (30s)")
		assert.Equal(t, 30*time.Second, time.Since(start))
		assert.Equal(t, 2, sent)
		resp.Body.Close()
	})
}

func TestABatchWaitsForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503, Times: 2}, testserver.Step{Status: 429, RetryAfter: time.Hour})
		transport := forBatches()
		transport.Base = srv.Transport()
		start := time.Now()
		status, err := get(t.Context(), t, transport, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, 200, status)
		assert.GreaterOrEqual(t, time.Since(start), time.Hour)
		srv.Check(t)
	})
}

// outage returns a Base that is answered by base, but by down between two times from now.
func outage(base, down http.RoundTripper, from, to time.Duration) http.RoundTripper {
	start := time.Now()
	return function(func(req *http.Request) (*http.Response, error) {
		if d := time.Since(start); from <= d && d < to {
			return down.RoundTrip(req)
		}
		return base.RoundTrip(req)
	})
}

func TestABatchOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, transport := testserver.New(t), forBatches()
		transport.Base = outage(srv.Transport(), refused, 5*time.Second, 10*time.Minute)
		var workers sync.WaitGroup
		for range 20 {
			workers.Go(func() {
				for range 10 {
					status, err := get(t.Context(), t, transport, srv.URL)
					assert.NoError(t, err)
					assert.Equal(t, 200, status)
				}
			})
		}
		workers.Wait()
	})
}

func TestTenAreSentAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, transport := testserver.New(t, testserver.Step{Delay: time.Minute, Times: 50}), forSlowAnswers()
		transport.Base = srv.Transport()
		start := time.Now()
		var workers sync.WaitGroup
		for range 50 {
			workers.Go(func() {
				status, err := get(t.Context(), t, transport, srv.URL)
				assert.NoError(t, err)
				assert.Equal(t, 200, status)
			})
		}
		workers.Wait()
		assert.Equal(t, 5*time.Minute, time.Since(start))
	})
}

func TestARestartIsWaitedFor(t *testing.T) {
	for _, down := range []http.RoundTripper{refused, unavailable} {
		synctest.Test(t, func(t *testing.T) {
			srv, transport := testserver.New(t), forRestarts()
			transport.Trace = nil
			transport.Base = outage(srv.Transport(), down, 5*time.Second, 25*time.Second)
			var calls sync.WaitGroup
			for range 300 {
				time.Sleep(100 * time.Millisecond)
				calls.Go(func() {
					status, err := get(t.Context(), t, transport, srv.URL)
					assert.NoError(t, err)
					assert.Equal(t, 200, status)
				})
			}
			calls.Wait()
		})
	}
}

func TestPatienceIsAsTheTableSays(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		policy   heed.RetryPolicy
		deadline time.Duration
		waits    [3]time.Duration // in an outage that is new, 40 s old, 80 s old
	}{
		"default":       {waits: [3]time.Duration{10 * time.Second, 5 * time.Second, 0}},
		"deadline":      {deadline: 2 * time.Second, waits: [3]time.Duration{1500 * ms, 1500 * ms, 0}},
		"MaxWait":       {policy: heed.RetryPolicy{MaxWait: 500 * ms}, waits: [3]time.Duration{500 * ms, 0, 0}},
		"MaxOutage 2s":  {policy: heed.RetryPolicy{MaxOutage: 2 * time.Second}, waits: [3]time.Duration{2 * time.Second, 0, 0}},
		"MaxOutage 30s": {policy: forRestarts().Retry, waits: [3]time.Duration{30 * time.Second, 25 * time.Second, 5 * time.Second}},
		"MaxOutage 5m": {
			policy: heed.RetryPolicy{MaxOutage: 5 * time.Minute, MaxWait: 5 * time.Minute, MaxElapsed: -1},
			waits:  [3]time.Duration{300 * time.Second, 295 * time.Second, 275 * time.Second},
		},
		"MaxOutage -1": {policy: heed.RetryPolicy{MaxOutage: -1, MaxAttempts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t)
				transport := &heed.Transport{Base: outage(srv.Transport(), refused, time.Second, time.Hour), Retry: c.policy}
				begun := time.Now().Add(time.Second)
				once := heed.WithRetry(t.Context(), heed.RetryPolicy{MaxAttempts: 1})
				for range 30 { // calls that show the outage
					get(once, t, transport, srv.URL)
					time.Sleep(50 * ms)
				}
				var calls sync.WaitGroup
				for i, age := range []time.Duration{500 * ms, 40 * time.Second, 80 * time.Second} {
					time.Sleep(time.Until(begun.Add(age)))
					calls.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.deadline, time.Hour))
						defer cancel()
						start := time.Now()
						_, err := get(ctx, t, transport, srv.URL)
						assert.ErrorIs(t, err, syscall.ECONNREFUSED)
						assert.InDelta(t, c.waits[i].Seconds(), time.Since(start).Seconds(), 0.3, "after %v", age)
					})
				}
				calls.Wait()
			})
		})
	}
}

func TestAFleetSharesItsCoolDown(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	defer rdb.Close()
	srv := testserver.NewTCP(t, testserver.Step{Status: 429, RetryAfter: time.Hour})
	var fleet [2]*heed.Transport
	for i := range fleet {
		var err error
		fleet[i], err = forFleets(rdb, len(fleet))
		require.NoError(t, err)
		fleet[i].Board.(*redisstore.Board).Timeout = time.Minute // or a busy machine may lose the cool-down
	}
	status, err := get(t.Context(), t, fleet[0], srv.URL)
	require.NoError(t, err)
	require.Equal(t, 429, status)
	require.Eventually(t, func() bool {
		_, err := get(t.Context(), t, fleet[1], srv.URL)
		return errors.As(err, new(*heed.OverdueError))
	}, time.Minute, time.Second)
}

func TestAnSDKsPostIsRetriedWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		json := http.Header{"Content-Type": {"application/json"}}
		limited := testserver.Step{Status: 403, Body: `{"code": "rate_limited"}`, Header: json}
		srv := testserver.New(t, testserver.Step{Status: 503}, limited, testserver.Step{Status: 201})
		transport := forSDKs()
		transport.Base = srv.Transport()
		transport.Retry.Profiles[0] = transport.Retry.Profiles[0].On("server.test")
		client := NewClient(&http.Client{Transport: transport})
		resp, err := client.http.Post(srv.URL, "text/plain", nil)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 201, resp.StatusCode)
		assert.NotNil(t, NewClient(nil).http.Transport)
		srv.Check(t)
	})
}

func TestNginxs503IsALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := forNginx()
		transport.Retry.Profiles[0] = transport.Retry.Profiles[0].On("server.test")
		srv := testserver.New(t, testserver.Step{Status: 503})
		transport.Base = srv.Transport()
		req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL, nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 200, resp.StatusCode, "a POST that a limit refused may be sent again")
	})
}

func TestOneCustomersLimitDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Minute})
		transport := forCustomers()
		transport.Base = srv.Transport()
		ctx := t.Context()
		ann := context.WithValue(ctx, customer{}, "ann")
		bob := context.WithValue(ctx, customer{}, "bob")
		status, err := get(ann, t, transport, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, 429, status)
		_, err = get(ann, t, transport, srv.URL)
		assert.ErrorAs(t, err, new(*heed.OverdueError))
		status, err = get(bob, t, transport, srv.URL)
		require.NoError(t, err)
		assert.Equal(t, 200, status)
	})
}
