// A proxy on the way closes connections while requests are under way. One request in ten is reset.

package lab

import "time"

func resets() []Scenario {
	return []Scenario{{Name: "one in ten reset", Healthy: warmUp, Lasts: 20 * time.Second, After: justNow,
		Loads: sizes, Server: sometimes(0.1, reset)}}
}
