package redisstore

import (
	"strings"
	"time"
)

const (
	// ClockLine is what the scripts of a Store read the time with.
	ClockLine = "local clock = call('TIME')\n"

	// GraceLine says how much longer than it need what they write lives.
	GraceLine = "local grace = 1000 "
)

// SetClock has the scripts of s read the time from their last arguments, and keep what
// they write for as long as a slow test may take.
func SetClock(s *Store) {
	source := strings.Replace(storeScript.source, ClockLine, "local clock = {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}\n", 1)
	s.script = newScript(strings.Replace(source, GraceLine, "local grace = 3600000 ", 1))
}

// RememberBy has what s remembers go by another clock, as Redis does.
func RememberBy(s *Store, now func() time.Time) {
	begin := now().Add(-60 * 365 * 24 * time.Hour) // for a clock that is set back
	s.clock = func() time.Duration { return now().Sub(begin) }
}

// ScriptSource is the script of a Store.
var ScriptSource = storeScript.source

// ConvertSource is what of it converts.
var ConvertSource = numberSource

// Near has s believe that key's server is near, however busy the machine.
func Near(s *Store, key string) {
	b := &s.redis().serverOf(s.prefix() + key).batches
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rtt = 1
}

// Queued is how many calls to key's server wait.
func Queued(s *Store, key string) int {
	b := &s.redis().serverOf(s.prefix() + key).batches
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}
