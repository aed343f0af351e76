// A process restarts on its machine, or a container is replaced. For a moment nothing listens on the
// port, and each connection is refused at once. Afterwards the server is as fast as before.

package lab

import (
	"slices"
	"time"
)

func refusals() (all []Scenario) {
	for _, lasts := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second,
		10 * time.Second, 30 * time.Second} {
		s := Scenario{Name: "refused " + lasts.String(), Healthy: warmUp, Lasts: lasts, After: justNow,
			Loads: sizes, Server: always(refused)}
		switch lasts {
		case time.Second:
			s.Loads = slices.Concat(sizes, []Load{cron}, within(2*time.Second, small, medium), within(time.Second, small, medium))
		case 3 * time.Second, 10 * time.Second:
			s.Loads = slices.Concat(sizes, within(10*time.Second, medium), within(2*time.Second, medium))
		case 5 * time.Second:
			s.Loads = []Load{cron}
		}
		all = append(all, s)
	}
	return all
}
