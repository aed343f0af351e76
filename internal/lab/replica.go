// One of three replicas is broken, and what chooses among them does not know. Each request meets it
// with a chance of one in three.

package lab

import (
	"slices"
	"time"
)

func replicas() (all []Scenario) {
	for _, kind := range []struct {
		name  string
		reply Reply
	}{{"refuses", refused}, {"says 503", unavailable}, {"hangs", hang}} {
		deadline := max(2*time.Second, 5*kind.reply.Took)
		all = append(all, Scenario{Name: "one of three " + kind.name, Healthy: warmUp, Lasts: 20 * time.Second, After: justNow,
			Loads: slices.Concat(sizes, within(deadline, medium)), Server: sometimes(1./3, kind.reply)})
	}
	return all
}
