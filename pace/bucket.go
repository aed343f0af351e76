package pace

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed/internal/keyed"
)

// A bucket is a rate.Limiter as a gate.
//
// A rate.Limiter names a time to everybody who comes, and when one of them leaves, the
// others keep theirs. So here only the first in line has a token reserved. When it leaves,
// the token is the next one's, and all move up.
type bucket struct {
	limiter *rate.Limiter
	own     bool       // nobody else uses limiter
	hope    rate.Limit // what the limit is going to be, if it is less for the moment

	waiters  waiting
	reserved bool       // a token is reserved for the first in line
	dueAt    time.Time  // when it may be used
	limit    rate.Limit // the limiter's, when it said so
	returned int        // tokens that the first in line may have before it is due
}

func (b *bucket) cost(costs) int64                   { return 1 }
func (b *bucket) spare(int64, int64, time.Time) bool { return false }
func (b *bucket) waiting() *waiting                  { return &b.waiters }

// delay reserves a token if nobody is ahead.
func (b *bucket) delay(_, ahead int64, now time.Time) time.Duration {
	limit := b.limiter.Limit()
	switch {
	case limit == rate.Inf:
		return 0
	case b.limiter.Burst() < 1:
		return forever
	case ahead > 0 && b.reserved:
		return refillTime(ahead, b.limiter.TokensAt(now), max(limit, b.hope))
	case ahead > 0:
		return refillTime(ahead+1, b.limiter.TokensAt(now), max(limit, b.hope))
	}
	if b.returned > 0 || b.reserved && !b.dueAt.After(now) {
		return 0
	}
	if b.reserved && b.limit != limit {
		b.rest(now)
	}
	if !b.reserved {
		if limit <= 0 && b.limiter.TokensAt(now) < 1 {
			return forever
		}
		b.reserve(now)
	}
	return b.dueAt.Sub(now)
}

func (b *bucket) due(n int64, now time.Time) time.Duration { return b.delay(n, 0, now) }

// reserve asks the limiter for the token of the first in line. It is asked as of the moment
// since when somebody waits: however late the timer was, no time is lost. With a limiter that
// others use, too, that would turn its clock back, and so make tokens out of nothing.
func (b *bucket) reserve(now time.Time) {
	at := now
	if b.own && b.waiters.count > 0 {
		at = later(b.dueAt, b.waiters.first)
	}
	b.limit = b.limiter.Limit()
	b.dueAt = at.Add(b.limiter.ReserveN(at, 1).DelayFrom(at))
	b.reserved = true
}

func (b *bucket) take(int64, time.Time) (before int64) {
	if b.returned > 0 {
		b.returned--
	} else {
		b.reserved = false
	}
	return -1
}

// giveBack lets the first in line have the token. What is reserved for it goes back with
// that, so that the limiter counts both, and keeps no more than its burst. But if others have
// reservations after it, it would fall behind them: then the token is left to the next.
func (b *bucket) giveBack(_ int64, now time.Time) {
	switch {
	case b.reserved && b.limiter.TokensAt(now) <= -1:
		b.returned++
		return
	case b.reserved:
		b.rest(now)
	}
	b.put(now)
}

// rest gives back what is reserved.
func (b *bucket) rest(now time.Time) {
	for ; b.returned > 0; b.returned-- {
		b.put(now)
	}
	if b.reserved {
		b.reserved, b.dueAt = false, now
		b.put(now)
	}
}

// put puts a token back into the limiter, which keeps no more of them than its burst. That
// a negative number of events does so is undocumented, but much relied upon
// (golang.org/issue/54082), by tests here as well. A Reservation's Cancel cannot do it once
// the time to act has come.
func (b *bucket) put(now time.Time) { b.limiter.ReserveN(now, -1) }

// refillTime is the time until a bucket of so many tokens, negative if they are owed, holds n.
func refillTime(n int64, tokens float64, limit rate.Limit) time.Duration {
	missing := float64(n) - tokens
	if missing <= 0 {
		return 0
	}
	d := missing / float64(limit) * float64(time.Second)
	if limit > 0 && d < float64(unknown) {
		return time.Duration(d)
	}
	return forever
}

// A bucketLine is a line before one bucket.
type bucketLine struct {
	line
	bucket bucket
	gates  []gate // the bucket
}

// start makes the zero bucketLine ready for use.
func (l *bucketLine) start(mu *sync.Mutex, limiter *rate.Limiter, own bool) {
	l.mu, l.bucket.limiter, l.bucket.own = mu, limiter, own
	l.gates = []gate{&l.bucket}
}

func (l *bucketLine) joinLocked(ctx context.Context, key string, most time.Duration, now time.Time) (*waiter, error) {
	c := claim{key: key, gates: &l.gates, deadline: deadlineOf(ctx, most, now)}
	w, _, err := l.line.joinLocked(&c, startTag{}, now)
	return w, err
}

// giveBackLocked takes back a token that was not used.
func (l *bucketLine) giveBackLocked(now time.Time) {
	l.refreshLocked(now)
	l.bucket.giveBack(1, now)
	l.refreshLocked(now)
}

// stateLocked is whether the line may be forgotten: nothing is lost by it if the burst is whole.
func (l *bucketLine) stateLocked(burst int, now time.Time) keyed.State {
	if l.waiting.Len() > 0 {
		return keyed.InUse
	}
	return keyed.IdleIf(l.bucket.limiter == nil || l.bucket.limiter.TokensAt(now) >= float64(burst))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
