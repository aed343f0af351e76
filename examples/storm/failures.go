package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var failures = experiment{
	name:   "retries",
	title:  "What retries add to the load of a server that fails",
	source: "Marc Brooker, \"Fixing retries with token buckets and circuit breakers\", 2022, https://brooker.co.za/blog/2022/02/28/retries.html",
	about: "A share of the requests fails: 100 clients make 10 calls a second each for 10 s, as in its first figure. " +
		"Then every request fails, and 10, 100 or 1000 clients make 100 calls a second in all for 90 s, as in its \"effect of client count\".",
	run: runFailures,
}

// The horizontal axes of the two figures.
var (
	shares = []float64{0, 0.1, 0.2, 0.3, 0.5, 0.75, 1}
	counts = []int{10, 100, 1000}
)

// failureClients are the clients, with what the source says of their load.
var failureClients = []struct {
	client
	kind      kind
	published string
}{
	{client{"three retries", loop(4)}, badKind, "\"1+N times as much work\" at 100 %: 4"},
	{client{"token bucket", tokenBucket}, otherKind, "\"0.1 retries\" much above 10 %: 1.1"},
	{client{"heed", func(base http.RoundTripper, random *dice) http.RoundTripper { return ours(4, base, random) }}, oursKind, "-"},
	{client{"no retries", loop(1)}, otherKind, "\"no extra work\": 1"},
}

func runFailures(t *testing.T, _ int) findings {
	f := findings{
		head: []string{"requests a call", "20 % fail", "50 %", "(calls lost)", "100 %", "10 clients", "100", "1000", "published"},
		notes: "The token bucket is that of his code: each client has five tokens, a call adds a tenth of one, a retry takes one. " +
			"With many clients he found it \"converging on the behavior of n retries\", in 10 s; here it has 90 s to drain. " +
			"heed is as it comes, with its backoff; the others repeat at once.",
		picture: picture{file: "storm-retries.svg", title: "What retries add to the load of a server that fails", note: "requests a call"},
	}
	byShare := panel{name: "100 clients, 10 calls a second each", x: "share of the requests that fail", xs: shares, most: 4,
		ticks: []tick{{0, "0 %"}, {0.5, "50 %"}, {1, "100 %"}}}
	byCount := panel{name: "every request fails, 100 calls a second in all", x: "clients", xs: []float64{0, 1, 2}, most: 4,
		ticks: []tick{{0, "10"}, {1, "100"}, {2, "1000"}}}
	for _, c := range failureClients {
		one, many := line{name: c.name, kind: c.kind}, line{name: c.name, kind: c.kind}
		row := []string{c.name}
		for _, share := range shares {
			o := outage{clients: 100, gap: time.Millisecond, broken: 10 * time.Second, failing: share}
			perCall, lost := o.run(t, c.client)
			one.ys = append(one.ys, perCall)
			if share >= 0.2 && share != 0.3 && share != 0.75 {
				row = append(row, fmt.Sprintf("%.2f", perCall))
			}
			if share == 0.5 {
				row = append(row, fmt.Sprintf("(%.0f %%)", 100*lost))
			}
		}
		for _, n := range counts {
			perCall, _ := manyClients(n, 0).run(t, c.client)
			many.ys, row = append(many.ys, perCall), append(row, fmt.Sprintf("%.2f", perCall))
		}
		f.rows = append(f.rows, append(row, c.published))
		byShare.lines, byCount.lines = append(byShare.lines, one), append(byCount.lines, many)
		if c.kind == oursKind {
			f.bounds = heedBounds(t, c.client, many.ys)
		}
	}
	f.picture.panels = []panel{byShare, byCount}
	return f
}

// manyClients is the outage of the effect of client count.
func manyClients(n int, healthy time.Duration) outage {
	return outage{clients: n, gap: 10 * time.Millisecond, healthy: healthy, broken: 90 * time.Second, failing: 1}
}

func heedBounds(t *testing.T, c client, fromTheStart []float64) (bounds []bound) {
	for i, n := range counts {
		afterAMinute, _ := manyClients(n, time.Minute).run(t, c)
		what := fmt.Sprintf("heed: requests a call of %d clients when every request fails,", n)
		bounds = append(bounds, bound{what + " from the start:", fromTheStart[i], 1.25, ""}, bound{what + " after a minute:", afterAMinute, 1.25, ""})
	}
	return bounds
}

// tokenBucket is the adaptive client of the source, as it is in its code.
func tokenBucket(base http.RoundTripper, _ *dice) http.RoundTripper {
	const most, each = 5, 0.1
	var mu sync.Mutex // guards tokens
	tokens := float64(most)
	may := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if tokens <= 1 {
			return false
		}
		tokens--
		return true
	}
	return function(func(req *http.Request) (resp *http.Response, err error) {
		mu.Lock()
		tokens = min(tokens+each, most)
		mu.Unlock()
		for {
			if resp, err = base.RoundTrip(req); !failed(resp, err) || !may() {
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
	var calls, sent, failures atomic.Int64
	inBubble(t, func() {
		seed := uint64(o.clients)
		load, network, backoff := newDice(seed, 1), newDice(seed, 2), newDice(seed, 3)
		start := time.Now()
		base := function(func(req *http.Request) (*http.Response, error) {
			if time.Since(start) >= o.healthy {
				sent.Add(1)
			}
			time.Sleep(network.wait(10 * time.Millisecond))
			status := http.StatusOK
			if time.Since(start) >= o.healthy && network.share() < o.failing {
				status = http.StatusServiceUnavailable
			}
			time.Sleep(network.wait(10 * time.Millisecond))
			return answer(req, status), nil
		})
		clients := make([]http.RoundTripper, o.clients)
		for i := range clients {
			clients[i] = c.over(base, backoff)
		}
		var all sync.WaitGroup
		for {
			time.Sleep(load.wait(o.gap))
			at := time.Since(start)
			if at >= o.healthy+o.broken {
				break
			}
			if at >= o.healthy {
				calls.Add(1)
			}
			rt := clients[int(load.share()*float64(o.clients))]
			all.Go(func() {
				if !call(rt) {
					failures.Add(1)
				}
			})
		}
		all.Wait()
	})
	return float64(sent.Load()) / float64(calls.Load()), float64(failures.Load()) / float64(calls.Load())
}
