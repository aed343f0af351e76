package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// probeEvery is the least time between two probes of a server that is silent.
const probeEvery = 100 * time.Millisecond

// probeScript is what a probe runs.
var probeScript = newScript("return 1")

// breakers are those of several servers: as many as ever were masters.
type breakers struct {
	mu  sync.Mutex // guards what follows
	all map[string]*breaker
}

func (b *breakers) of(server string) *breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = make(map[string]*breaker)
	}
	if b.all[server] == nil {
		b.all[server] = new(breaker)
	}
	return b.all[server]
}

// serverOf returns the address of key's server, or "" if client has but one, or
// does not know yet. It asks nobody.
func serverOf(client redis.UniversalClient, key string) string {
	if isNil(client) {
		return ""
	}
	var server *redis.Client
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		server, err = c.MasterForKey(over, key)
	case *redis.Ring:
		server, err = c.GetShardClientForKey(key)
	}
	if server == nil || err != nil {
		return ""
	}
	return server.Options().Addr
}

// over keeps a ClusterClient that does not know its masters from asking for them.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

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
	return fmt.Errorf("redisstore: not asked, because the last answer failed to come: %w", b.cause)
}

// open stops further calls, and has the server probed at once: it may have been
// an accident.
func (b *breaker) open(cause error, probe func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = cause
	b.broken.Store(true)
	b.probeLocked(probe)
}

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
