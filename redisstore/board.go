package redisstore

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Board is where a fleet posts its cool-downs: what one process is told, all
// obey. It is a heed.Board.
//
// Read answers from memory. What others post comes in through a subscription,
// as soon as Redis has passed it on; and because messages get lost, Redis is
// asked once a second as well, or ten times a second while there is no
// subscription. So a cool-down holds the other processes within 150 ms, and
// mostly within a few. When it ends is decided by Redis, by its own clock: those
// of the processes need not agree.
//
// While Redis is lost, each process keeps to what it knows and to what it is
// told itself; it neither waits for Redis nor fails. When Redis is back, which
// is noticed within a second, it is told what was posted meanwhile, and what it
// has forgotten itself in a restart.
//
// # Wrong cool-downs
//
// A Post only lengthens, so one bogus answer of a server might silence all processes for
// a day. Probe lets one of them send a request a minute all the same, and Replace brings
// all of them what came of it.
//
// # The interval
//
// The interval that is posted is what the server admits, from all processes
// together. So each process that meets the cool-down takes a seat, and is told a
// schedule of its own: that in seat i of n lets the first request go i intervals
// after the end, and then one every n intervals. The waiters of a fleet are let
// go as those of one process would be: one each interval. A process that
// hears late of the one in the last seat may let one go too early; in any time t
// there are never more than n + t/every. Seats of processes in which nobody
// waits any more, or that have died, go unused until the next cool-down. While
// Redis is lost nobody is given a seat, and each process goes by those it has
// heard of.
//
// Only those who wait are let go at intervals: a process whose first request
// comes after the end is not held back. That is what a Pacer is for.
//
// # What is kept
//
// There are two keys in Redis, Prefix + "{cool-downs}", which is the channel as
// well, and the same with ":changes". They hold the 4,096 cool-downs that changed
// last, and expire when all are over; one that was replaced is kept for a
// day, for processes that have not heard of that. On a Cluster or Ring they are on one
// server. If Redis evicts them, it is told again. In memory there are at most
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

	// Prefix begins the names of the keys and of the channel. Boards of
	// different Prefixes do not hear of each other. If empty, "heed:board:".
	Prefix string

	// Timeout is how long a Post, and each question to Redis, may take. If zero
	// or negative, 50 ms.
	Timeout time.Duration

	once   sync.Once // guards the making of opened
	opened atomic.Pointer[link]
}

// longestCoolDown is where a wait, or an interval, saturates.
const longestCoolDown = 24 * time.Hour

// Post makes key wait at least wait from now, at most 24 hours, in all
// processes; it never shortens what was posted before. every is the interval at
// which the server admits requests of key, 0 if unknown. Of several policies that
// deny while the cool-down lasts, the longest interval holds.
//
// This process obeys at once, whatever becomes of the rest. An error means that
// the others have perhaps not heard of it yet; they will when Redis is back. It
// comes within Timeout, or at once if Redis was lost before or ctx is over.
func (b *Board) Post(ctx context.Context, key string, wait, every time.Duration) error {
	if wait <= 0 {
		return nil
	}
	wait, every = saturated(wait), saturated(every)
	l := b.open()
	if !l.known.post(key, wait, every, monotonic()) {
		return nil
	}
	return l.deliver(ctx)
}

// Replace makes key wait for wait from now, at most 24 hours, in all processes, and sets
// the interval every, instead of what was posted before: it may be less. A wait of zero or
// less opens key. It is for who has sent a request in spite of the cool-down; see Probe.
//
// This process obeys at once, whatever becomes of the rest. The others do as soon as they
// hear of it, and those that are cut off from Redis when they are back. Of a Post and a
// Replace by different processes the one counts that reaches Redis later: a Post that
// Redis did not know yet holds on. A Replace that Redis could not be told at once is told
// when it is back, and then replaces what it has; but not what was replaced by another
// process since. A Redis that has lost a Replace, as in a failover or a restart, is told
// of it again. Errors are as those of Post.
func (b *Board) Replace(ctx context.Context, key string, wait, every time.Duration) error {
	wait, every = saturated(wait), saturated(every)
	if wait == 0 {
		every = 0
	}
	l := b.open()
	l.known.replace(key, wait, every, monotonic())
	return l.deliver(ctx)
}

func saturated(d time.Duration) time.Duration { return min(max(0, d), longestCoolDown) }

// Read reports what is left of key's cool-down for this process, and the
// interval at which it may let those go who waited. An error is told once, and
// says that Redis did not answer as it should; the rest holds all the same.
func (b *Board) Read(_ context.Context, key string) (wait, every time.Duration, err error) {
	l := b.open()
	wait, every = l.read(key)
	return wait, every, l.trouble.take()
}

// Close ends the goroutine. A Board that was closed holds what it knows and
// what is posted to it, and no longer hears of others. It returns nil.
func (b *Board) Close() error {
	b.once.Do(func() { b.opened.Store(newLink(b)) })
	b.opened.Load().close()
	return nil
}

func (b *Board) open() *link {
	if l := b.opened.Load(); l != nil {
		return l
	}
	b.once.Do(func() {
		l := newLink(b)
		l.start()
		runtime.AddCleanup(b, (*link).drop, l)
		b.opened.Store(l)
	})
	return b.opened.Load()
}

// keys are the hash, whose name is the channel's as well, and the sorted set.
// The hash tag keeps them together on a Cluster, unless Prefix has one.
func (b *Board) keys() []string {
	prefix := b.Prefix
	if prefix == "" {
		prefix = "heed:board:"
	}
	return []string{prefix + "{cool-downs}", prefix + "{cool-downs}:changes"}
}

func (b *Board) timeout() time.Duration {
	if b.Timeout <= 0 {
		return 50 * time.Millisecond
	}
	return b.Timeout
}
