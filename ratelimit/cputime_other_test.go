//go:build !unix

package ratelimit_test

import "time"

var start = time.Now()

// cpuTime returns how long this process has run.
func cpuTime() time.Duration { return time.Since(start) }
