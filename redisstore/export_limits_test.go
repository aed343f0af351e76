package redisstore

// KnownKeys reports of how many keys l knows the limits.
func KnownKeys(l *Limits) int { return l.known.Len() }
