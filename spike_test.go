package heed_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
)

// A spike is 80 s of Poisson calls, 40 a second, but 80 for five seconds, to a server that
// takes a second and 10 ms for each request in flight, however long its clients wait, over
// a network with a mean delay of 100 ms each way. It is the collapse of Marc Brooker,
// "Fixing retries with token buckets and circuit breakers" (2022, simple_collapse_sim), in
// which retries keep the server overloaded when the spike is over.
type spike struct {
	calls, lost, sent int
	later, lostLater  int // of 25 s to 55 s after the spike
}

const (
	spikeAt, spikeFor = 20 * time.Second, 5 * time.Second
	spikeEnd          = 80 * time.Second
)

// overloaded answers the later, the more requests are in flight.
type overloaded struct {
	mu             sync.Mutex
	random         *rand.Rand // guarded by mu, as what follows
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
	answered := make(chan struct{})
	go func() { // whether anybody waits or not
		time.Sleep(o.delay())
		time.Sleep(time.Second + time.Duration(o.change(1))*10*time.Millisecond)
		o.change(-1)
		time.Sleep(o.delay())
		close(answered)
	}()
	select {
	case <-answered:
		return response(req, ok), nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// run makes the calls through tr, with three attempts of three seconds each.
func (s *spike) run(t *testing.T, seed uint64, tr *heed.Transport) {
	random, start := rand.New(rand.NewPCG(seed, 1)), time.Now()
	server := &overloaded{random: rand.New(rand.NewPCG(seed, 2))}
	tr.Base, tr.Retry.MaxAttempts, tr.Retry.AttemptTimeout = server, 3, 3*time.Second
	var calls sync.WaitGroup
	var mu sync.Mutex
	for {
		rate := 40.0
		if since := time.Since(start); spikeAt <= since && since < spikeAt+spikeFor {
			rate = 80
		}
		time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		at := time.Since(start)
		if at >= spikeEnd {
			break
		}
		calls.Go(func() {
			resp, err := tr.RoundTrip(get(t.Context()))
			lost := 0
			if err != nil || resp.StatusCode != 200 {
				lost = 1
			}
			mu.Lock()
			defer mu.Unlock()
			s.calls++
			s.lost += lost
			if after := at - spikeAt - spikeFor; 25*time.Second <= after && after < 55*time.Second {
				s.later++
				s.lostLater += lost
			}
		})
	}
	calls.Wait()
	time.Sleep(time.Minute) // for what the server is still working on
	server.mu.Lock()
	defer server.mu.Unlock()
	s.sent += server.sent
}

func (s *spike) collapsed() bool { return 2*s.lostLater > s.later }

func TestASpikeOfLoadLeavesNoCollapse(t *testing.T) {
	var all spike
	seeds, most := 8, 0.03 // of 80, a share of 0.02 is the bound
	if testenv.Long() {
		seeds, most = 80, 0.02
	}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			var s spike
			s.run(t, seed, &heed.Transport{})
			assert.False(t, s.collapsed())
			all.calls, all.lost, all.sent = all.calls+s.calls, all.lost+s.lost, all.sent+s.sent
		})
	}
	lost := float64(all.lost) / float64(all.calls)
	t.Logf("%.2f %% of %d calls lost, %.3f requests a call", 100*lost, all.calls, float64(all.sent)/float64(all.calls))
	assert.LessOrEqual(t, lost, most)
}

// Otherwise the experiment would show nothing.
func TestWithoutABudgetASpikeOfLoadMayLeaveACollapse(t *testing.T) {
	collapsed := 0
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			var s spike
			s.run(t, seed, &heed.Transport{Budget: heed.Unlimited, Retry: heed.RetryPolicy{Backoff: heed.FullJitter(heed.Exponential(time.Second, 30*time.Second))}})
			if s.collapsed() {
				collapsed++
			}
		})
	}
	t.Logf("%d of 8 collapsed", collapsed)
	assert.Positive(t, collapsed)
}
