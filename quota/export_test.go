package quota

import "time"

// SetClock has m read the time from now.
func SetClock(m *Memory, now func() time.Time) { m.now = now }

// Kept reports how many buckets m keeps.
func Kept(m *Memory) int64 { return m.ledger().kept.Load() }

// MaxKeys reports how many buckets m keeps at most.
func MaxKeys(m *Memory) int { return m.maxKeys() }

// Since is when m began, which it measures from.
func Since(m *Memory) time.Time { return m.ledger().start }
