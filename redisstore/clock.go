package redisstore

import "time"

// monotonic returns a time that only this process can interpret. It is positive and never steps.
func monotonic() time.Duration { return time.Since(epoch) }

// epoch is so long ago that monotonic is positive, even inside a synctest bubble.
var epoch = time.Now().Add(-60 * 365 * 24 * time.Hour)
