package serverside

import (
	"context"
	"time"
)

// turn waits until it is the turn of an admitted request, and reports whether it came:
// not if the client has gone before.
func turn(ctx context.Context, delay time.Duration) bool {
	if delay <= 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// delay is the longest of those of policies that are enforced.
func (t *trial) delay() (longest time.Duration) {
	for i := range t.decisions {
		if !t.charges[i].DryRun {
			longest = max(longest, t.decisions[i].Delay)
		}
	}
	return longest
}
