package pace_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
)

// A slowServer answers after two seconds.
type slowServer struct {
	header http.Header
	sent   atomic.Int64
}

func (s *slowServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent.Add(1)
	select {
	case <-time.After(2 * time.Second):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: 200, Header: s.header, Body: http.NoBody, Request: req}, nil
}

// Each pacer admits one request a second of 20 workers. A drain starts after 5.5 s: the
// six requests that were sent are answered, the others are not sent, and their units go
// back.
func TestDrainEndsTheLineOfEveryPacer(t *testing.T) {
	perSecond := []quota.Policy{{Quota: 1, Window: time.Second, Burst: 1}}
	shared := func() *pace.Shared { return &pace.Shared{Store: new(quota.Memory), Policies: perSecond} }
	failing := new(store)
	failing.fails.Store(true)
	var progress pace.Progress
	for name, newPacer := range map[string]func() heed.Pacer{
		"PerHost":               func() heed.Pacer { return pace.PerHost(1, 1) },
		"With":                  func() heed.Pacer { return pace.With(rate.NewLimiter(1, 1)) },
		"Shared":                func() heed.Pacer { return shared() },
		"Shared with its share": func() heed.Pacer { return &pace.Shared{Store: failing, Policies: perSecond} },
		"Adaptive":              func() heed.Pacer { return &pace.Adaptive{Min: 1, Max: 1} },
		"Each":                  func() heed.Pacer { return pace.Each(shared(), pace.PerHost(10, 10)) },
		"Queue": func() heed.Pacer {
			return &pace.Queue{Pacer: pace.PerHost(1, 1), Progress: func(p pace.Progress) { progress = p }}
		},
		"Queue of a Shared": func() heed.Pacer { return &pace.Queue{Pacer: shared()} },
		"an unbounded one":  func() heed.Pacer { return struct{ heed.Pacer }{shared()} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pacer, server := newPacer(), new(slowServer)
				tr := &heed.Transport{Base: server, Pacer: pacer, Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: -1}}
				stop, cancel := context.WithTimeout(t.Context(), 5500*ms)
				defer cancel()
				answered, notSent, unknown := works(t, tr, 20, stop)
				assert.Equal(t, []int{6, 14, 0}, []int{answered, notSent, unknown})
				assert.EqualValues(t, 6, server.sent.Load())

				start := time.Now() // at 7.5 s, when the next may go
				for range 2 {
					resp, err := tr.RoundTrip(get())
					require.NoError(t, err)
					resp.Body.Close()
				}
				assert.Equal(t, 4*time.Second, time.Since(start))
				if s, ok := pacer.(*pace.Shared); ok {
					assert.Zero(t, s.Held())
				}
			})
		})
	}
	assert.Equal(t, pace.Progress{Done: 8}, progress)
}

// works has workers send a request each until stop ends, and counts the outcomes.
func works(t *testing.T, tr *heed.Transport, workers int, stop context.Context) (answered, notSent, unknown int) {
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	for range workers {
		all.Go(func() {
			resp, err := tr.RoundTrip(request(heed.WithDrain(t.Context(), stop), "http://example.com/"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				resp.Body.Close()
				answered++
			case errors.Is(err, heed.ErrNotSent):
				notSent++
				assert.Less(t, sinceEnd(stop), ms, "at once")
			default:
				unknown++
			}
		})
	}
	all.Wait()
	return answered, notSent, unknown
}

// sinceEnd returns the time since stop's deadline.
func sinceEnd(stop context.Context) time.Duration {
	deadline, _ := stop.Deadline()
	return time.Since(deadline)
}

func TestDrainEndsTheWaitForAnAdvertisedQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{
			header: http.Header{
				"Ratelimit-Limit": {"10"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {"60"},
			},
		}
		tr := &heed.Transport{
			Base: server, Pacer: &pace.Advertised{},
			Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: -1},
		}
		resp, err := tr.RoundTrip(get())
		require.NoError(t, err)
		resp.Body.Close()
		stop, cancel := context.WithTimeout(t.Context(), 5500*ms)
		defer cancel()
		answered, notSent, unknown := works(t, tr, 20, stop)
		assert.Equal(t, []int{0, 20, 0}, []int{answered, notSent, unknown})
		assert.EqualValues(t, 1, server.sent.Load())
	})
}

// Some requests are in line for a Pacer, others behind them in a Queue, one waits for its
// second attempt, and then a cool-down delays all of them.
func TestDrainOfAQueueInACoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		base := roundTripper(func(req *http.Request) (*http.Response, error) {
			resp := &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}
			if sent.Add(1) == 4 { // after 3 s
				resp.StatusCode, resp.Header = 429, http.Header{"Retry-After": {"60"}}
			}
			time.Sleep(2500 * ms)
			return resp, nil
		})
		var progress pace.Progress
		pacer := &pace.Queue{Pacer: pace.PerHost(1, 1), Max: 30, Progress: func(p pace.Progress) { progress = p }}
		tr := &heed.Transport{Base: base, Pacer: pacer, Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: -1}}
		stop, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		answered, notSent, unknown := works(t, tr, 30, stop)
		assert.Equal(t, []int{6, 24, 0}, []int{answered, notSent, unknown}, "the refused request returns its refusal")
		assert.EqualValues(t, 6, sent.Load())
		assert.Equal(t, pace.Progress{Done: 6, Refused: 1}, progress)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
