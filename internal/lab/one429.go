// One node of a big service refuses a single request with 429 and Retry-After: 1, by chance, and has
// room for all others. Its answers take long, as those of a language model do, so a client that waits
// for an answer before it goes on loses much. Admitted is the half minute after it, against the
// ordinary number.

package lab

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

func one429s() (all []Scenario) {
	for _, took := range []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second} {
		var loads []Load
		for _, workers := range []int{50, 200} {
			loads = append(loads, Load{Name: fmt.Sprint(workers, " workers"), Clients: 1, Workers: workers, Spread: took})
		}
		all = append(all, Scenario{Name: "one 429 in answers of " + took.String(), Healthy: 2 * time.Minute, Lasts: time.Minute,
			Loads: loads, Server: oneRefusal(took), Measure: afterRefusal})
	}
	return all
}

func oneRefusal(took time.Duration) func(Conditions) http.RoundTripper {
	return func(c Conditions) http.RoundTripper {
		var told atomic.Bool
		return Server(func(at time.Duration, _ *http.Request) Reply {
			if at >= 0 && !told.Swap(true) {
				return Reply{Status: http.StatusTooManyRequests, RetryAfter: time.Second, Took: 10 * time.Millisecond}
			}
			return Reply{Status: http.StatusOK, Took: took/2 + time.Duration(c.Random.Share()*float64(took))}
		}).from(c.From)
	}
}

func afterRefusal(log Log, p Plan, r *Result) {
	before, after := 0.0, 0.0
	for _, a := range log.Attempts {
		switch {
		case a.Status != http.StatusOK:
		case p.From-time.Minute <= a.At && a.At < p.From:
			before += 0.5
		case p.From <= a.At && a.At < p.From+30*time.Second:
			after++
		}
	}
	r[Admitted] = after / before
}
