package redisstore

import "time"

// Know makes b know of a cool-down that was posted to it, without telling Redis.
func Know(b *Board, key string, wait time.Duration) { b.open().known.post(key, wait, 0, monotonic()) }
