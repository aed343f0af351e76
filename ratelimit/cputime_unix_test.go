//go:build unix

package ratelimit_test

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time that this process has used: other processes do not
// lengthen it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
