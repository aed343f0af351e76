package redisstore

import (
	"math/rand/v2"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Hoard has pools of limit taken from, held back, used late, given back and lost, as
// chance will have it, and returns when units were used.
func Hoard(limit *quota.Limit, pools int, end time.Duration, r *rand.Rand) (used []time.Duration) {
	var bucket quota.Bucket
	held := make([]pool, pools)
	for now := time.Duration(0); now < end; now += time.Millisecond {
		p, at := &held[r.IntN(pools)], now.Microseconds()
		p.limit = limit
		bucket = limit.Drain(bucket, at)
		switch r.IntN(100) {
		default: // more is taken ahead
			n := 1 + r.Int64N(limit.AtOnce())
			if after, _, fits := limit.TryWithin(bucket, n, at, horizon); fits {
				p.add(batch{met: bucket, at: at, sent: now, got: now, n: n})
				bucket = after
			}
		case 0: // all processes use what they may
			for i := range held {
				for n := held[i].left; n > 0; n-- {
					if wait, _, ok := held[i].find(1, now); ok && wait == 0 {
						held[i].spend(1)
						used = append(used, now)
					}
				}
			}
		case 1: // a process crashes
			*p = pool{}
		case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15: // some goes back
			if p.lapse(now); p.left > 0 {
				n := 1 + r.Int64N(p.left)
				bucket = limit.Settle(bucket, -undrained(limit, p.drop(n), now), 0, at)
			}
		}
	}
	return used
}
