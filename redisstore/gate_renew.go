package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// commandsPerCall limits how long one script keeps Redis busy.
	commandsPerCall = 256

	// callsAtOnce is how many concurrent calls the timer makes.
	callsAtOnce = 16
)

// A gateEntry is one Hold's member of a sorted set, and what to send to Redis about it. It must not
// refer to its Hold, which could then never become garbage.
type gateEntry struct {
	key    string // of the sorted set
	member string
	limit  int64

	// Guarded by mu of gateEntries.
	lost  chan struct{} // nil after it was closed, because the Hold is lost
	verb  gateVerb      // what to send next; a take if Redis has forgotten the entry
	next  time.Time     // when to send it
	until time.Time     // when Redis forgets the entry, unless it is renewed
	maybe bool          // a take was not answered and may still be executed
}

// gateEntries are the entries that a Store must renew or drop. While there are any, a timer is set
// for the one that is due next.
type gateEntries struct {
	dropped atomic.Int64 // Holds that became garbage

	mu      sync.Mutex // guards what follows, and some fields of each entry
	all     map[*gateEntry]struct{}
	timer   *time.Timer
	at      time.Time // when the timer fires; zero if it is not set
	sending bool      // the timer has fired, and is set again when Redis has answered
}

// renewEvery returns how often an entry is renewed.
func (s *Store) renewEvery() time.Duration { return s.holdTTL() / 3 }

// retryEvery returns how long after a failure a command is sent again.
func (s *Store) retryEvery() time.Duration { return min(s.holdTTL()/30, 250*time.Millisecond) }

// schedule sends verb for e at the given time.
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

// release drops e now, or in the background if that fails or ctx has ended.
func (s *Store) release(ctx context.Context, e *gateEntry) {
	if ctx.Err() != nil {
		s.schedule(e, gateDrop, time.Now())
		return
	}
	s.gate.mu.Lock()
	e.verb, e.next = gateDrop, time.Now().Add(s.retryEvery())
	s.gate.mu.Unlock()
	s.sendCommands(ctx, []gateCommand{{gateDrop, e}})
}

// sendCommands executes commands, all about entries of one key, and decides what to send next. If it
// fails, the commands are sent again at the next time of their entries.
func (s *Store) sendCommands(ctx context.Context, commands []gateCommand) {
	sent := time.Now()
	reply, err := s.runGate(ctx, commands)
	if err != nil {
		return
	}
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	for i, c := range commands {
		e, found := c.entry, reply.found[i] == 1
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
			// It was released meanwhile, and another command says so.
		case found:
			e.verb, e.next, e.until = gateKeep, sent.Add(s.renewEvery()), sent.Add(s.holdTTL())
		case c.verb == gateKeep:
			e.verb, e.next = gateTake, sent
		default: // its places are taken
			e.loseLocked()
			e.next = sent.Add(s.renewEvery())
		}
	}
}

// retry sets the timer after a call about key has failed. If Redis did not answer, it may come back
// without its data, so that all entries of key are sent soon.
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
	if e.lost != nil {
		close(e.lost)
		e.lost = nil
	}
}

// wakeLocked sets the timer to the given time, unless it fires before.
func (s *Store) wakeLocked(at time.Time) {
	g := &s.gate
	if g.sending || !g.at.IsZero() && !at.Before(g.at) {
		return
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.at, g.timer = at, time.AfterFunc(time.Until(at), s.sendDue)
}

// sendDue runs when the timer fires. It sends commands for all entries that are due, and sets the
// timer for the next.
func (s *Store) sendDue() {
	g := &s.gate
	g.mu.Lock()
	if g.sending { // another timer was set while this one was firing
		g.mu.Unlock()
		return
	}
	g.sending, g.at = true, time.Time{}
	due := s.dueLocked(time.Now())
	g.mu.Unlock()

	var all sync.WaitGroup
	slots := make(chan struct{}, callsAtOnce)
	for _, commands := range due {
		for some := range slices.Chunk(commands, commandsPerCall) {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				s.sendCommands(context.Background(), some)
			})
		}
	}
	all.Wait()

	g.mu.Lock()
	defer g.mu.Unlock()
	g.sending = false
	for e := range g.all {
		s.wakeLocked(e.next)
		if e.lost != nil {
			s.wakeLocked(e.until)
		}
	}
}

// dueLocked returns the commands to send now, by key. To save calls, it includes those that are due
// soon. It marks entries that Redis has forgotten as lost, and forgets those that were to be dropped.
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
