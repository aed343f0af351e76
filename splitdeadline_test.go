package heed_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/ratelimit"
)

func TestSplitDeadlineGivesEachAttemptHalfOfWhatIsLeft(t *testing.T) {
	const s = time.Second
	keyed := func(req *http.Request) { req.Method, req.Header["Idempotency-Key"] = "POST", []string{"k"} }
	streamed := func(length int64) func(*http.Request) {
		return func(req *http.Request) {
			req.Method, req.ContentLength, req.Body = "PUT", length, io.NopCloser(strings.NewReader("content"))
		}
	}
	for name, c := range map[string]struct {
		policy  heed.RetryPolicy
		change  func(*http.Request)
		forever bool            // no deadline
		want    []time.Duration // how long each attempt takes, of 16 s
	}{
		"four attempts":           {want: []time.Duration{8 * s, 4 * s, 2 * s, 2 * s}},
		"five":                    {policy: heed.RetryPolicy{MaxAttempts: 5}, want: []time.Duration{8 * s, 4 * s, 2 * s, s, s}},
		"two":                     {policy: heed.RetryPolicy{MaxAttempts: 2}, want: []time.Duration{8 * s, 8 * s}},
		"one":                     {policy: heed.RetryPolicy{MaxAttempts: 1}, want: []time.Duration{16 * s}},
		"AttemptTimeout wins":     {policy: heed.RetryPolicy{AttemptTimeout: 5 * s}, want: []time.Duration{5 * s, 5 * s, 5 * s, s}},
		"a negative one does not": {policy: heed.RetryPolicy{AttemptTimeout: -1}, want: []time.Duration{8 * s, 4 * s, 2 * s, 2 * s}},
		"MaxElapsed is not split": {policy: heed.RetryPolicy{MaxElapsed: 20 * s}, forever: true,
			want: []time.Duration{time.Hour}},
		"a POST":            {change: func(req *http.Request) { req.Method = "POST" }, want: []time.Duration{16 * s}},
		"a POST with a key": {change: keyed, want: []time.Duration{8 * s, 4 * s, 2 * s, 2 * s}},
		"a key of heed's": {policy: heed.RetryPolicy{MaxAttempts: 2, IdempotencyKey: heed.RandomIdempotencyKey},
			change: func(req *http.Request) { req.Method = "POST" }, want: []time.Duration{8 * s, 8 * s}},
		"a body that is not kept": {change: streamed(7), want: []time.Duration{16 * s}},
		"a body that is kept": {policy: heed.RetryPolicy{MaxAttempts: 2, MaxBodyBuffer: 7}, change: streamed(7),
			want: []time.Duration{8 * s, 8 * s}},
		"of an unknown length": {policy: heed.RetryPolicy{MaxBodyBuffer: 7}, change: streamed(-1), want: []time.Duration{16 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var took, told []time.Duration
				hangs := roundTripFunc(func(req *http.Request) (*http.Response, error) {
					start := time.Now()
					told = append(told, ratelimit.ParseCall(req.Header).TimeLeft)
					if req.Body != nil {
						io.Copy(io.Discard, req.Body)
						req.Body.Close()
					}
					select {
					case <-req.Context().Done():
					case <-time.After(time.Hour):
					}
					took = append(took, time.Since(start))
					return nil, context.Cause(req.Context())
				})
				ctx, cancel := context.WithTimeout(t.Context(), 16*s)
				defer cancel()
				if c.forever {
					ctx = t.Context()
				}
				req := get(ctx)
				if c.change != nil {
					c.change(req)
				}
				c.policy.Backoff, c.policy.TellServer = func(heed.Attempt) time.Duration { return 0 }, true
				c.policy.SplitDeadline = true
				_, err := (&heed.Transport{Base: hangs, Budget: heed.Unlimited, Retry: c.policy}).RoundTrip(req)
				assert.Equal(t, c.want, took)
				if !c.forever {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Equal(t, c.want, told, "the server is told the attempt's time")
				}
			})
		})
	}
}

func TestFailedDialsTakeNoPartOfTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := reply{err: &net.OpError{Op: "dial", Err: errBroken}}
		s := newScript(dial, dial, reply{status: 200, took: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		defer cancel()
		tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: 2, SplitDeadline: true}}
		_, err := tr.RoundTrip(get(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 4, s.count())
		third, fourth := s.times()[2], s.times()[3]
		between(t, (16*time.Second-third)/2, fourth-third, (16*time.Second-third)/16*9)
	})
}

func TestWithoutSplitDeadlineAnAttemptHasAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(reply{status: 200, took: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		defer cancel()
		_, err := (&heed.Transport{Base: s}).RoundTrip(get(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, s.count())
	})
}

