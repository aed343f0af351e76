package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/internal/chart"
	"github.com/heedhttp/heed/internal/lab"
)

// collapseClients without a kind are not in the picture.
var collapseClients = []client{
	{"naive retry loop", chart.Bad, loop(3)},
	{"backoff and jitter", chart.Bad, heeding(3, heed.Unlimited, heed.Exponential(time.Second, 30*time.Second))},
	{"backoff from 20 s", "", heeding(3, heed.Unlimited, heed.Exponential(20*time.Second, 40*time.Second))},
	{"no retries", chart.Other, loop(1)},
	{"heed, no budget", "", heeding(3, heed.Unlimited, byDefault)},
	{"heed", chart.Ours, heeding(3, nil, byDefault)},
}

// collapse measures whether a server recovers from a spike of load.
func collapse(t *testing.T, runs int) report {
	r := report{
		about: `After the simulator of a collapse by Marc Brooker,
https://github.com/mbrooker/simulator_example/blob/main/simple_collapse_sim/sim.py. Calls begin at random,
40 a second, but 80 a second from the 20th to the 25th. The server takes 1 s and 10 ms for each request
in flight, and works on when its client has stopped waiting. Attempts have 3 s, calls three attempts.`,
		notes: `A run stays down if most calls fail that begin 25 to 55 s after the spike. 80 runs of the published
program gave: naive retry loop 61, 50.5 %, 2.02; backoff from 20 s 0, 0.0 %, 1.04; no retries 0, 4.0 %, 1.00.`,
		table: [][]string{{"client", "runs that stay down", "calls lost", "requests a call"}},
		picture: chart.Picture{Title: "Twice the load for five seconds: who keeps the server down?", Percent: true,
			Note: fmt.Sprintf("share of the calls that succeed, by when they begin: %d runs, and their median", runs)},
	}
	for _, c := range collapseClients {
		p := chart.Panel{Name: c.name, Kind: c.kind, Most: 1, From: 20, To: 25, Shade: "twice the load", X: "seconds",
			Ticks: []float64{0, 20, 40, 60, 80}, Labels: []string{"0", "20", "40", "60", "80"}}
		for at := perPoint / 2; at < lab.SpikeEnds; at += perPoint {
			p.Xs = append(p.Xs, at.Seconds())
		}
		var all []lab.Call
		down, sent := 0, 0
		for seed := range uint64(runs) {
			log := spike(t, c, seed)
			if lab.StaysDown(log.Calls) {
				down++
			}
			all, sent = append(all, log.Calls...), sent+len(log.Attempts)
			p.Lines = append(p.Lines, chart.Line{Kind: c.kind, Ys: succeeding(log.Calls)})
		}
		p.Lines = append(p.Lines, chart.Line{Name: c.name, Kind: c.kind, Ys: chart.Median(p.Lines)})
		lost := fmt.Sprintf("%.1f %%", 100*lab.ShareLost(all, 0))
		p.Figure, p.Words, p.Note = fmt.Sprintf("%d of %d", down, runs), "runs stay down", lost+" of all calls are lost"
		if c.kind != "" {
			r.picture.Panels = append(r.picture.Panels, p)
		}
		r.table = append(r.table, []string{c.name, p.Figure, lost, fmt.Sprintf("%.2f", float64(sent)/float64(len(all)))})
	}
	return r
}

const perPoint = 2 * time.Second // of a line of the picture

// succeeding returns the share of the calls that succeed, for each point of a line.
func succeeding(calls []lab.Call) (ys []float64) {
	var begun, ok [lab.SpikeEnds / perPoint]float64
	for _, c := range calls {
		begun[c.At/perPoint]++
		if c.OK {
			ok[c.At/perPoint]++
		}
	}
	for i := range begun {
		ys = append(ys, ok[i]/max(begun[i], 1))
	}
	return ys
}

// spike is one run.
func spike(t *testing.T, c client, seed uint64) lab.Log {
	plan := lab.Plan{Seed: seed, End: lab.SpikeEnds}
	return lab.Spike(2).Run(t, plan, c.over, func(network *lab.Random) http.RoundTripper {
		return &lab.Overloaded{Network: network}
	})
}
