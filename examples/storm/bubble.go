package main

import (
	"context"
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed"
)

// withBubbles runs program, and exits with what it returns. A bubble of testing/synctest,
// in which time passes as fast as the machine computes, can only be entered with a
// *testing.T, and only a test has one. So the program is a test, the only one there is. It
// never returns to the testing package, which would report it.
func withBubbles(program func(t *testing.T) int) {
	testing.Init()
	flag.CommandLine.Parse(nil) // or testing would take the program's arguments for its own
	all := func(_, _ string) (bool, error) { return true, nil }
	storm := testing.InternalTest{Name: "storm", F: func(t *testing.T) { os.Exit(program(t)) }}
	testing.Main(all, []testing.InternalTest{storm}, nil, nil)
}

// inBubble runs f in a bubble, in which everything is the same each time.
func inBubble(t *testing.T, f func()) {
	synctest.Test(t, func(t *testing.T) {
		align(t.Context())
		f()
	})
}

// align sleeps until a heed.LocalBudget begins a new tenth of its TTL, a second. Tenths are
// counted from when the process began, so a bubble begins anywhere in one. What is
// deposited is there for ten tenths: whether it is still there 9 s and a step later says
// whether another has begun in that step. If so, the step is not taken.
func align(ctx context.Context) {
	b := &heed.LocalBudget{Ratio: 1, MinPerSecond: -1}
	for step := time.Duration(1 << 29); step > 0; step /= 2 {
		b.Deposit(ctx, step.String())
		time.Sleep(9*time.Second + step)
		if b.Balance(step.String()) == 0 {
			time.Sleep(time.Second - step)
		}
	}
	time.Sleep(time.Nanosecond) // the last one
}
