// Package lab simulates clients that call a server: in bubbles of testing/synctest, where minutes
// pass as fast as the machine computes, and with random numbers that have a seed.
package lab

import (
	"context"
	"flag"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// Main runs program and exits with the status that it returns. A bubble needs a *testing.T,
// so the program is made the only test of a test binary. It never returns to package
// testing, which would report it.
func Main(program func(t *testing.T) int) {
	runtime.GOMAXPROCS(1) // a bubble hardly computes in parallel, and hands over faster on one processor
	testing.Init()
	flag.CommandLine.Parse(nil) // or package testing would parse the program's arguments
	all := func(_, _ string) (bool, error) { return true, nil }
	test := testing.InternalTest{Name: "program", F: func(t *testing.T) { os.Exit(program(t)) }}
	testing.Main(all, []testing.InternalTest{test}, nil, nil)
}

// Run runs f in a bubble, and returns when f and all goroutines that it started have ended.
// What f measures of a Transport is the same each time.
func Run(t *testing.T, f func()) {
	synctest.Test(t, func(t *testing.T) {
		align(t.Context())
		f()
	})
}

// align sleeps until a heed.LocalBudget begins a new tenth of its TTL, a second. The budget
// counts tenths from the start of the process, so a bubble begins somewhere within one. A
// deposit lasts for ten tenths: if it is gone 9 s and a step later, a tenth began within
// that step. Then align goes back to before the step.
func align(ctx context.Context) {
	b := &heed.LocalBudget{Ratio: 1, MinPerSecond: -1}
	for step := time.Duration(1 << 29); step > 0; step /= 2 {
		b.Deposit(ctx, step.String())
		time.Sleep(9*time.Second + step)
		if b.Balance(step.String()) == 0 {
			time.Sleep(time.Second - step)
		}
	}
	time.Sleep(time.Nanosecond) // the last step
}
