package lab

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// A Load is a number of clients that call one server at random times.
type Load struct {
	Seed    uint64 // the same seed gives the same calls, to every kind of client
	Clients int
	Gap     func(at time.Duration) time.Duration // the mean time between two calls
	End     time.Duration                        // no call begins later
}

// A Call is one of a Load: when it began, and whether it succeeded.
type Call struct {
	At time.Duration
	OK bool
}

// Run makes the calls in a bubble, and returns them all.
func (l Load) Run(t *testing.T, client func(base http.RoundTripper, random *Random) http.RoundTripper,
	server func(network *Random) http.RoundTripper) (calls []Call) {
	Run(t, func() {
		load, backoff := newRandom(l.Seed, 1), newRandom(l.Seed, 3)
		base := server(newRandom(l.Seed, 2))
		clients := make([]http.RoundTripper, l.Clients)
		for i := range clients {
			clients[i] = client(base, backoff)
		}
		var mu sync.Mutex // guards calls
		var underWay sync.WaitGroup
		for start := time.Now(); ; {
			time.Sleep(load.Wait(l.Gap(time.Since(start))))
			at, client := time.Since(start), clients[0]
			if l.Clients > 1 {
				client = clients[int(load.Share()*float64(l.Clients))]
			}
			if at >= l.End {
				break
			}
			underWay.Go(func() {
				req, _ := http.NewRequest(http.MethodGet, "http://api.example.com/", nil)
				ok := Succeeded(client.RoundTrip(req))
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, Call{at, ok})
			})
		}
		underWay.Wait()
		time.Sleep(time.Minute) // until the server has ended what clients gave up
	})
	return calls
}

// Lost returns the share of calls that failed, of those that began at a time or later.
func Lost(calls []Call, from time.Duration) float64 {
	all, lost := 0, 0
	for _, c := range calls {
		if c.At >= from {
			all++
			if !c.OK {
				lost++
			}
		}
	}
	return float64(lost) / float64(max(all, 1))
}

// Succeeded reports whether a call got a 200.
func Succeeded(resp *http.Response, err error) bool {
	return err == nil && resp.StatusCode == http.StatusOK
}

// Answer returns a response without a body.
func Answer(req *http.Request, status int) *http.Response {
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: http.NoBody, Request: req}
}

// A Func is a RoundTripper.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f Func) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
