package redisstore

import (
	"strings"
	"time"
)

const (
	// ClockLine is the line with which the scripts of a Store read the time.
	ClockLine = "local clock = call('TIME')\n"

	// GraceLine sets how much longer than necessary keys are kept.
	GraceLine = "local GRACE = 1000    "
)

// SetClock makes the scripts of s take the time from their last arguments, and keep keys for longer than a
// slow test takes.
func SetClock(s *Store) {
	const testClock = "local clock = {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}\n"
	source := strings.Replace(storeScript.source, ClockLine, testClock, 1)
	s.script = newScript(strings.Replace(source, GraceLine, "local GRACE = 3600000 ", 1))
}

// RememberBy makes the denials of s use another clock.
func RememberBy(s *Store, now func() time.Time) {
	start := now().Add(-60 * 365 * 24 * time.Hour) // so that now may step back
	s.clock = func() time.Duration { return now().Sub(start) }
}

// ScriptSource is the source of the script of a Store.
var ScriptSource = storeScript.source

// Near makes s treat key's server as near, even on a busy machine.
func Near(s *Store, key string) {
	b := &s.redis().serverOf(s.prefix() + key).batches
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rtt = 1
}

// Queued returns how many calls wait for key's server.
func Queued(s *Store, key string) int {
	b := &s.redis().serverOf(s.prefix() + key).batches
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}
