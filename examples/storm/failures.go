package main

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var failures = experiment{
	name:   "retries",
	title:  "What retries add to the load of a server that fails",
	source: "Marc Brooker, \"Fixing retries with token buckets and circuit breakers\", 2022: https://brooker.co.za/blog/2022/02/28/retries.html",
	about: `A share of the requests fails: 100 clients make 10 calls a second each for 10 s, as in its first figure.
Then every request fails: 10, 100 or 1000 clients make 100 calls a second in all for 90 s, as in its
"effect of client count".`,
	notes: `The token bucket is that of its code: each client has five tokens, a call adds a tenth of one, a retry
takes one. With many clients it was found "converging on the behavior of n retries" within 10 s; here
it has 90 s to drain. heed waits between attempts, as it does by default; the others do not.`,
	run: runFailures,
}

var (
	shares = []float64{0, 0.1, 0.2, 0.3, 0.5, 0.75, 1} // of the requests, that fail
	counts = []int{10, 100, 1000}                      // of clients
)

// failureClients are the clients, with what the source says of their load.
var failureClients = []struct {
	client
	kind      kind
	published string
}{
	{client{"three retries", loop(4)}, bad, "\"1+N times as much work\" at 100 %: 4"},
	{client{"token bucket", tokenBucket}, other, "\"0.1 retries\" much above 10 %: 1.1"},
	{client{"heed", transport(4, nil, byDefault)}, ours, ""},
	{client{"no retries", loop(1)}, other, "\"no extra work\": 1"},
}

func runFailures(t *testing.T, _ int) findings {
	f := findings{
		head:    []string{"requests a call", "20 % fail", "50 %", "(lost)", "100 %", "10 clients", "100", "1000", "published"},
		picture: picture{file: "storm-retries.svg", title: "What retries add to the load of a server that fails", note: "requests a call"},
	}
	byShare := panel{name: "100 clients, 10 calls a second each", x: "share of the requests that fail", xs: shares, most: 4,
		ticks: []tick{{0, "0 %"}, {0.5, "50 %"}, {1, "100 %"}}}
	byCount := panel{name: "every request fails, 100 calls a second in all", x: "clients", xs: []float64{0, 1, 2}, most: 4,
		ticks: []tick{{0, "10"}, {1, "100"}, {2, "1000"}}}
	for _, c := range failureClients {
		one, many, row := line{name: c.name, kind: c.kind}, line{name: c.name, kind: c.kind}, []string{c.name}
		for _, share := range shares {
			perCall, lost := outage{100, time.Millisecond, 0, 10 * time.Second, share}.run(t, c.client)
			one.ys = append(one.ys, perCall)
			if slices.Contains([]float64{0.2, 0.5, 1}, share) {
				row = append(row, fmt.Sprintf("%.2f", perCall))
			}
			if share == 0.5 {
				row = append(row, fmt.Sprintf("(%.0f %%)", 100*lost))
			}
		}
		for _, n := range counts {
			perCall, _ := outage{n, 10 * time.Millisecond, 0, 90 * time.Second, 1}.run(t, c.client)
			many.ys, row = append(many.ys, perCall), append(row, fmt.Sprintf("%.2f", perCall))
			if c.kind == ours {
				afterAMinute, _ := outage{n, 10 * time.Millisecond, time.Minute, 90 * time.Second, 1}.run(t, c.client)
				what := fmt.Sprintf("heed: requests a call of %d clients when every request fails, ", n)
				f.bounds = append(f.bounds, bound{what + "from the start", perCall, 1.25}, bound{what + "after a minute", afterAMinute, 1.25})
			}
		}
		f.rows = append(f.rows, append(row, c.published))
		byShare.lines, byCount.lines = append(byShare.lines, one), append(byCount.lines, many)
	}
	f.picture.panels = []panel{byShare, byCount}
	return f
}

// tokenBucket is the adaptive client of the source, as it is in its code.
func tokenBucket(base http.RoundTripper, _ *dice) http.RoundTripper {
	var mu sync.Mutex // guards tokens
	tokens := 5.0
	add := func(n float64) bool {
		mu.Lock()
		defer mu.Unlock()
		if tokens+n <= 0 {
			return false
		}
		tokens = min(tokens+n, 5)
		return true
	}
	return function(func(req *http.Request) (resp *http.Response, err error) {
		add(0.1)
		for {
			if resp, err = base.RoundTrip(req); succeeded(resp, err) || !add(-1) {
				return resp, err
			}
		}
	})
}

// An outage is some clients of a server that fails after a while, over a network with a
// mean delay of 10 ms each way.
type outage struct {
	clients         int
	gap             time.Duration // the mean time between two calls of all clients
	healthy, broken time.Duration
	failing         float64 // share of the requests that fail in the broken part
}

// run returns the requests for each call of the broken part, and the share of those calls
// that are lost.
func (o outage) run(t *testing.T, c client) (perCall, lost float64) {
	var calls, sent, failed atomic.Int64
	inBubble(t, func() {
		seed := uint64(o.clients)
		load, network, backoff := newDice(seed, 1), newDice(seed, 2), newDice(seed, 3)
		start := time.Now()
		base := function(func(req *http.Request) (*http.Response, error) {
			status, broken := http.StatusOK, time.Since(start) >= o.healthy
			time.Sleep(network.wait(10 * time.Millisecond))
			if broken {
				sent.Add(1)
				if network.share() < o.failing {
					status = http.StatusServiceUnavailable
				}
			}
			time.Sleep(network.wait(10 * time.Millisecond))
			return answer(req, status), nil
		})
		clients := make([]http.RoundTripper, o.clients)
		for i := range clients {
			clients[i] = c.over(base, backoff)
		}
		gap := func(time.Duration) time.Duration { return o.gap }
		pick := func() http.RoundTripper { return clients[int(load.share()*float64(o.clients))] }
		offer(load, o.healthy+o.broken, gap, pick, func(at time.Duration, ok bool) {
			if at >= o.healthy {
				calls.Add(1)
				if !ok {
					failed.Add(1)
				}
			}
		})
	})
	return float64(sent.Load()) / float64(calls.Load()), float64(failed.Load()) / float64(calls.Load())
}
