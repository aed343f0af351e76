package redisstore

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Board shares cool-downs among processes: when one process learns that a server
// asks for a pause, all of them keep to it. It is a heed.ProbeBoard.
//
// Read answers from memory. What other processes post comes in through a
// subscription, as soon as Redis has passed it on; and because messages get lost,
// Redis is asked once a second as well, or ten times a second while there is no
// subscription. So a cool-down holds the other processes within 150 ms, and mostly
// within a few. Redis decides when it ends, by its own clock: those of the processes
// need not agree.
//
// While Redis is lost, each process keeps to what it knows and to what is posted in
// the process itself; it neither waits for Redis nor fails. When Redis is back, which
// is noticed within a second, it gets what was posted meanwhile, and what it has
// forgotten itself in a restart.
//
// # Wrong cool-downs
//
// A Post only lengthens, so one bogus answer of a server might silence all processes for
// a day. Probe lets one of them send a request a minute all the same, and Replace brings
// all of them what came of it.
//
// # The interval
//
// The interval that is posted is what the server admits from all processes together.
// So each process in which a request waits takes a numbered slot, and Read tells it a
// schedule of its own: the process with slot i of n lets its first request go i intervals
// after the end, and then one every n intervals. The waiters of all processes are let
// go as those of one process would be: one each interval. A process that learns late of
// the last slot may let one go too early; in any time t there are never more than
// n + t/every. The slots of processes in which nobody waits any more, or that have died,
// go unused until the next cool-down. While Redis is lost there are no new slots, and
// each process goes by those that it knows of.
//
// Only requests that wait are let go at intervals: a process whose first request
// comes after the end is not held back. That is what a Pacer is for.
//
// # What is kept
//
// There are two keys in Redis, Prefix + "{cool-downs}", which is the channel as
// well, and the same with ":changes". They hold the 4,096 cool-downs that changed
// last, and expire when all are over; one that was replaced is kept for a
// day, for processes that do not know that yet. On a Cluster or Ring they are on one
// server. If Redis evicts them, the processes restore them. In memory there are at most
// 65,536 cool-downs. A key that is no Board's is an error, and is left alone.
//
// A Board that is used for the first time begins to follow Redis, in a goroutine
// and with a connection for the subscription, until Close, or until the Board is
// garbage. Until Redis has answered it knows nothing. The zero Board is a lost
// one; set Client. Fields must not change once it is in use, and it must not be
// copied. It is safe for concurrent use.
type Board struct {
	// Client is how Redis is reached. If nil, Redis counts as lost.
	Client redis.UniversalClient

	// Prefix begins the names of the keys and of the channel. Boards with
	// different Prefixes share nothing. If empty, "heed:board:".
	Prefix string

	// Timeout is how long a Post, and each call to Redis, may take. If zero
	// or negative, 50 ms.
	Timeout time.Duration

	once   sync.Once // guards the making of opened
	opened atomic.Pointer[syncer]
}

// longestCoolDown is where a wait, or an interval, saturates.
const longestCoolDown = 24 * time.Hour

// Post makes key wait at least wait from now, at most 24 hours, in all
// processes; it never shortens what was posted before. every is the interval at
// which the server admits requests of key, 0 if unknown. Of several policies that
// deny while the cool-down lasts, the longest interval holds.
//
// This process obeys at once, whatever becomes of the rest. An error means that
// the others perhaps do not know of it yet; they will when Redis is back. It
// comes within Timeout, or at once if Redis was lost before or ctx is over.
func (b *Board) Post(ctx context.Context, key string, wait, every time.Duration) error {
	if wait <= 0 {
		return nil
	}
	s := b.open()
	s.mu.Lock()
	changed := s.known.post(key, saturated(wait), saturated(every), monotonic())
	s.mu.Unlock()
	if !changed {
		return nil
	}
	return s.flush(ctx)
}

