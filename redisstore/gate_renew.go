package redisstore

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// commandsPerCall bounds for how long one script keeps Redis from others.
	commandsPerCall = 256

	// callsAtOnce is how many calls the timer makes at the same time.
	callsAtOnce = 16
)

// A gateEntry is a member of a key's sorted set, and what its Store has to tell Redis about
// it. It must not refer to its Hold, which would never become garbage.
type gateEntry struct {
	key    string // of the sorted set
	member string
	limit  int64
	lost   chan struct{} // closed when its Hold is lost

	// Guarded by mu of gateEntries.
	verb   gateVerb  // what Redis is told next: keep; take, if it had forgotten; or drop
	next   time.Time // when
	until  time.Time // when Redis forgets it, if it is told nothing
	isLost bool
	maybe  bool // a take was not answered, and may be executed yet
}

func (s *Store) newGateEntry(key string, limit, n int64) *gateEntry {
	n = min(n, limit+1) // which never fits either, and is exact in Lua
	return &gateEntry{
		key:    s.prefix() + "\x01" + key,
		member: strconv.FormatInt(n, 10) + ":" + rand.Text()[:16],
		limit:  limit,
		lost:   make(chan struct{}),
	}
}

// gateEntries are those that a Store has to keep or to drop. While there are any, a timer
// is set for the next one that is due.
type gateEntries struct {
	dropped atomic.Int64 // Holds that became garbage

	mu      sync.Mutex // guards what follows, and of each entry what it says
	all     map[*gateEntry]struct{}
	timer   *time.Timer
	at      time.Time // when the timer fires; zero if it is not set
	sending bool      // the timer has fired: it is set again when Redis was told
}

// renewEvery is how often Redis is told of what is held.
func (s *Store) renewEvery() time.Duration { return s.holdTTL() / 3 }

// retryEvery is how often it is told what it did not answer.
func (s *Store) retryEvery() time.Duration { return min(s.holdTTL()/30, 250*time.Millisecond) }

// schedule has Redis told verb of e at the given time.
func (s *Store) schedule(e *gateEntry, verb gateVerb, at time.Time) {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = make(map[*gateEntry]struct{})
	}
	g.all[e] = struct{}{}
	e.verb, e.next = verb, at
	s.wakeLocked(at)
}

// release has e dropped, in the background if that fails or ctx is over.
func (s *Store) release(ctx context.Context, e *gateEntry) {
	if ctx.Err() != nil {
		s.schedule(e, gateDrop, time.Now())
		return
	}
	s.gate.mu.Lock()
	e.verb, e.next = gateDrop, time.Now().Add(s.retryEvery())
	s.gate.mu.Unlock()
	s.sendCommands(ctx, e.key, []gateCommand{{gateDrop, e}})
}

// sendCommands has commands executed, all about entries of key, and decides what Redis is told next.
// If that fails, it is told again when the next of the entries says.
func (s *Store) sendCommands(ctx context.Context, key string, commands []gateCommand) {
	sent := time.Now()
	reply, err := s.runGate(ctx, key, commands)
	if err != nil {
		return
	}
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	for i, c := range commands {
		e, found := c.entry, reply.found[i]
		if c.verb == gateTake {
			e.maybe = false
		}
		switch {
		case c.verb == gateDrop:
			if found || !e.maybe {
				delete(s.gate.all, e)
			} else {
				s.wakeLocked(e.next)
			}
		case e.verb == gateDrop:
			// It was released meanwhile, which Redis is told by a command of its own.
		case found:
			e.verb, e.next, e.until = gateKeep, sent.Add(s.renewEvery()), sent.Add(s.holdTTL())
		case c.verb == gateKeep:
			e.verb, e.next = gateTake, sent
		default: // its places are not free
			e.loseLocked()
			e.next = sent.Add(s.renewEvery())
		}
	}
}

// retry sets the timer after a call about key that failed. If Redis did not answer, it may
// have lost its data by the time it does, and is told of all entries of key.
func (s *Store) retry(key string, unanswered bool) {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	at := time.Now().Add(s.retryEvery())
	if unanswered {
		for e := range s.gate.all {
			if e.key == key && at.Before(e.next) {
				e.next = at
			}
		}
	}
	s.wakeLocked(at)
}

func (e *gateEntry) loseLocked() {
	if !e.isLost {
		e.isLost = true
		close(e.lost)
	}
}

// wakeLocked sets the timer to the given time, if it does not fire before.
func (s *Store) wakeLocked(at time.Time) {
	g := &s.gate
	if g.sending || !g.at.IsZero() && !at.Before(g.at) {
		return
	}
	g.at = at
	if g.timer == nil {
		g.timer = time.AfterFunc(time.Until(at), s.sendDue)
	} else {
		g.timer.Reset(time.Until(at))
	}
}

// sendDue tells Redis of all entries that are due, and sets the timer for the next. It runs
// when the timer fires.
func (s *Store) sendDue() {
	g := &s.gate
	g.mu.Lock()
	if g.sending { // the timer was set again while it fired
		g.mu.Unlock()
		return
	}
	g.sending, g.at = true, time.Time{}
	due := s.dueLocked(time.Now())
	g.mu.Unlock()

	var all sync.WaitGroup
	slots := make(chan struct{}, callsAtOnce)
	for key, commands := range due {
		for some := range slices.Chunk(commands, commandsPerCall) {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				s.sendCommands(context.Background(), key, some)
			})
		}
	}
	all.Wait()

	g.mu.Lock()
	defer g.mu.Unlock()
	g.sending = false
	for e := range g.all {
		s.wakeLocked(e.next)
		if !e.isLost {
			s.wakeLocked(e.until)
		}
	}
}

// dueLocked returns what Redis is to be told now, for each key. What is due soon is told
// now, so that there are few calls. What Redis has forgotten by now is lost, or if it was to
// be dropped, that is done.
func (s *Store) dueLocked(now time.Time) map[string][]gateCommand {
	due := make(map[string][]gateCommand)
	soon := now.Add(s.renewEvery() / 2)
	for e := range s.gate.all {
		if !now.Before(e.until) {
			if e.verb == gateDrop {
				delete(s.gate.all, e)
				continue
			}
			e.loseLocked()
		}
		if e.next.After(soon) {
			continue
		}
		e.next = now.Add(s.retryEvery())
		e.maybe = e.maybe || e.verb == gateTake
		due[e.key] = append(due[e.key], gateCommand{e.verb, e})
	}
	return due
}
