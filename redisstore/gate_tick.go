package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// noticesPerCall bounds for how long one script keeps Redis from others.
	noticesPerCall = 256

	// callsAtOnce is how many calls a tick makes at the same time.
	callsAtOnce = 16
)

// wakeLocked has the timer fire at the given time, if it does not do so before.
func (s *Store) wakeLocked(at time.Time) {
	hs := &s.holds
	if hs.ticking || !hs.at.IsZero() && !at.Before(hs.at) {
		return // rest sees to it, or the timer does
	}
	hs.at = at
	if hs.timer == nil {
		hs.timer = time.AfterFunc(time.Until(at), s.tick)
		return
	}
	hs.timer.Reset(time.Until(at))
}

// tick tells Redis what is due. It runs when the timer fires.
func (s *Store) tick() {
	calls, ok := s.due(time.Now())
	if !ok {
		return
	}
	var all sync.WaitGroup
	free := make(chan struct{}, callsAtOnce)
	for _, notices := range calls {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			s.tell(context.Background(), notices)
		})
	}
	all.Wait()
	s.rest(time.Now())
}

// due begins a tick, unless there is one already. It returns what is to be told,
// in calls of one key each. What would be due soon is due now, so that ticks are
// few.
func (s *Store) due(now time.Time) (calls [][]notice, ok bool) {
	hs := &s.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.ticking {
		return nil, false
	}
	hs.ticking, hs.at = true, time.Time{}
	soon := now.Add(s.renewEvery() / 2)
	for _, of := range hs.keys {
		var notices []notice
		for h := range of.all {
			if s.outlivedLocked(h, now) || !of.suspect && h.next.After(soon) {
				continue
			}
			h.next = now.Add(s.retryEvery())
			h.unsure = h.unsure || h.act == actTake
			notices = append(notices, notice{h.act, h})
		}
		of.suspect = false
		calls = slices.AppendSeq(calls, slices.Chunk(notices, noticesPerCall))
	}
	return calls, true
}

// outlivedLocked reports whether h need not be dropped any longer, because Redis
// has done so by itself. If it was to be kept, it is lost by then.
func (s *Store) outlivedLocked(h *held, now time.Time) bool {
	if now.Before(h.until) {
		return false
	}
	if h.act == actDrop {
		s.removeLocked(h)
		return true
	}
	h.loseLocked()
	return false
}

// rest ends a tick, and sets the timer for the next one, if any.
func (s *Store) rest(now time.Time) {
	hs := &s.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.ticking = false
	for _, of := range hs.keys {
		if of.suspect {
			s.wakeLocked(now.Add(s.retryEvery()))
		}
		for h := range of.all {
			s.wakeLocked(h.next)
			if h.act != actDrop && !h.isLost {
				s.wakeLocked(h.until)
			}
		}
	}
}
