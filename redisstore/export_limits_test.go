package redisstore

// KnownKeys reports of how many keys l knows the limits.
func KnownKeys(l *Limits) int {
	l.known.mu.Lock()
	defer l.known.mu.Unlock()
	return len(l.known.keys)
}
