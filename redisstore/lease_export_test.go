package redisstore

// Held returns for how many different calls l keeps anything in memory.
func Held(l *Lease) (n int) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.held)
		s.mu.Unlock()
	}
	return n
}
