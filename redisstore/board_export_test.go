package redisstore

import "time"

// BoardSource is the script of a Board.
var BoardSource = boardSource

// Known reports how many cool-downs b keeps.
func Known(b *Board) int { return int(b.open().known.count.Load()) }

// BoardKeys are those that b has in Redis.
func BoardKeys(b *Board) []string { return b.keys() }

// SetProbeEvery lets b's probes follow each other faster than once a minute.
func SetProbeEvery(b *Board, every time.Duration) {
	s := b.open()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.probeApart = every
}
