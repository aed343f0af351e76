package main

import (
	"fmt"
	"math"
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
	source: "Marc Brooker, simple_collapse_sim: https://github.com/mbrooker/simulator_example/blob/main/simple_collapse_sim/sim.py",
	about: `Calls begin at random, 40 a second, but 80 a second from the 20th to the 25th; the server takes 1 s and
10 ms for each request in flight, and works on when its client has stopped waiting. Each attempt has
3 s, each call three attempts.`,
	notes: `A run stays down if fewer than half of the calls succeed that begin 25 to 55 s after the spike. The
source has no figures, but an aim: to show that "the simple combination of timeout and retry, even
with backoff, leads to unstable system behavior in open systems". In brackets: 80 runs of its rules in
its own language, by us. Its backoff is the one from 20 s: it loses nothing, if callers wait that long.`,
	run: runCollapse,
}

// collapseClients are the clients, with what the simulator's rules gave for them: runs that
// stay down, calls lost, requests a call.
var collapseClients = []struct {
	client
	kind  kind // if there is none, the picture is without it
	rules [3]string
}{
	{client{"naive retry loop", loop(3)}, bad, [3]string{" (61 of 80)", " (50.5 %)", " (2.02)"}},
	{client{"backoff and jitter", transport(3, heed.Unlimited, heed.Exponential(time.Second, 30*time.Second))}, bad, [3]string{}},
	{client{"backoff from 20 s", transport(3, heed.Unlimited, heed.Exponential(20*time.Second, 40*time.Second))}, "", [3]string{" (0 of 80)", " (0.0 %)", " (1.04)"}},
	{client{"no retries", loop(1)}, other, [3]string{" (0 of 80)", " (4.0 %)", " (1.00)"}},
	{client{"heed, no budget", transport(3, heed.Unlimited, byDefault)}, "", [3]string{}},
	{client{"heed", transport(3, nil, byDefault)}, ours, [3]string{}},
}

func runCollapse(t *testing.T, runs int) findings {
	f := findings{
		head: []string{"client", "runs that stay down", "calls lost", "requests a call"},
		picture: picture{file: "storm-collapse.svg", title: "Twice the load for five seconds: who keeps the server down?",
			note: fmt.Sprintf("share of the calls that succeed, by when they begin: %d runs, and their median", runs), percent: true},
	}
	for _, c := range collapseClients {
		p := panel{name: c.name, kind: c.kind, most: 1, x: "seconds", from: 20, to: 25, shade: "twice the load",
			ticks: []tick{{0, "0"}, {20, "20"}, {40, "40"}, {60, "60"}, {80, "80"}}}
		for i := range points {
			p.xs = append(p.xs, (perPoint*time.Duration(i) + perPoint/2).Seconds())
		}
		all, down := spike{}, 0
		for seed := range uint64(runs) {
			s := spikeOf(t, c.client, seed)
			if s.lost(later) > 0.5 {
				down++
			}
			all.add(s)
			p.lines = append(p.lines, line{kind: c.kind, ys: s.shares()})
		}
		p.lines = append(p.lines, line{c.name, c.kind, median(p.lines)})
		lost, sent := 100*all.lost(0), float64(all.sent)/float64(all.calls(0))
		p.figure, p.words, p.note = fmt.Sprintf("%d of %d", down, runs), "runs stay down", fmt.Sprintf("%.1f %% of all calls are lost", lost)
		if c.kind != "" {
			f.picture.panels = append(f.picture.panels, p)
		}
		f.rows = append(f.rows, []string{c.name, p.figure + c.rules[0], fmt.Sprintf("%.1f %%%s", lost, c.rules[1]), fmt.Sprintf("%.2f%s", sent, c.rules[2])})
		if c.kind == ours {
			most := 2.0
			if runs < 20 {
				most = 3 // few runs differ more
			}
			f.bounds = []bound{{"heed: runs that stay down", float64(down), 0}, {"heed: calls lost, per cent", math.Round(10*lost) / 10, most}}
		}
	}
	return f
}

const (
	points   = 40 // of a line of the picture
	perPoint = 2 * time.Second
	later    = 25 // the first point that is 25 s after the spike
)

// A spike is one run: the calls that began, and those of them that succeeded, for each
// point, and the requests.
type spike struct {
	begun, ok [points]int
	sent      int
}

func (s *spike) add(o spike) {
	s.sent += o.sent
	for i := range points {
		s.begun[i], s.ok[i] = s.begun[i]+o.begun[i], s.ok[i]+o.ok[i]
	}
}

// calls are those that began from a point on, lost the share of them that did not succeed.
func (s *spike) calls(from int) int    { return sum(s.begun[from:]) }
func (s *spike) lost(from int) float64 { return 1 - float64(sum(s.ok[from:]))/float64(s.calls(from)) }

func sum(ns []int) (all int) {
	for _, n := range ns {
		all += n
	}
	return all
}

func (s *spike) shares() (ys []float64) {
	for i, n := range s.begun {
		ys = append(ys, float64(s.ok[i])/float64(max(n, 1)))
	}
	return ys
}

// spikeOf is one run. Load, server and backoff have dice of their own: all clients meet the
// same calls.
func spikeOf(t *testing.T, c client, seed uint64) (s spike) {
	inBubble(t, func() {
		server := &overloaded{random: newDice(seed, 2)}
		rt := c.over(limited(server, 3*time.Second), newDice(seed, 3))
		gap := func(at time.Duration) time.Duration {
			if 20*time.Second <= at && at < 25*time.Second {
				return time.Second / 80
			}
			return time.Second / 40
		}
		var mu sync.Mutex // guards s
		offer(newDice(seed, 1), points*perPoint, gap, func() http.RoundTripper { return rt }, func(at time.Duration, ok bool) {
			mu.Lock()
			defer mu.Unlock()
			s.begun[at/perPoint]++
			if ok {
				s.ok[at/perPoint]++
			}
		})
		time.Sleep(time.Minute) // for what the server is still working on
		server.mu.Lock()
		defer server.mu.Unlock()
		s.sent = server.sent
	})
	return s
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
	for i := range points {
		all := make([]float64, len(lines))
		for j, l := range lines {
			all[j] = l.ys[i]
		}
		slices.Sort(all)
		ys = append(ys, all[len(all)/2])
	}
	return ys
}
