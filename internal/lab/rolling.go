// A rolling update restarts ten replicas one after the other, every two seconds. Each refuses
// connections for a second, and requests are sent to a random replica meanwhile.

package lab

import (
	"net/http"
	"time"
)

func rolling() []Scenario {
	update := func(c Conditions, at time.Duration, _ *http.Request) Reply {
		if at%(2*time.Second) < time.Second && c.Random.Share() < 0.1 {
			return refused
		}
		return good(c.Random)
	}
	return []Scenario{{Name: "rolling update", Healthy: warmUp, Lasts: 20 * time.Second, After: justNow,
		Loads: sizes, Server: troubled(update)}}
}
