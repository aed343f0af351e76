// All servers behind a load balancer are replaced or lose their health check, and the balancer
// answers 503 for them. When they are back, they are cold: their capacity climbs from 1.2 times the
// ordinary load to three times within five seconds.

package lab

import (
	"net/http"
	"slices"
	"time"
)

func unavailables() (all []Scenario) {
	for _, lasts := range []time.Duration{time.Second, 1400 * time.Millisecond, 5 * time.Second, 30 * time.Second} {
		s := Scenario{Name: "503 " + lasts.String(), Healthy: warmUp, Lasts: lasts, After: justNow,
			Loads: sizes, Server: cold}
		switch lasts {
		case time.Second:
			s.Loads = slices.Concat(sizes, []Load{cron}, within(2*time.Second, medium))
		case 5 * time.Second:
			s.Loads = slices.Concat(sizes, []Load{cron}, within(10*time.Second, medium), within(2*time.Second, medium))
		}
		all = append(all, s)
	}
	return all
}

func cold(c Conditions) http.RoundTripper {
	lasts, rate := c.To-c.From, c.Load.PerSecond()
	if rate == 0 {
		rate = float64(c.Load.Clients) / lasts.Seconds()
	}
	warming := &queue{capacity: func(at time.Duration) float64 {
		return rate * (1.2 + 1.8*min(1, (at-lasts).Seconds()/5))
	}}
	return Server(func(at time.Duration, _ *http.Request) Reply {
		switch {
		case at < 0:
			return good(c.Random)
		case at < lasts:
			return unavailable
		default:
			return warming.take(at, good(c.Random))
		}
	}).from(c.From)
}
