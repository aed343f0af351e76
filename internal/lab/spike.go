// More users come than a service can bear, for five seconds. It gets slower the more requests it has,
// clients stop waiting and send again, and so it may stay down when the users are gone. The server
// and the load are of a simulator by Marc Brooker, which docs/storms.md explains.

package lab

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

func spikes() (all []Scenario) {
	for _, times := range []float64{2, 2.5} {
		all = append(all, Scenario{Name: fmt.Sprintf("spike of %v times the load", times), Lasts: SpikeEnds,
			Loads:  []Load{Spike(times)},
			Server: func(c Conditions) http.RoundTripper { return &Overloaded{Network: c.Random} },
			Measure: func(log Log, _ Plan, r *Result) {
				r[Down] = 0
				if StaysDown(log.Calls) {
					r[Down] = 1
				}
			}})
	}
	return all
}

// SpikeEnds is when the calls of Spike end.
const SpikeEnds = 80 * time.Second

// Spike is 40 calls a second, but some times as many from the 20th to the 25th.
func Spike(times float64) Load {
	return Load{Name: "1 client", Clients: 1, Rate: 40, Surge: func(at time.Duration) float64 {
		if 20*time.Second <= at && at < 25*time.Second {
			return times
		}
		return 1
	}}
}

// StaysDown reports whether most calls fail that begin 25 s after the spike or later.
func StaysDown(calls []Call) bool { return ShareLost(calls, 50*time.Second) > 0.5 }

// Overloaded is a server that takes longer, the more requests are in flight. The network has
// a mean delay of 100 ms each way.
type Overloaded struct {
	Network  *Random
	mu       sync.Mutex
	inFlight int // guarded by mu
}

// RoundTrip waits for 3 s at most. The server works on without it.
func (o *Overloaded) RoundTrip(req *http.Request) (*http.Response, error) {
	answered := make(chan struct{})
	go func() {
		time.Sleep(o.Network.Wait(100 * time.Millisecond))
		time.Sleep(time.Second + time.Duration(o.change(1))*10*time.Millisecond)
		o.change(-1)
		time.Sleep(o.Network.Wait(100 * time.Millisecond))
		close(answered)
	}()
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case <-answered:
		return Answer(req, http.StatusOK), nil
	case <-timer.C:
		return nil, context.DeadlineExceeded
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
}

func (o *Overloaded) change(n int) (inFlight int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight += n
	return o.inFlight
}
