package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Line is a line of calls that are names. Send may leave a word about each.
type Line struct{ line line[[2]string] }

func NewLine(timeout time.Duration, send func(ctx context.Context, names, words []string) error, silent func(error) error) *Line {
	return &Line{line[[2]string]{timeout: timeout, halves: true, silent: func(_ []*call[[2]string], err error) error { return silent(err) }, send: func(ctx context.Context, batch []*call[[2]string]) error {
		names, words := make([]string, len(batch)), make([]string, len(batch))
		for i, c := range batch {
			names[i] = c.work[0]
		}
		err := send(ctx, names, words)
		for i, c := range batch {
			c.work[1] = words[i]
		}
		return err
	}}}
}

// A Call is how a name is sent. The zero Call is light, and neither straight nor stubborn.
type Call struct {
	Weight             int
	Straight, Stubborn bool
}

func (l *Line) Do(ctx context.Context, name string, how Call) (word string, err error) {
	c := newCall[[2]string]()
	c.work[0], c.weight, c.stubborn = name, how.Weight, how.Stubborn
	if err := l.line.do(ctx, c, monotonic(), how.Straight); err != nil {
		return "", err
	}
	return c.work[1], nil
}

// Arriving has l believe that a train may leave again in a moment, and that so many came lately.
func (l *Line) Arriving(crowd int) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	l.line.arriving, l.line.crowd = 1, crowd
}

// Fault says what of l's books is wrong, or that somebody waits for nothing.
func (l *Line) Fault() string {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	riding := 0
	for _, t := range l.line.away {
		riding += len(t.calls)
	}
	idle := len(l.line.away)+l.line.arriving == 0
	switch {
	case riding != l.line.riding:
		return fmt.Sprintf("%d ride, not %d", riding, l.line.riding)
	case l.line.arriving < 0 || l.line.crowd < 0:
		return fmt.Sprintf("%d arrive, of a crowd of %d", l.line.arriving, l.line.crowd)
	case idle && slices.ContainsFunc(l.line.queue, func(c *call[[2]string]) bool { return c.outcome == waiting }):
		return "somebody waits, and nobody is to come"
	}
	return ""
}

// Idle reports whether nothing of l is left to be done.
func (l *Line) Idle() bool {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	return len(l.line.queue)+len(l.line.away)+l.line.arriving == 0 && !l.line.armed
}

// FullTrain is how much one train carries, WorthWaiting for how long a trip there is
// room for one more, and GoodCompany how many need no room.
const (
	FullTrain    = fullTrain
	WorthWaiting = worthWaiting
	MostTrains   = mostTrains
	GoodCompany  = goodCompany
)

// Near has s believe that the way to key's server is short, however busy the machine.
func Near(s *Store, key string) {
	line := &s.serverFor(key).line
	line.mu.Lock()
	defer line.mu.Unlock()
	line.trip = 1
}

// Queued is how many calls to key's server wait, or have left and are not forgotten.
func Queued(s *Store, key string) int {
	line := &s.serverFor(key).line
	line.mu.Lock()
	defer line.mu.Unlock()
	return len(line.queue)
}
