package heed

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/cool"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/internal/scope"
)

// A Board stores cool-downs, so that one request's refusal holds back all others. The zero
// Transport uses a LocalBoard; redisstore.Board shares cool-downs among processes. Implementations
// must be safe for concurrent use.
type Board interface {
	// Post closes key for wait from now on. It never shortens an earlier cool-down. every is the
	// interval at which the server admits requests with this key, or 0 if unknown; of several
	// intervals the longest applies until the cool-down is over.
	Post(ctx context.Context, key string, wait, every time.Duration) error

	// Read returns how long the cool-down still lasts, and the interval while requests may still be
	// waiting. It is called before every attempt, and must answer from memory. What it returns with
	// an error still applies. Errors of a Board go to Trace.Degraded, and the request goes on.
	Read(ctx context.Context, key string) (wait, every time.Duration, err error)
}

// A ProbeBoard is a Board whose cool-downs can be corrected: during a long one, a request is sent
// now and then as a probe, and its answer replaces the cool-down. After Post or Replace returned
// nil, Read in the same process must return the new state.
type ProbeBoard interface {
	Board

	// Probe reports whether the caller should send a probe of key now. It allows one a minute for
	// all processes that share the Board, while a minute or more of the cool-down is left. A
	// Transport calls it after 1, 2, 4, 8 … minutes of a cool-down that nothing confirms.
	// Requests call it, so it must not block for long.
	Probe(ctx context.Context, key string) bool

	// Replace closes key for wait from now on, at the interval every, whatever was posted before.
	// If wait is zero or less, it opens the key.
	Replace(ctx context.Context, key string, wait, every time.Duration) error
}

// NoBoard is a Board that stores nothing: a refusal holds back only the request that met it, and no
// request waits for a host that is down.
var NoBoard Board = noBoard{}

type noBoard struct{}

func (noBoard) Post(context.Context, string, time.Duration, time.Duration) error { return nil }
func (noBoard) Read(context.Context, string) (wait, every time.Duration, err error) {
	return 0, 0, nil
}

// A LocalBoard stores the cool-downs of one process. Share one between Transports to make them wait
// together:
//
//	board := new(heed.LocalBoard)
//	a := &heed.Transport{Board: board}
//	b := &heed.Transport{Board: board, Retry: heed.RetryPolicy{MaxAttempts: 2}}
//
// Then they have one waiting line for each key and for each host that is down, and share what
// responses tell about a vendor's scopes. The zero value is ready to use; do not copy it. It is a
// ProbeBoard. Cool-downs that are over are dropped; beyond 65,536 keys, others may be too.
type LocalBoard struct {
	// NoProbes keeps every cool-down until its end. If false, a request is sent as a probe when a key has
	// been closed for 1, 2, 4, 8 … minutes, while a minute or more is left, unless the cool-down is
	// confirmed: a field says that nothing is left, the vendor's hints are exact (ratelimit.Profile.Exact),
	// or a probe was told the same end. Set it before first use. It does not apply to other Boards.
	NoProbes bool

	used    atomic.Bool         // set by the first cool-down: until then look-ups are skipped
	servers keyed.Table[server] // by host
	keys    keyed.Table[cool.CoolDown]
	scopes  scope.Table
}

// A server is what a LocalBoard knows of one host, whatever the credential.
type server struct {
	until       atomic.Int64 // when the last cool-down of any credential ends
	good        atomic.Int64 // when an answer to anybody was last good, to a second
	sdkRepeated atomic.Int64 // when an SDK last repeated a request itself
	outage      cool.Outage
}

// answeredWell records that an answer was good: not even a refusal.
func (s *server) answeredWell(now time.Duration) {
	if int64(now)-s.good.Load() > int64(time.Second) {
		s.good.Store(int64(now))
	}
}

// goodSince reports whether an answer was good after a time, which it knows to a second.
func (s *server) goodSince(t time.Duration) bool { return s.good.Load() > int64(t) }

func (s *server) idle(now time.Duration) keyed.State {
	if s.outage.Waiting() {
		return keyed.InUse
	}
	return keyed.IdleIf(s.until.Load() <= int64(now) && s.outage.Idle(now))
}

// Post closes key for wait from now on, at most 24 hours. If wait is not positive, it does nothing.
// It returns nil.
func (b *LocalBoard) Post(_ context.Context, key string, wait, every time.Duration) error {
	b.post(hostkey.NameOf(key), now(), wait, cool.BoardInterval(every))
	return nil
}

// Read returns how long key's cool-down still lasts, and its interval. The error is nil.
func (b *LocalBoard) Read(_ context.Context, key string) (wait, every time.Duration, err error) {
	if c := b.find(hostkey.NameOf(key)); c != nil {
		wait, every = c.Read(now())
	}
	return wait, every, nil
}

// Probe reports whether the caller should send a probe of key now: see NoProbes.
func (b *LocalBoard) Probe(_ context.Context, key string) bool {
	c := b.find(hostkey.NameOf(key))
	return c != nil && !b.NoProbes && c.Probe(now())
}

// Replace closes key for wait from now on, at most 24 hours, whatever was posted before. If wait is
// not positive, it opens the key. It does nothing if key has no cool-down, and returns nil.
func (b *LocalBoard) Replace(_ context.Context, key string, wait, every time.Duration) error {
	if c := b.find(hostkey.NameOf(key)); c != nil {
		c.Replace(now(), wait, cool.BoardInterval(every))
	}
	return nil
}

func (b *LocalBoard) post(key hostkey.Name, now, wait time.Duration, i cool.Interval) {
	if wait > 0 {
		b.get(key, now, wait).Post(now, wait, i)
	}
}

// get returns key's CoolDown, which may last for wait, and makes one if there is none.
func (b *LocalBoard) get(key hostkey.Name, now, wait time.Duration) *cool.CoolDown {
	b.used.Store(true)
	b.extendHost(key, now, min(wait, cool.LongestCoolDown))
	return b.keys.Get(key, func(c *cool.CoolDown) keyed.State { return keyed.IdleIf(c.Idle(now)) })
}

// find returns key's CoolDown, or nil if there is none.
func (b *LocalBoard) find(key hostkey.Name) *cool.CoolDown {
	if !b.used.Load() {
		return nil
	}
	return b.keys.Find(key)
}

// extendHost records that a key of this host, perhaps one with a credential, has a CoolDown for
// wait.
func (b *LocalBoard) extendHost(key hostkey.Name, now, wait time.Duration) {
	if host, _, ok := strings.Cut(key.Key, " "); ok {
		key = hostkey.NameOf(host)
	}
	until := &b.server(key, now).until
	for end := int64(now + wait + time.Hour); ; {
		if old := until.Load(); old >= end || until.CompareAndSwap(old, end) {
			return
		}
	}
}

func (b *LocalBoard) server(host hostkey.Name, now time.Duration) *server {
	return b.servers.Get(host, func(s *server) keyed.State { return s.idle(now) })
}
