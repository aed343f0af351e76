package redisstore

import "time"

// Know makes b know of a cool-down that was posted to it, without telling Redis.
func Know(b *Board, key string, wait time.Duration) { b.open().known.post(key, wait, 0, monotonic()) }

// SetProbeEvery lets b's probes follow each other faster than once a minute.
func SetProbeEvery(b *Board, every time.Duration) {
	t := &b.open().known
	t.mu.Lock()
	defer t.mu.Unlock()
	t.probeEvery = every
}
