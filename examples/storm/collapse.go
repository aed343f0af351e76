package main

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed"
)

var collapse = experiment{
	name:   "collapse",
	title:  "A spike of load, and the collapse after it",
	source: "Marc Brooker, simple_collapse_sim, https://github.com/mbrooker/simulator_example/blob/main/simple_collapse_sim/sim.py",
	about: "Calls begin at random, 40 a second, but 80 a second for five seconds; the server takes 1 s and 10 ms for each request " +
		"in flight, and works on when its client has stopped waiting. Each attempt has three seconds, each call three attempts.",
	run: runCollapse,
}

const (
	collapseEnd = 80 * time.Second
	spikeFrom   = 20 * time.Second
	spikeTo     = 25 * time.Second
	laterFrom   = spikeTo + 25*time.Second // when the spike should be long over
	laterTo     = spikeTo + 55*time.Second
	perPoint    = 2 * time.Second // of a line in the picture
)

// collapseClients are the clients, with what the simulator's rules make of them: runs that
// stay down, calls lost, requests a call.
var collapseClients = []struct {
	client
	kind  kind // if there is none, the picture is without it
	rules [3]string
}{
	{client{"naive retry loop", loop(3)}, badKind, [3]string{"61 of 80", "50.5 %", "2.02"}},
	{client{"backoff and jitter", unlimited(time.Second, 30*time.Second)}, badKind, [3]string{"-", "-", "-"}},
	{client{"backoff from 20 s", unlimited(20*time.Second, 40*time.Second)}, "", [3]string{"0 of 80", "0.0 %", "1.04"}},
	{client{"no retries", loop(1)}, otherKind, [3]string{"0 of 80", "4.0 %", "1.00"}},
	{client{"heed, no budget", func(base http.RoundTripper, random *dice) http.RoundTripper {
		rt := ours(3, base, random)
		rt.Budget = heed.Unlimited
		return rt
	}}, "", [3]string{"-", "-", "-"}},
	{client{"heed", func(base http.RoundTripper, random *dice) http.RoundTripper { return ours(3, base, random) }}, oursKind, [3]string{"-", "-", "-"}},
}

// unlimited is heed with a jittered backoff from first to most, and no budget.
func unlimited(first, most time.Duration) func(http.RoundTripper, *dice) http.RoundTripper {
	return func(base http.RoundTripper, random *dice) http.RoundTripper {
		backoff := random.jitter(heed.Exponential(first, most))
		return &heed.Transport{Base: base, Budget: heed.Unlimited, Retry: heed.RetryPolicy{MaxAttempts: 3, Backoff: backoff}}
	}
}

func runCollapse(t *testing.T, runs int) findings {
	f := findings{
		head: []string{"client", "runs that stay down", "his", "calls lost", "his", "requests a call", "his"},
		notes: "A run stays down if fewer than half of the calls succeed that begin 25 to 55 s after the spike. " +
			"No figures are published, but the aim: to show that \"the simple combination of timeout and retry, even with backoff, leads to " +
			"unstable system behavior in open systems\". \"His\" is what 80 runs of the simulator's rules in Python gave us. " +
			"Its own backoff begins with 0 to 20 s: nothing is lost, if callers wait that long.",
		picture: picture{
			file: "storm-collapse.svg", title: "Twice the load for five seconds: who keeps the server down?",
			note:    fmt.Sprintf("share of the calls that succeed, by when they begin: %d runs, and their median", runs),
			percent: true,
		},
	}
	for _, c := range collapseClients {
		all, collapsed := spike{}, 0
		p := panel{name: c.name, kind: c.kind, most: 1, x: "seconds", shade: "twice the load",
			ticks: []tick{{0, "0"}, {20, "20"}, {40, "40"}, {60, "60"}, {80, "80"}}, from: spikeFrom.Seconds(), to: spikeTo.Seconds()}
		for at := perPoint / 2; at < collapseEnd; at += perPoint {
			p.xs = append(p.xs, at.Seconds())
		}
		for seed := range uint64(runs) {
			s := spike{started: make([]int, len(p.xs)), succeeded: make([]int, len(p.xs))}
			s.run(t, c.client, newDice(seed, 1), newDice(seed, 2), newDice(seed, 3))
			if s.collapsed() {
				collapsed++
			}
			all.calls, all.lost, all.sent = all.calls+s.calls, all.lost+s.lost, all.sent+s.sent
			p.lines = append(p.lines, line{kind: c.kind, ys: s.shares()})
		}
		p.lines = append(p.lines, line{c.name, c.kind, median(p.lines)})
		lost, sent := 100*float64(all.lost)/float64(all.calls), float64(all.sent)/float64(all.calls)
		p.figure, p.words = fmt.Sprintf("%d of %d", collapsed, runs), "runs stay down"
		p.note = fmt.Sprintf("%.1f %% of all calls are lost", lost)
		if c.kind != "" {
			f.picture.panels = append(f.picture.panels, p)
		}
		f.rows = append(f.rows, []string{c.name, p.figure, c.rules[0], fmt.Sprintf("%.1f %%", lost), c.rules[1], fmt.Sprintf("%.2f", sent), c.rules[2]})
		if c.kind == oursKind {
			f.bounds = []bound{{"heed: runs that stay down", float64(collapsed), 0, ""}, {"heed: calls lost", lost, mostLost(runs), " %"}}
		}
	}
	return f
}

