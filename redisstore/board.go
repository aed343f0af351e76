package redisstore

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Board shares cool-downs among processes: when a server asks one of them to wait, all wait.
//
//	board := &redisstore.Board{Client: rdb}
//	defer board.Close()
//	client := &http.Client{Transport: &heed.Transport{Board: board}}
//
// It is a heed.ProbeBoard. Read answers from memory. A cool-down reaches the other processes through
// a subscription, mostly within a few milliseconds. Because messages may get lost, a Board also asks
// Redis once a second, or ten times a second while it has no subscription, and then a cool-down
// reaches it within 150 ms. Only Redis' clock counts.
//
// While Redis does not answer, each process keeps the cool-downs that it knows and those that it
// posts itself. It neither waits for Redis nor fails. When Redis is back, it learns within a second,
// or Timeout if that is longer, what was posted meanwhile, and what it lost in a restart.
//
// It does not share outages: each process finds out for itself, with one probe at a time, whether a
// host that is down is back.
//
// # Wrong cool-downs
//
// Post only lengthens a cool-down, so a single wrong response could stop all processes for a day.
// To prevent this, Probe lets one process a minute send a request anyway, and Replace shares the
// result.
//
// # The interval
//
// An interval is the rate at which the server admits requests from all processes together. So each
// process with waiting requests gets a numbered slot, and Read returns a schedule for it: of n
// processes, the one with slot i releases its first request i intervals after the end, and then
// one every n intervals. Together they release one request for each interval. A process that does
// not know the newest slot yet may release one too early, but in any time t there are never more
// than n + t/every. A slot whose process has died, or has nothing left to send, goes unused until the next
// cool-down. While Redis does not answer there are no new slots.
//
// Only requests that waited follow the interval. A process whose first request comes after the end
// of the cool-down does not; use a Pacer to limit it.
//
// # What is stored
//
// There are two keys in Redis: Prefix + "{cool-downs}", which is also the name of the channel, and
// Prefix + "{cool-downs}:changes". They hold the 4,096 cool-downs that changed last, and expire when
// all are over. A cool-down that was replaced is kept for a day, for processes that were cut off. On
// a Cluster or Ring both keys are on one server. If Redis evicts them, the processes restore them.
// A key with other contents makes calls fail, and is left alone. In memory, a Board keeps at most
// 65,536 cool-downs.
//
// On first use, a Board starts a goroutine that follows Redis, with a connection for the
// subscription. It ends with Close, or when the Board is garbage. Until Redis has answered once, the
// Board knows no cool-down of other processes.
//
// Set Client: without it, Redis counts as down. Fields must not change once the Board is in use,
// and it must not be copied. It is safe for concurrent use.
type Board struct {
	// Client connects to Redis. If nil, Redis counts as down.
	Client redis.UniversalClient

	// Prefix is what the names of the keys and of the channel begin with. Boards with different
	// Prefixes share nothing. If empty, "heed:board:".
	Prefix string

	// Timeout is how long a Post, Replace or Probe, and each call to Redis, may take. If zero or
	// negative, 50 ms.
	Timeout time.Duration

	once   sync.Once // guards the creation of opened
	opened atomic.Pointer[syncer]
}

// longestCoolDown is the longest wait, and the longest interval: longer ones are cut to it.
const longestCoolDown = 24 * time.Hour

// Post makes key wait in all processes, for at least wait from now and at most 24 hours. It never
// shortens a cool-down. every is the interval at which the server admits requests, or 0 if unknown;
// of several intervals posted during a cool-down, the longest holds.
//
// This process obeys at once, even if Post fails. An error means that the others may not know yet;
// they will when Redis is back. Post returns within Timeout, and at once if ctx has ended or Redis
// did not answer before.
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

// Replace replaces the cool-down of key in all processes: key waits for wait from now, at most 24
// hours, and then follows the interval every. Both may be shorter than before. A wait of zero or less
// ends the cool-down. Call it with the result of a request that Probe allowed.
//
// This process obeys at once, even if Replace fails; its errors mean the same as those of Post. The
// other processes obey as soon as they learn of it. If one process calls Post and another Replace,
// the call that reaches Redis later counts.
//
// A Replace that cannot reach Redis is sent when Redis is back, unless another process has
// replaced the cool-down since. It is sent again if Redis loses it, as in a failover.
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

// Read returns how long key must still wait in this process, and the interval at which this process
// may then release its waiting requests. The error reports, once, that Redis did not answer,
// answered wrongly or does not let this process subscribe; wait and every are valid all the same.
func (b *Board) Read(_ context.Context, key string) (wait, every time.Duration, err error) {
	s := b.open()
	if s.known.count.Load() > 0 { // mostly there are no cool-downs
		s.mu.Lock()
		var claim bool
		wait, every, claim = s.known.read(key, monotonic())
		s.mu.Unlock()
		if claim {
			s.wakeUp()
		}
	}
	return wait, every, errors.Join(s.syncErr.take(), s.subErr.take())
}

// Probe reports whether the caller should send one request to key in spite of the cool-down, to find
// out whether it still applies; then call Replace. It returns true once a minute for all processes
// together, as long as more than a minute is left, and first a minute after the cool-down was
// posted. A Replace, or a Post that prolongs the cool-down, starts another minute.
//
// Redis decides, by its own clock. It is asked only when a minute has passed, by one caller of each
// process at a time and at most once a second; for all others Probe returns false at once. If Redis
// does not answer within Timeout, each process sends its own probe once a minute. If ctx has ended,
// Probe returns false. A probe that was granted and not sent is not granted again to another caller.
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

// Close stops sharing: the Board then keeps only what it knows and what is posted to it. It returns
// nil.
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
		// Not s.close: calling it from outside of a synctest bubble would panic.
		runtime.AddCleanup(b, func(s *syncer) { s.abandoned.Store(true) }, s)
		b.opened.Store(s)
	})
	return b.opened.Load()
}

// keys returns the names of the hash, which is also the channel's, and of the sorted set. The hash tag
// puts them on one server of a Cluster, unless Prefix has a tag of its own.
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
