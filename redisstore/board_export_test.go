package redisstore

import "time"

// BoardSource is the script of a Board.
var BoardSource = boardSource

// Known reports how many cool-downs b keeps.
func Known(b *Board) int { return int(b.open().known.count.Load()) }

// BoardKeys returns the names of b's keys in Redis.
func BoardKeys(b *Board) []string { return b.keys() }

// SetProbeEvery replaces the minute between probes.
func SetProbeEvery(b *Board, every time.Duration) {
	s := b.open()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.probeApart = every
}
