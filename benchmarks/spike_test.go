package benchmarks_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// These benchmarks run the second experiment of examples/storm with rivals: whether a server
// recovers from five seconds of twice its load. The load and the server are copies, because a
// main package cannot be imported. All clients make three attempts of three seconds, and back
// off from one second to thirty as their documentation shows.
var spiked = []rival{
	{"bare loop", func(base http.RoundTripper) http.RoundTripper {
		return function(func(req *http.Request) (resp *http.Response, err error) {
			for range 3 {
				if resp, err = base.RoundTrip(req); err == nil {
					break
				}
			}
			return resp, err
		})
	}},
	{"no retries", bare.over},
	{"retryablehttp", func(base http.RoundTripper) http.RoundTripper {
		c := retryablehttp.NewClient()
		c.Logger, c.RetryMax, c.HTTPClient = nil, 2, &http.Client{Transport: base}
		return &retryablehttp.RoundTripper{Client: c}
	}},
	{"rehttp", func(base http.RoundTripper) http.RoundTripper {
		failed := func(a rehttp.Attempt) bool { return a.Error != nil }
		retry := rehttp.RetryAll(rehttp.RetryMaxRetries(2), failed)
		return rehttp.NewTransport(base, retry, rehttp.ExpJitterDelay(time.Second, 30*time.Second))
	}},
	{"failsafe", func(base http.RoundTripper) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(2).WithBackoff(time.Second, 30*time.Second)
		return failsafehttp.NewRoundTripper(base, policy.Build())
	}},
	{"failsafe, with its budget", func(base http.RoundTripper) http.RoundTripper {
		policy := failsafehttp.NewRetryPolicyBuilder().WithMaxRetries(2).WithBackoff(time.Second, 30*time.Second)
		return failsafehttp.NewRoundTripper(base, policy.WithBudget(budget.New()).Build())
	}},
	{"heed, no budget", func(base http.RoundTripper) http.RoundTripper {
		return &heed.Transport{Base: base, Budget: heed.Unlimited, Retry: heed.RetryPolicy{MaxAttempts: 3}}
	}},
	{"heed", func(base http.RoundTripper) http.RoundTripper {
		return &heed.Transport{Base: base, Retry: heed.RetryPolicy{MaxAttempts: 3}}
	}},
}

func TestASpikeOfLoadLeavesNoCollapse(t *testing.T) {
	runs := 4
	if testenv.Long() {
		runs = 80
	}
	for _, r := range spiked {
		var all spike
		down := 0
		for seed := range uint64(runs) {
			s := spikeOf(t, r, seed)
			if 2*s.lostLater > s.later {
				down++
			}
			all.calls, all.lost, all.sent = all.calls+s.calls, all.lost+s.lost, all.sent+s.sent
		}
		lost := float64(all.lost) / float64(all.calls)
		t.Logf("%-26s %2d of %d runs stay down, %4.1f %% of the calls lost, %.2f requests a call",
			r.name, down, runs, 100*lost, float64(all.sent)/float64(all.calls))
		switch r.name {
		case "bare loop":
			assert.Positive(t, down, "otherwise this shows nothing")
		case "heed":
			assert.Zero(t, down)
			assert.LessOrEqual(t, lost, 0.03)
		}
	}
}

// A spike counts the calls of one run, and those that began 25 to 55 s after the spike.
type spike struct{ calls, lost, sent, later, lostLater int }

func spikeOf(t *testing.T, r rival, seed uint64) (s spike) {
	synctest.Test(t, func(t *testing.T) {
		random, start := rand.New(rand.NewPCG(seed, 1)), time.Now()
		server := &overloaded{random: rand.New(rand.NewPCG(seed, 2))}
		rt := r.over(server)
		var calls sync.WaitGroup
		var mu sync.Mutex
		for {
			rate := 40.0
			if at := time.Since(start); 20*time.Second <= at && at < 25*time.Second {
				rate = 80
			}
			time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
			at := time.Since(start)
			if at >= 80*time.Second {
				break
			}
			calls.Go(func() {
				resp, err := rt.RoundTrip(request(t, "GET", url, nil))
				mu.Lock()
				defer mu.Unlock()
				lost := 1
				if err == nil && resp.StatusCode == http.StatusOK {
					lost = 0
				}
				s.calls++
				s.lost += lost
				if at >= 50*time.Second {
					s.later++
					s.lostLater += lost
				}
			})
		}
		calls.Wait()
		time.Sleep(time.Minute) // until the server has ended what clients gave up
		server.mu.Lock()
		defer server.mu.Unlock()
		s.sent = server.sent
	})
	return s
}

// overloaded takes a second, and 10 ms for each request in flight. Clients wait for three seconds,
// and it works on without them. The network takes 100 ms each way on average.
type overloaded struct {
	mu             sync.Mutex
	random         *rand.Rand // guarded by mu, like the next fields
	inFlight, sent int
}

func (o *overloaded) delay() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Duration(o.random.ExpFloat64() * float64(100*time.Millisecond))
}

func (o *overloaded) change(n int) (inFlight int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight += n
	o.sent += max(n, 0)
	return o.inFlight
}

func (o *overloaded) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), 3*time.Second)
	defer cancel()
	answered := make(chan struct{})
	go func() {
		time.Sleep(o.delay())
		time.Sleep(time.Second + time.Duration(o.change(1))*10*time.Millisecond)
		o.change(-1)
		time.Sleep(o.delay())
		close(answered)
	}()
	select {
	case <-answered:
		return answer{}.RoundTrip(req)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
