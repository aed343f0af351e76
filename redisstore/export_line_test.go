package redisstore

import (
	"context"
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
