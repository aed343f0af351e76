package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// holds are those of which a Store has to tell Redis: what is held, and what is
// not known to be gone. While there are any there is a timer, and a goroutine for
// as long as its tick takes.
type holds struct {
	dropped atomic.Int64

	mu      sync.Mutex // guards what follows, and a held where that says so
	keys    map[string]*holdsOf
	timer   *time.Timer
	at      time.Time // when the timer fires; zero if it does not
	ticking bool
}

// holdsOf are those of one key.
type holdsOf struct {
	all     map[*held]struct{}
	suspect bool // a call was not answered, so Redis may have forgotten them
}

// A held is a Hold, as its Store sees it. Nothing here may refer to the Hold, or
// that would never become garbage.
type held struct {
	key    string // of the sorted set
	member string
	limit  int64
	lost   chan struct{} // closed when it is

	// Guarded by mu of holds.
	act    act       // what Redis is told next: to keep it; to take it, if it was gone; to drop it
	next   time.Time // when
	until  time.Time // for how long Redis keeps it, if it is told nothing
	isLost bool
	unsure bool // a take of it may be executed yet
}

func (h *held) loseLocked() {
	if !h.isLost {
		h.isLost = true
		close(h.lost)
	}
}

// renewEvery is how often Redis is told of a hold.
func (s *Store) renewEvery() time.Duration { return s.holdTTL() / 3 }

// retryEvery is how often it is told what it did not answer.
func (s *Store) retryEvery() time.Duration { return min(s.holdTTL()/30, 250*time.Millisecond) }

// keep has h, which a call at sent took, renewed.
func (s *Store) keep(h *held, sent time.Time) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	s.renewedLocked(h, sent)
	s.addLocked(h)
}

// missed takes note that a call at sent, which was to take h, failed. If it may be
// executed all the same, h is dropped in the background.
func (s *Store) missed(ctx context.Context, h *held, sent time.Time, executed bool, err error) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	h.act, h.unsure = actDrop, true
	h.next, h.until = sent.Add(s.retryEvery()), sent.Add(s.holdTTL())
	if executed {
		s.addLocked(h)
	}
	s.failedLocked(ctx, h, err)
}

// release has h dropped, in the background if that fails or ctx is over.
func (s *Store) release(ctx context.Context, h *held) {
	s.holds.mu.Lock()
	h.act, h.next = actDrop, time.Now().Add(s.retryEvery())
	s.holds.mu.Unlock()
	s.tell(ctx, []notice{{actDrop, h}})
}

// abandon has h dropped in the background, since nobody has it any longer.
func (s *Store) abandon(h *held) {
	s.holds.dropped.Add(1)
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	h.act, h.next = actDrop, time.Now()
	s.wakeLocked(h.next)
}

// tell sends notices, all of one key, and takes note of what became of them.
func (s *Store) tell(ctx context.Context, notices []notice) {
	sent := time.Now()
	answer, _, err := s.askGate(ctx, notices)
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	for i, n := range notices {
		if err != nil {
			s.failedLocked(ctx, n.hold, err)
		} else {
			s.answeredLocked(n, answer.there[i], sent)
		}
	}
}

// failedLocked has Redis told of h again: at once if ctx was the reason. If Redis
// was silent, it is told again of all holds of the key.
func (s *Store) failedLocked(ctx context.Context, h *held, err error) {
	of := s.holds.keys[h.key]
	if of == nil {
		return
	}
	h.next = time.Now()
	if ctx.Err() == nil {
		h.next = h.next.Add(s.retryEvery())
		of.suspect = of.suspect || !unexecuted(err)
	}
	s.wakeLocked(h.next)
}

// answeredLocked takes note that n, which was sent, found its hold there or not.
func (s *Store) answeredLocked(n notice, there bool, sent time.Time) {
	h := n.hold
	if n.act == actTake {
		h.unsure = false
	}
	switch {
	case n.act == actDrop:
		if there || !h.unsure {
			s.removeLocked(h)
		}
	case h.act == actDrop:
		// It was released since n was sent, and that is told by itself.
	case there:
		s.renewedLocked(h, sent)
	case n.act == actKeep:
		h.act, h.next = actTake, sent
	default:
		h.loseLocked()
		h.next = sent.Add(s.renewEvery())
	}
}

func (s *Store) renewedLocked(h *held, sent time.Time) {
	h.act, h.next, h.until = actKeep, sent.Add(s.renewEvery()), sent.Add(s.holdTTL())
}

func (s *Store) addLocked(h *held) {
	hs := &s.holds
	if hs.keys == nil {
		hs.keys = make(map[string]*holdsOf)
	}
	if hs.keys[h.key] == nil {
		hs.keys[h.key] = &holdsOf{all: make(map[*held]struct{})}
	}
	hs.keys[h.key].all[h] = struct{}{}
	s.wakeLocked(h.next)
}

func (s *Store) removeLocked(h *held) {
	hs := &s.holds
	of := hs.keys[h.key]
	if of == nil {
		return
	}
	delete(of.all, h)
	if len(of.all) == 0 {
		delete(hs.keys, h.key)
	}
	if len(hs.keys) == 0 {
		hs.keys = nil // a map keeps the room that it once had
	}
}
