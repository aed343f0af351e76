package redisstore

import (
	"context"
	"runtime"
	"time"
)

// deepStack is about what sending many takes of a stack.
const deepStack = 6 << 10

// A train is a batch on the wire.
type train[W any] struct {
	calls, arrived []*call[W]
	departed       time.Duration
	lost           bool
}

// set is serve in a goroutine of its own. Its stack is made large enough while there is
// hardly anything on it to be moved, if it is likely to leave again and again.
func (l *line[W]) set(t *train[W]) {
	if len(t.calls) > 1 {
		enlargeStack()
	}
	l.serve(t)
}

// enlargeStack is not inlined: the room would be part of who calls it, for good.
//
//go:noinline
func enlargeStack() {
	var room [deepStack]byte
	runtime.KeepAlive(&room)
}

// serve has t travel, and then whoever waits, until it is not needed.
func (l *line[W]) serve(t *train[W]) {
	for l.travel(t) {
		runtime.Gosched() // those it brought may have another call to make
		if !l.depart(t) {
			return
		}
	}
}

// travel has the calls of t sent. It reports whether t has arrived in time: then t is
// to depart.
func (l *line[W]) travel(t *train[W]) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.calls[0].ctx), l.timeout)
	err := l.send(ctx, t.calls)
	cancel()
	if !l.arrive(t, err) {
		return false
	}
	for _, c := range t.arrived {
		if c.outcome == served { // or its caller may have gone
			c.done <- struct{}{}
		}
	}
	clear(t.arrived)
	return true
}
