package redisstore

import "time"

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

// Renew tells Redis of all that s holds now, rather than when it is due.
func Renew(s *Store) {
	s.holds.mu.Lock()
	for _, of := range s.holds.keys {
		for h := range of.all {
			h.next = time.Now()
		}
	}
	s.holds.mu.Unlock()
	s.tick()
}

// RenewedSince reports how many of the holds of s were renewed or taken since then.
func RenewedSince(s *Store, since time.Time) (n int) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	for _, of := range s.holds.keys {
		for h := range of.all {
			if !h.until.Before(since.Add(s.holdTTL())) {
				n++
			}
		}
	}
	return n
}

// Outlive makes the time that a hold lives be over for those of s that were not renewed
// since then.
func Outlive(s *Store, since time.Time) {
	s.holds.mu.Lock()
	for _, of := range s.holds.keys {
		for h := range of.all {
			if h.until.Before(since.Add(s.holdTTL())) {
				h.until = time.Now()
			}
		}
	}
	s.holds.mu.Unlock()
	s.tick()
}
