package redisstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// probeEvery is the least time between two probes of a server that is silent.
const probeEvery = 100 * time.Millisecond

// probeScript is what a probe runs.
var probeScript = newScript("return 1")

// A breaker keeps calls from a server that does not answer. Its zero value lets
// them pass. It has no goroutine of its own but a probe, which ends by itself.
type breaker struct {
	broken atomic.Bool

	mu      sync.Mutex // guards what follows
	cause   error
	probing bool
	next    time.Time // for the next probe
}

// pass returns an error if calls are not to be made. Then it is the occasion for
// a probe, unless one is under way or was a moment ago.
func (b *breaker) pass(probe func() error) error {
	if !b.broken.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.broken.Load() {
		return nil
	}
	if time.Now().After(b.next) {
		b.probeLocked(probe)
	}
	return notAsked(b.cause)
}

func notAsked(cause error) error {
	return fmt.Errorf("redisstore: not asked, because the last answer failed to come: %w", cause)
}

// open stops further calls, and has the server probed at once: it may have been
// an accident. It returns what pass says to them.
func (b *breaker) open(cause error, probe func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = cause
	b.broken.Store(true)
	b.probeLocked(probe)
	return notAsked(cause)
}

// trust lets calls pass: there is a sign that the server answers.
func (b *breaker) trust() { b.broken.Store(false) }

func (b *breaker) probeLocked(probe func() error) {
	if b.probing {
		return
	}
	b.probing = true
	go func() {
		err := probe()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probing, b.next = false, time.Now().Add(probeEvery)
		b.broken.Store(err != nil && !unexecuted(err))
	}()
}
