package redisstore

import "strings"

const (
	// ClockLine is what the scripts of a Store read the time with.
	ClockLine = "local clock = call('TIME')\n"

	// GraceLine says how much longer than it need what they write lives.
	GraceLine = "local grace = 1000 "
)

// SetClock has the scripts of s read the time from their last arguments, and keep what
// they write for as long as a slow test may take.
func SetClock(s *Store) {
	s.scripts = newStoreScripts(
		strings.Replace(numberSource, ClockLine, "local clock = {ARGV[2], ARGV[3]}\n", 1),
		strings.Replace(expirySource, GraceLine, "local grace = 3600000 ", 1))
}

// ScriptSource is the script of a Store that knows every Algorithm.
var ScriptSource = embedded.all.source

// ConvertSource is what of it converts.
var ConvertSource = numberSource + cellSource
