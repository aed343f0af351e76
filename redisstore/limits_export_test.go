package redisstore

// KnownKeys returns how many keys l keeps in memory.
func KnownKeys(l *Limits) int { return l.known.Len() }