// Replace makes key wait for wait from now, at most 24 hours, in all processes, and sets
// the interval every, instead of what was posted before: it may be less. A wait of zero or
// less opens key. It is for a caller that has sent a request in spite of the cool-down; see
// Probe.
//
// This process obeys at once, whatever becomes of the rest. The others do as soon as they
// learn of it, and those that are cut off from Redis when they are back. Of a Post and a
// Replace by different processes the one counts that reaches Redis later: a Post that
// Redis did not know yet holds on. A Replace that does not reach Redis at once reaches it
// when it is back, and then replaces what it has; but not what was replaced by another
// process since. A Redis that has lost a Replace, as in a failover or a restart, gets it
// again. Errors are as those of Post.
func (b *Board) Replace(ctx context.Context, key string, wait, every time.Duration) error {
	wait, every = saturated(wait), saturated(every)
	if wait == 0 {
		every = 0
	}
	s := b.open()
	s.mu.Lock()
	s.known.replace(key, wait, every, monotonic())
	s.mu.Unlock()
	return s.flush(ctx)
}

func saturated(d time.Duration) time.Duration { return min(max(0, d), longestCoolDown) }

// Read reports what is left of key's cool-down for this process, and the
// interval at which it may let those go who waited. An error is reported once, and
// says that Redis did not answer as it should; the rest holds all the same.
func (b *Board) Read(_ context.Context, key string) (wait, every time.Duration, err error) {
	s := b.open()
	if s.known.count.Load() > 0 { // mostly nothing cools down
		s.mu.Lock()
		var claim bool
		wait, every, claim = s.known.read(key, monotonic())
		s.mu.Unlock()
		if claim {
			s.wakeUp()
		}
	}
	return wait, every, s.trouble.take()
}

// Probe reports whether the caller is to send one request to key although it cools down,
// to find out whether the server answers again; then see Replace. It does so for one
// caller a minute, of all processes together, if key has to wait for more than a minute
// yet; and for the first one a minute after the cool-down was posted. Replace and a Post
// that prolongs it begin another minute.
//
// Redis decides, by its own clock, and is asked only when a minute has passed, by one
// caller of each process at a time and once a second. For all others Probe returns false at
// once. While Redis is lost, or does not answer within Timeout, each process probes by itself,
// once a minute. If ctx is over, it is false. A probe that was granted and not sent is
// not granted to another.
func (b *Board) Probe(ctx context.Context, key string) bool {
	s := b.open()
	if ctx.Err() != nil || s.known.count.Load() == 0 {
		return false
	}
	s.mu.Lock()
	asked := s.known.askProbe(key, monotonic())
	s.mu.Unlock()
	if !asked {
		return false
	}
	err := s.flush(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.takeProbe(key, err != nil && ctx.Err() == nil, monotonic())
}

// Close ends the goroutine. A Board that was closed holds what it knows and
// what is posted to it, and no longer shares it. It returns nil.
func (b *Board) Close() error {
	b.once.Do(func() { b.opened.Store(newSyncer(b)) })
	b.opened.Load().close()
	return nil
}

func (b *Board) open() *syncer {
	if s := b.opened.Load(); s != nil {
		return s
	}
	b.once.Do(func() {
		s := newSyncer(b)
		s.start()
		// Closing the context of a synctest bubble from outside of it would panic.
		runtime.AddCleanup(b, func(s *syncer) { s.abandoned.Store(true) }, s)
		b.opened.Store(s)
	})
	return b.opened.Load()
}

// keys are the hash, whose name is the channel's as well, and the sorted set.
// The hash tag keeps them together on a Cluster, unless Prefix has one.
func (b *Board) keys() []string {
	prefix := cmp.Or(b.Prefix, "heed:board:")
	return []string{prefix + "{cool-downs}", prefix + "{cool-downs}:changes"}
}

func (b *Board) timeout() time.Duration {
	if b.Timeout <= 0 {
		return 50 * time.Millisecond
	}
	return b.Timeout
}