// mostLost is the bound of the calls that heed loses, in per cent. Few runs need some room.
func mostLost(runs int) float64 {
	if runs < 20 {
		return 3
	}
	return 2
}

// A spike is one run: what became of the calls.
type spike struct {
	mu                 sync.Mutex // guards what follows
	calls, lost        int
	later, lostLater   int
	started, succeeded []int // for each point of the picture

	server overloaded
	sent   int
}

func (s *spike) collapsed() bool { return 2*s.lostLater > s.later }

func (s *spike) shares() (ys []float64) {
	for i, n := range s.started {
		ys = append(ys, float64(s.succeeded[i])/float64(max(n, 1)))
	}
	return ys
}

// run makes the calls of one run. Load, server and backoff have random numbers of their
// own: each client meets the same calls.
func (s *spike) run(t *testing.T, c client, load, server, backoff *dice) {
	inBubble(t, func() {
		s.server.random = server
		rt, start := c.over(limited(&s.server, 3*time.Second), backoff), time.Now()
		var calls sync.WaitGroup
		for {
			mean := time.Second / 40
			if at := time.Since(start); spikeFrom <= at && at < spikeTo {
				mean = time.Second / 80
			}
			time.Sleep(load.wait(mean))
			at := time.Since(start)
			if at >= collapseEnd {
				break
			}
			calls.Go(func() { s.count(at, call(rt)) })
		}
		calls.Wait()
		time.Sleep(time.Minute) // for what the server is still working on
		s.sent = s.server.sent
	})
}

func (s *spike) count(at time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, i := 1, at/perPoint
	if ok {
		lost = 0
	}
	s.calls++
	s.lost += lost
	s.started[i]++
	s.succeeded[i] += 1 - lost
	if laterFrom <= at && at < laterTo {
		s.later++
		s.lostLater += lost
	}
}

// overloaded is a server that answers the later, the more requests are in flight, over a
// network with a mean delay of 100 ms each way.
type overloaded struct {
	random         *dice
	mu             sync.Mutex
	inFlight, sent int // guarded by mu
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
		time.Sleep(o.random.wait(100 * time.Millisecond))
		time.Sleep(time.Second + time.Duration(o.change(1))*10*time.Millisecond)
		o.change(-1)
		time.Sleep(o.random.wait(100 * time.Millisecond))
		close(answered)
	}()
	select {
	case <-answered:
		return answer(req, http.StatusOK), nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// median is, for each point, the median of the lines.
func median(lines []line) (ys []float64) {
	for i := range lines[0].ys {
		var all []float64
		for _, l := range lines {
			all = append(all, l.ys[i])
		}
		slices.Sort(all)
		ys = append(ys, all[len(all)/2])
	}
	return ys
}
