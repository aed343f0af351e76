package redisstore

import "time"

// monotonic is the time of this process, and positive.
func monotonic() time.Duration { return time.Since(epoch) }

// epoch is long before any reading, inside a synctest bubble too.
var epoch = time.Now().Add(-60 * 365 * 24 * time.Hour)
