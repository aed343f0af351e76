package lab

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

// A Scenario is a trouble of a server, and the loads that meet it.
type Scenario struct {
	Name    string
	Healthy time.Duration // before the trouble
	Lasts   time.Duration // what begins in this time is measured
	After   time.Duration // how long calls go on
	Loads   []Load
	Server  func(Conditions) http.RoundTripper

	// Judged, if not nil, reports whether calls of a path are measured.
	Judged func(path string) bool

	// Measure, if not nil, adds what only this scenario has.
	Measure func(log Log, p Plan, r *Result)
}

// Conditions are what a scenario's server may depend on.
type Conditions struct {
	Random *Random
	Load   Load
	Plan
}

// Scenarios returns all scenarios, in the order of the table.
func Scenarios() []Scenario {
	return slices.Concat(refusals(), unavailables(), lookups(), starts(), replicas(), resets(), rolling(), flapping(),
		routes(), credentials(), shares(), longs(), spikes(), one429s(), buckets(), windows())
}

// Run measures one client under one load. The seed decides when calls begin and what the server does.
func (s Scenario) Run(t *testing.T, c Client, l Load, seed uint64) Result {
	healthy := max(s.Healthy, l.Healthy)
	p := Plan{Seed: seed, From: healthy, To: healthy + s.Lasts, End: healthy + s.Lasts + s.After}
	client := func(base http.RoundTripper, _ *Random) http.RoundTripper { return c.Over(base) }
	log := l.Run(t, p, client, func(network *Random) http.RoundTripper {
		return s.Server(Conditions{Random: network, Load: l, Plan: p})
	})
	return s.measure(log, l, p)
}

// troubled returns a server that is good but in the trouble.
func troubled(trouble func(c Conditions, at time.Duration, req *http.Request) Reply) func(Conditions) http.RoundTripper {
	return func(c Conditions) http.RoundTripper {
		return Server(func(at time.Duration, req *http.Request) Reply {
			if at < 0 || at >= c.To-c.From {
				return good(c.Random)
			}
			return trouble(c, at, req)
		}).from(c.From)
	}
}

// always is a trouble in which all requests get the same.
func always(r Reply) func(Conditions) http.RoundTripper {
	return troubled(func(Conditions, time.Duration, *http.Request) Reply { return r })
}

// sometimes is a trouble in which a share of the requests gets r.
func sometimes(share float64, r Reply) func(Conditions) http.RoundTripper {
	return troubled(func(c Conditions, _ time.Duration, _ *http.Request) Reply {
		if c.Random.Share() < share {
			return r
		}
		return good(c.Random)
	})
}

// The loads of most scenarios.
var (
	small  = Load{Name: "S", Clients: 100, Rate: 1}
	medium = Load{Name: "M", Clients: 10, Rate: 20}
	large  = Load{Name: "L", Clients: 1, Rate: 500}
	sizes  = []Load{small, medium, large}
)

// cron is a job that makes one call a minute. Each of its clients makes one in the trouble.
var cron = Load{Name: "cron", Clients: 200, Healthy: 2 * time.Minute,
	Starts: func(random *Random, from, to time.Duration) []time.Duration {
		at := from + time.Duration(random.Share()*float64(to-from))
		return []time.Duration{at - 2*time.Minute, at - time.Minute, at}
	}}

// within returns the loads with a deadline for each call.
func within(deadline time.Duration, loads ...Load) (all []Load) {
	for _, l := range loads {
		l.Name += " " + deadline.String()
		l.Deadline = deadline
		all = append(all, l)
	}
	return all
}

const (
	warmUp  = 12 * time.Second // a retry budget of ten seconds is full by then
	justNow = 4 * time.Second  // after the trouble, if only the calls that wait are of interest
)
