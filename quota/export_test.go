package quota

import "time"

// SetClock makes m read the time from now.
func SetClock(m *Memory, now func() time.Time) { m.now = now }

// Start returns when m started to measure.
func Start(m *Memory) time.Time { return m.start }

// Kept returns how many buckets and IDs m stores.
func Kept(m *Memory) int64 { return m.kept.Load() }

// KeysInFlight returns the number of keys that have places in use.
func KeysInFlight(m *Memory) (n int) {
	for i := range m.shards {
		n += len(m.shards[i].held)
	}
	return n
}
