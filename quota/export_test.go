package quota

import "time"

// SetClock has m read the time from now.
func SetClock(m *Memory, now func() time.Time) { m.now = now }

// Start is when m began, which it measures from.
func Start(m *Memory) time.Time { return m.start }

// Kept reports how many buckets and IDs m keeps.
func Kept(m *Memory) int64 { return m.kept.Load() }

// KeysInFlight reports of how many keys m keeps places in use.
func KeysInFlight(m *Memory) (n int) {
	for i := range m.shards {
		n += len(m.shards[i].held)
	}
	return n
}
