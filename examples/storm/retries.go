package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/heedhttp/heed/examples/internal/chart"
	"github.com/heedhttp/heed/internal/lab"
)

var (
	shares = []float64{0, 0.1, 0.2, 0.3, 0.5, 0.75, 1} // of the requests, that fail
	counts = []int{10, 100, 1000}                      // of clients
)

var retriesClients = []client{
	{"three retries", chart.Bad, loop(4)},
	{"token bucket", chart.Other, tokenBucket},
	{"heed", chart.Ours, heeding(4, nil, byDefault)},
	{"no retries", chart.Other, loop(1)},
}

// retries measures how many requests a client sends for each call while a server fails.
func retries(t *testing.T) report {
	byShare := chart.Panel{Name: "100 clients, 10 calls a second each", X: "share of the requests that fail", Most: 4,
		Xs: shares, Ticks: []float64{0, 0.5, 1}, Labels: []string{"0 %", "50 %", "100 %"}}
	byCount := chart.Panel{Name: "every request fails, 100 calls a second in all", X: "clients", Most: 4,
		Xs: []float64{0, 1, 2}, Ticks: []float64{0, 1, 2}, Labels: []string{"10", "100", "1000"}}
	table := [][]string{{"requests a call", "0 % fail", "10 %", "20 %", "30 %", "50 %", "75 %", "100 %",
		"10 clients", "100", "1000", "lost at 50 %"}}
	for _, c := range retriesClients {
		one, many := chart.Line{Name: c.name, Kind: c.kind}, chart.Line{Name: c.name, Kind: c.kind}
		row, lostAtHalf := []string{c.name}, 0.0
		for _, share := range shares {
			perCall, lost := outage{clients: 100, gap: time.Millisecond, lasts: 10 * time.Second, share: share}.run(t, c)
			one.Ys, row = append(one.Ys, perCall), append(row, fmt.Sprintf("%.2f", perCall))
			if share == 0.5 {
				lostAtHalf = lost
			}
		}
		for _, n := range counts {
			perCall, _ := outage{clients: n, gap: 10 * time.Millisecond, lasts: 90 * time.Second, share: 1}.run(t, c)
			many.Ys, row = append(many.Ys, perCall), append(row, fmt.Sprintf("%.2f", perCall))
		}
		table = append(table, append(row, fmt.Sprintf("%.0f %%", 100*lostAtHalf)))
		byShare.Lines, byCount.Lines = append(byShare.Lines, one), append(byCount.Lines, many)
	}
	return report{
		about: `After "Fixing retries with token buckets and circuit breakers" by Marc Brooker,
https://brooker.co.za/blog/2022/02/28/retries.html. A share of the requests fails, for 10 s. Then every
request fails, for 90 s, of 10, 100 or 1000 clients that make 100 calls a second in all.`,
		notes: `Published at 100 %: three retries 4, the token bucket 1.1, no retries 1. heed waits between attempts.`,
		table: table,
		picture: chart.Picture{Title: "What retries add to the load of a server that fails", Note: "requests a call",
			Panels: []chart.Panel{byShare, byCount}},
	}
}

// An outage is a server that begins to fail, with a mean network delay of 10 ms each way.
type outage struct {
	clients        int
	gap            time.Duration // the mean time between two calls
	healthy, lasts time.Duration
	share          float64 // of the requests, that fail
}

// run returns the requests sent for each call of the outage, and the share of calls lost.
func (o outage) run(t *testing.T, c client) (perCall, lost float64) {
	load := lab.Load{Clients: o.clients, Rate: float64(time.Second/o.gap) / float64(o.clients)}
	plan := lab.Plan{Seed: uint64(o.clients), From: o.healthy, End: o.healthy + o.lasts}
	log := load.Run(t, plan, c.over, func(network *lab.Random) http.RoundTripper {
		return lab.Failing(network, o.healthy, o.share)
	})
	failing := slices.DeleteFunc(log.Attempts, func(a lab.Attempt) bool { return a.At < o.healthy })
	calls := slices.DeleteFunc(log.Calls, func(c lab.Call) bool { return c.At < o.healthy })
	return float64(len(failing)) / float64(len(calls)), lab.ShareLost(calls, 0)
}