func TestAfterAPartOfTheDeadlineTheWaitIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			s := newScript(reply{status: 200, took: time.Hour}, ok)
			tr := &heed.Transport{Base: s, Retry: heed.RetryPolicy{SplitDeadline: true}}
			resp, err := (&http.Client{Transport: tr, Timeout: 16 * time.Second}).Do(get(t.Context()))
			require.NoError(t, err)
			resp.Body.Close()
			between(t, 8*time.Second, s.times()[1], 9*time.Second)
		}
	})
}

func TestATimeoutOfSplitDeadlineNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(heed.WithLedger(t.Context()), 16*time.Second)
		defer cancel()
		tr := &heed.Transport{Base: newScript(reply{status: 200, took: time.Hour}), Retry: heed.RetryPolicy{SplitDeadline: true}}
		_, err := tr.RoundTrip(get(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		first := heed.FromContext(ctx).Entries[0].Err
		assert.EqualError(t, first, "heed: no response within half of the time left, by RetryPolicy.SplitDeadline (8s)")
		timeout, ok := first.(net.Error)
		assert.True(t, ok && timeout.Timeout())
		assert.NotErrorIs(t, first, context.Canceled, "the caller did not cancel it")
	})
}

// One of three replicas hangs; the load balancer chooses one at random.
func TestSplitDeadlineSavesCallsFromAReplicaThatHangs(t *testing.T) {
	testenv.NeedLong(t)
	for _, c := range []struct {
		policy    heed.RetryPolicy
		low, high float64 // per cent of the calls that are lost
	}{
		{heed.RetryPolicy{}, 31, 36},
		{heed.RetryPolicy{SplitDeadline: true}, 0.7, 1.8},
		{heed.RetryPolicy{SplitDeadline: true, MaxAttempts: 5}, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var mu sync.Mutex
			draw := func() (hangs bool, latency time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(3) == 0, time.Duration(random.ExpFloat64() * float64(100*time.Millisecond))
			}
			base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
				hangs, took := draw()
				if hangs {
					took = time.Hour
				}
				select {
				case <-time.After(took):
					return response(req, ok), nil
				case <-req.Context().Done():
					return nil, req.Context().Err()
				}
			})
			tr, lost := &heed.Transport{Base: base, Retry: c.policy}, atomic.Int64{}
			const calls = 6000
			var all sync.WaitGroup
			for range calls { // five a second
				time.Sleep(200 * time.Millisecond)
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					if _, err := tr.RoundTrip(get(ctx)); err != nil {
						lost.Add(1)
					}
				})
			}
			all.Wait()
			share := 100 * float64(lost.Load()) / calls
			t.Logf("split: %t, MaxAttempts: %d: %.2f %% lost", c.policy.SplitDeadline, c.policy.MaxAttempts, share)
			assert.GreaterOrEqual(t, share, c.low)
			assert.LessOrEqual(t, share, c.high)
		})
	}
}

// The same over sockets: a balancer that chooses a replica for each connection.
func TestSplitDeadlineOverConnections(t *testing.T) {
	testenv.NeedLong(t)
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") }))
	defer replica.Close()
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hanging.Close()
	go func() {
		for {
			conn, err := hanging.Accept() // and never answer
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	for _, c := range []struct {
		policy    heed.RetryPolicy
		low, high float64
	}{
		{heed.RetryPolicy{}, 10, 50},
		{heed.RetryPolicy{SplitDeadline: true}, 0, 4},
		{heed.RetryPolicy{SplitDeadline: true, MaxAttempts: 5}, 0, 2},
	} {
		base := &http.Transport{MaxIdleConnsPerHost: 2, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			addr := replica.Listener.Addr().String()
			if rand.IntN(3) == 0 {
				addr = hanging.Addr().String()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
		tr, lost := &heed.Transport{Base: base, Retry: c.policy}, atomic.Int64{}
		const batches, parallel = 40, 8
		for range batches {
			var calls sync.WaitGroup
			for range parallel {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					resp, err := tr.RoundTrip(get(ctx))
					if err != nil {
						lost.Add(1)
						return
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				})
			}
			calls.Wait()
		}
		base.CloseIdleConnections()
		share := 100 * float64(lost.Load()) / (batches * parallel)
		t.Logf("split: %t, MaxAttempts: %d: %.2f %% lost", c.policy.SplitDeadline, c.policy.MaxAttempts, share)
		assert.GreaterOrEqual(t, share, c.low)
		assert.LessOrEqual(t, share, c.high)
	}
}
