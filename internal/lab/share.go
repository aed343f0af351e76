// An overloaded or half-broken service answers some requests with 503, whichever they are.

package lab

import (
	"fmt"
	"net/http"
	"time"
)

func shares() (all []Scenario) {
	for _, share := range []float64{0.05, 0.1, 0.2, 0.3, 0.5, 0.9} {
		all = append(all, Scenario{Name: fmt.Sprintf("random 503s %.0f%%", 100*share), Healthy: warmUp, Lasts: 20 * time.Second,
			After: justNow, Loads: sizes, Server: sometimes(share, unavailable)})
	}
	return all
}

// Failing returns a server that answers a share of the requests with 503, from a time on. The network
// has a mean delay of 10 ms each way.
func Failing(network *Random, from time.Duration, share float64) http.RoundTripper {
	start := time.Now()
	return Func(func(req *http.Request) (*http.Response, error) {
		status, failing := http.StatusOK, time.Since(start) >= from
		time.Sleep(network.Wait(10 * time.Millisecond))
		if failing && network.Share() < share {
			status = http.StatusServiceUnavailable
		}
		time.Sleep(network.Wait(10 * time.Millisecond))
		return Answer(req, status), nil
	})
}
