package quotatest

import (
	"sync"
	"time"
)

// A clock can be moved by tests.
type clock interface {
	now() time.Time
	move(d time.Duration)
}

// A manual clock stands still until it is moved.
type manual struct {
	mu sync.Mutex // guards t
	t  time.Time
}

func newClock() *manual { return &manual{t: time.Date(2026, 2, 3, 4, 5, 6, 780_000, time.UTC)} }

func (s *manual) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.t
}

func (s *manual) move(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t = s.t.Add(d)
}

// A bubble is the clock of a bubble of testing/synctest.
type bubble struct{}

func (bubble) now() time.Time       { return time.Now() }
func (bubble) move(d time.Duration) { time.Sleep(d) }
