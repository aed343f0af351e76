// An API counts in fixed windows of a minute, and somebody else has used this one up. 200 calls get a
// 429 and a Retry-After to its end, which is up to a minute away. There they meet, and there is room
// for all.

package lab

import (
	"net/http"
	"sync/atomic"
	"time"
)

func windows() []Scenario {
	together := func(calls int) func(*Random, time.Duration, time.Duration) []time.Duration {
		return func(random *Random, from, _ time.Duration) (all []time.Duration) {
			for range calls {
				all = append(all, from+time.Duration(random.Share()*float64(time.Second)))
			}
			return all
		}
	}
	return []Scenario{{Name: "end of a fixed window", Lasts: time.Minute,
		Loads: []Load{
			{Name: "1 x 200 calls", Clients: 1, Starts: together(200)},
			{Name: "200 x 1 call", Clients: 200, Starts: together(1)},
		},
		Server: func(c Conditions) http.RoundTripper {
			var sent atomic.Int64 // in the new window
			end := time.Second + time.Duration(c.Random.Share()*float64(59*time.Second))
			return Server(func(at time.Duration, _ *http.Request) Reply {
				wait := end - at
				if wait <= 0 && sent.Add(1) > 300 {
					wait += time.Minute
				}
				if wait > 0 {
					return Reply{Status: http.StatusTooManyRequests, RetryAfter: wait, Took: 5 * time.Millisecond}
				}
				return good(c.Random)
			}).from(c.From)
		}}}
}
