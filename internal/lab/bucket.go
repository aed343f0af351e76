// An API has a token bucket of 500 requests a minute, 20 at once, and says correctly in whole seconds
// when the next token is there. Answers take long, as those of a language model do. There are as many
// workers as would use 1.3 times the limit. Admitted is the share of the limit that they use.

package lab

import (
	"net/http"
	"sync"
	"time"
)

func buckets() (all []Scenario) {
	for _, took := range []time.Duration{5 * time.Second, 20 * time.Second, 40 * time.Second} {
		demand := Load{Name: "1.3 times", Clients: 1, Workers: int(1.3 * perSecond * took.Seconds()), Spread: took}
		all = append(all, Scenario{Name: "500 a minute in answers of " + took.String(), Lasts: 10 * time.Minute,
			Loads: []Load{demand},
			Server: func(c Conditions) http.RoundTripper {
				bucket := &bucket{tokens: burst}
				return Server(func(at time.Duration, _ *http.Request) Reply {
					if wait := bucket.take(at); wait > 0 {
						return Reply{Status: http.StatusTooManyRequests, RetryAfter: wait, Took: 50 * time.Millisecond}
					}
					return Reply{Status: http.StatusOK, Took: 50*time.Millisecond + took/2 + c.Random.Wait(took/2)}
				}).from(c.From)
			},
			Measure: func(log Log, p Plan, r *Result) {
				used := 0.0
				for _, a := range log.Attempts {
					if a.Status == http.StatusOK && a.At < p.To {
						used++
					}
				}
				r[Admitted] = used / (burst + perSecond*p.To.Seconds())
			}})
	}
	return all
}

const (
	perSecond = 500. / 60
	burst     = 20
)

type bucket struct {
	mu     sync.Mutex
	tokens float64 // guarded by mu, like the next
	at     time.Duration
}

// take returns 0, or when the next token is there.
func (b *bucket) take(at time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(burst, b.tokens+(at-b.at).Seconds()*perSecond)
	b.at = at
	if b.tokens < 1 {
		return 1 + time.Duration((1-b.tokens)/perSecond*float64(time.Second))
	}
	b.tokens--
	return 0
}
