package redisstore

import (
	"time"

	"github.com/heedhttp/heed/quota"
)

// holders tells how many processes hold units of a Key: each charges one unit a second
// to a window in the Key's hash, for which its number is the count.
type holders struct {
	n     int64         // as last told, this process included; 0 before
	last  time.Duration // when this process was counted
	asked time.Duration // when Redis was last asked
}

// everyone is the Limit that holders are counted by, as a dry run. It denies nobody.
var everyone = func() *quota.Limit {
	p := quota.Policy{Name: "lease holders", Quota: 1_000_000, Window: time.Second, Algorithm: quota.SlidingWindow}
	l, err := p.Compile()
	if err != nil {
		panic(err)
	}
	return l
}()

// due reports whether it is time to count: ten times a second, so that who joins is
// soon known.
func (h *holders) due(now time.Duration) bool { return h.n == 0 || now-h.asked >= time.Second/10 }

// count returns the errand that counts them, and once a second this process among
// them.
func (h *holders) count(key string, now time.Duration) *errand {
	counted := h.n > 0 && now-h.last < time.Second
	if h.asked = now; !counted {
		h.last = now
	}
	return &errand{verb: toTake, peek: counted, charges: []quota.Charge{{Key: key, Limit: everyone, N: 1, DryRun: true}}}
}

// told takes note of how many were counted in this second, or in the last one.
func (h *holders) told(e *errand) {
	v := &e.visits[0]
	h.n = max(1, v.found.Level, v.found.Prev)
	if !e.peek {
		h.n = max(h.n, v.after.Level)
	}
}
