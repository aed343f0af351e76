// A process crashes soon after each start, and its supervisor starts it again. For five minutes it
// refuses connections for three seconds and then works for four.

package lab

import (
	"net/http"
	"time"
)

func flapping() []Scenario {
	crash := func(c Conditions, at time.Duration, _ *http.Request) Reply {
		if at%(7*time.Second) < 3*time.Second {
			return refused
		}
		return good(c.Random)
	}
	return []Scenario{{Name: "flapping", Healthy: warmUp, Lasts: 5 * time.Minute, After: justNow,
		Loads: []Load{medium}, Server: troubled(crash)}}
}
