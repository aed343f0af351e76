package redisstore

import "strings"

// ClockLine is what the scripts of a Store read the time with.
const ClockLine = "local clock = redis.call('TIME')\n"

// SetClock has the scripts of s read the time from the hash "clock" in Redis, and
// keep what they write for as long as a slow test may take.
func SetClock(s *Store) {
	source := strings.Replace(bucketSource, ClockLine, "local clock = redis.call('HMGET', 'clock', 's', 'us')\n", 1)
	s.scripts = newStoreScripts(strings.Replace(source, "+ 1000\n", "+ 3600000\n", 1))
}

// BucketSource is what the scripts of a Store begin with.
var BucketSource = bucketSource
