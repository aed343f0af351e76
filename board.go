package heed

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/internal/scope"
)

// A Board is where cool-downs are posted: what one worker is told, all obey.
// Implementations must be safe for concurrent use.
type Board interface {
	// Post makes key wait at least wait from now; it never shortens what was
	// posted before. every is the interval at which the server admits requests
	// of key, 0 if unknown; of several, the longest holds until the cool-down is over.
	Post(ctx context.Context, key string, wait, every time.Duration) error

	// Read reports what is left, and the interval for as long as there may be waiters:
	// they follow one that has become longer. It is called before every attempt, and
	// answers from memory.
	Read(ctx context.Context, key string) (wait, every time.Duration, err error)
}

// A ProbeBoard is a Board whose cool-downs can be found to be wrong: while one lasts, a
// request is sent now and then as a probe, and what it is told holds for all. What it was
// given by Post or Replace without an error, its Read in the same process tells from then on.
type ProbeBoard interface {
	Board

	// Probe reports whether the caller is to send a probe of key now: one a minute, of all
	// who share the Board, while more than a minute is left. It is called by requests,
	// and must not block for long.
	Probe(ctx context.Context, key string) bool

	// Replace makes key wait for wait from now, at the interval every, instead of what was
	// posted before. A wait of zero or less opens it.
	Replace(ctx context.Context, key string, wait, every time.Duration) error
}

// NoBoard is a Board that keeps nothing: each request waits for itself alone.
var NoBoard Board = noBoard{}

type noBoard struct{}

func (noBoard) Post(context.Context, string, time.Duration, time.Duration) error { return nil }
func (noBoard) Read(context.Context, string) (wait, every time.Duration, err error) {
	return 0, 0, nil
}

// A LocalBoard holds the cool-downs of one process. It is a ProbeBoard. Its zero value is
// ready to use; shared by pointer, it lets the Transports that share it wait in one line
// for each key, and know of each other's which of a vendor's limits a route is charged to.
// Keys whose cool-down is over are forgotten, and at 65,536 keys others as well. It must
// not be copied.
type LocalBoard struct {
	used   atomic.Bool               // whether there ever was a cool-down: until then there is nothing to look up
	hosts  keyed.Table[atomic.Int64] // until when a host may have one, of whatever credential
	keys   keyed.Table[coolDown]
	scopes scope.Table
}

// Post makes key wait at least wait from now, at most 24 hours. It returns nil.
func (b *LocalBoard) Post(_ context.Context, key string, wait, every time.Duration) error {
	b.post(hostkey.NameOf(key), now(), wait, boardInterval(every))
	return nil
}

// Read reports what is left of key's cool-down. It returns a nil error.
func (b *LocalBoard) Read(_ context.Context, key string) (wait, every time.Duration, err error) {
	if c := b.find(hostkey.NameOf(key)); c != nil {
		wait, every = c.read(now())
	}
	return wait, every, nil
}

// Probe reports whether the caller is to send a probe of key now: one a minute.
func (b *LocalBoard) Probe(_ context.Context, key string) bool {
	c := b.find(hostkey.NameOf(key))
	return c != nil && c.probe(now())
}

// Replace makes key wait for wait from now instead of what was posted before. It returns nil.
func (b *LocalBoard) Replace(_ context.Context, key string, wait, every time.Duration) error {
	if c := b.find(hostkey.NameOf(key)); c != nil {
		c.replace(now(), wait, boardInterval(every))
	}
	return nil
}

func (b *LocalBoard) post(key hostkey.Name, now, wait time.Duration, i interval) {
	if wait > 0 {
		b.get(key, now, wait).post(now, wait, i)
	}
}

// get returns key's coolDown, a new one if there is none, which may last for wait.
func (b *LocalBoard) get(key hostkey.Name, now, wait time.Duration) *coolDown {
	b.used.Store(true)
	b.touch(key, now, min(wait, longestCoolDown))
	return b.keys.Get(key, func(c *coolDown) keyed.State { return keyed.IdleIf(c.idle(now)) })
}

// find returns key's coolDown, or nil if there is none.
func (b *LocalBoard) find(key hostkey.Name) *coolDown {
	if !b.used.Load() {
		return nil
	}
	return b.keys.Find(key)
}

// touch notes that a key, which may be that of a credential, has a coolDown for so long.
func (b *LocalBoard) touch(key hostkey.Name, now, wait time.Duration) {
	if host, _, ok := strings.Cut(key.Key, " "); ok {
		key = hostkey.NameOf(host)
	}
	until := b.host(key, now)
	for end := int64(now + wait + time.Hour); ; {
		if old := until.Load(); old >= end || until.CompareAndSwap(old, end) {
			return
		}
	}
}

// touched reports whether any key of host may have a coolDown: otherwise a request needs no
// key.
func (b *LocalBoard) touched(host hostkey.Name, now time.Duration) bool {
	return b.host(host, now).Load() > int64(now)
}

func (b *LocalBoard) host(host hostkey.Name, now time.Duration) *atomic.Int64 {
	return b.hosts.Get(host, func(until *atomic.Int64) keyed.State { return keyed.IdleIf(until.Load() <= int64(now)) })
}
