package lab

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A Load is a number of clients that call one server. Each stands for a process of its own. One of
// Rate, Workers and Starts says when they call.
type Load struct {
	Name     string
	Clients  int
	Deadline time.Duration                      // of each call, if positive
	Request  func(random *Random) *http.Request // nil is a GET of /
	Healthy  time.Duration                      // the least time before the trouble of a Scenario

	// Rate is how many calls each client begins in a second, at random times and whatever became of
	// earlier ones. Surge, if it is not nil, multiplies it.
	Rate  float64
	Surge func(at time.Duration) float64

	// Workers of each client call again when their last call has ended, or a second after it failed.
	// They begin within Spread.
	Workers int
	Spread  time.Duration

	// Starts returns when one client calls. The trouble begins at from and ends at to.
	Starts func(random *Random, from, to time.Duration) []time.Duration
}

// PerSecond returns how many calls begin in a second in all, or 0 if Rate does not say so.
func (l Load) PerSecond() float64 { return float64(l.Clients) * l.Rate }

// A Maker returns the client of one process. Jitter that comes from random is the same in each run.
type Maker = func(base http.RoundTripper, random *Random) http.RoundTripper

// A Plan is the time and the seed of a run. The same seed gives the same calls to all clients.
type Plan struct {
	Seed     uint64
	From, To time.Duration // the trouble
	End      time.Duration // no call begins later
}

// Run makes the calls in a bubble, and returns what happened.
func (l Load) Run(t *testing.T, p Plan, client Maker, server func(network *Random) http.RoundTripper) (log Log) {
	Run(t, func() {
		backoff := newRandom(p.Seed, 3)
		g := &generator{Load: l, Plan: p, random: newRandom(p.Seed, 1), jobs: make(chan job)}
		g.server = server(newRandom(p.Seed, 2))
		for range l.Clients {
			g.clients = append(g.clients, client(&g.recorder, backoff))
		}
		g.start = time.Now()
		switch {
		case l.Workers > 0:
			g.closed()
		case l.Starts != nil:
			g.planned()
		default:
			g.open()
		}
		close(g.jobs)
		g.calls.Wait()
		time.Sleep(time.Minute) // until the server has ended what clients gave up
		log = g.log
	})
	return log
}

// A generator makes the calls of one run.
type generator struct {
	Load
	Plan
	recorder
	random  *Random
	clients []http.RoundTripper
	calls   sync.WaitGroup
	jobs    chan job
}

func (g *generator) open() {
	for {
		rate := g.PerSecond()
		if g.Surge != nil {
			rate *= g.Surge(time.Since(g.start))
		}
		time.Sleep(g.random.Wait(time.Duration(float64(time.Second) / rate)))
		client := g.clients[0]
		if g.Clients > 1 {
			client = g.clients[int(g.random.Share()*float64(g.Clients))]
		}
		if time.Since(g.start) >= g.End {
			return
		}
		g.dispatch(job{client, g.request()})
	}
}

// A job is a call to make.
type job struct {
	client http.RoundTripper
	req    *http.Request
}

// dispatch makes a call in a goroutine that is idle, if there is one. A new one is slower, because
// its stack must grow.
func (g *generator) dispatch(j job) {
	select {
	case g.jobs <- j:
	default:
		g.calls.Go(func() {
			g.call(j.client, j.req)
			for j := range g.jobs {
				g.call(j.client, j.req)
			}
		})
	}
}

func (g *generator) closed() {
	for _, client := range g.clients {
		for range g.Workers {
			first := time.Duration(g.random.Share() * float64(g.Spread))
			g.calls.Go(func() {
				time.Sleep(first)
				for time.Since(g.start) < g.End {
					if !g.call(client, g.request()) {
						time.Sleep(time.Second)
					}
				}
			})
		}
	}
}

func (g *generator) planned() {
	for _, client := range g.clients {
		for _, at := range g.Starts(g.random, g.From, g.To) {
			g.calls.Go(func() {
				time.Sleep(at - time.Since(g.start))
				g.call(client, g.request())
			})
		}
	}
}

func (g *generator) request() *http.Request {
	if g.Request != nil {
		return g.Request(g.random)
	}
	return get("/")
}

// get returns a new request. http.NewRequest would parse the same URLs again and again.
func get(path string) *http.Request {
	return &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: "api.example.com", Path: path},
		Host: "api.example.com", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}}
}

// call makes one call and reports whether it succeeded.
func (g *generator) call(client http.RoundTripper, req *http.Request) bool {
	last := &lastAttempt{}
	ctx := context.WithValue(context.Background(), lastAttempt{}, last)
	if g.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, g.Deadline)
		defer cancel()
	}
	c := Call{At: g.begin(), Path: req.URL.Path}
	c.OK = Succeeded(client.RoundTrip(req.WithContext(ctx)))
	g.end(c, last)
	return c.OK
}
