package redisstore

// GateSource is the script of Acquire.
var GateSource = gateSource

// Held reports of how many holds s has to tell Redis.
func Held(s *Store) (n int) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	for _, of := range s.holds.keys {
		n += len(of.all)
	}
	return n
}

// GateClockLine is what it reads the time with.
const GateClockLine = "local clock = redis.call('TIME')\n"
