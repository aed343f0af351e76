package pace

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed/internal/keyed"
)

// A bucket is a gate around a rate.Limiter.
//
// A rate.Limiter gives each caller a fixed time, and nobody moves up when one leaves. So
// only the first in line has a reservation. When it leaves, the next one gets the
// reservation.
type bucket struct {
	limiter  *rate.Limiter
	own      bool       // limiter has no other users
	expected rate.Limit // the limit to expect later, if it is lower now

	waiters  demand
	reserved bool       // a token is reserved for the first in line
	dueAt    time.Time  // when that token may be used
	limit    rate.Limit // the limiter's at the reservation
	returned int        // tokens for the first in line to use before dueAt
}

func (b *bucket) cost(costs) int64                   { return 1 }
func (b *bucket) spare(costs, int64, time.Time) bool { return false }
func (b *bucket) demand() *demand                    { return &b.waiters }

// delay reserves a token if nothing is ahead.
func (b *bucket) delay(_, ahead int64, now time.Time) time.Duration {
	limit := b.limiter.Limit()
	switch {
	case limit == rate.Inf:
		return 0
	case b.limiter.Burst() < 1:
		return forever
	case ahead > 0 && b.reserved:
		return refillTime(ahead, b.limiter.TokensAt(now), max(limit, b.expected))
	case ahead > 0:
		return refillTime(ahead+1, b.limiter.TokensAt(now), max(limit, b.expected))
	}
	if b.returned > 0 || b.reserved && !b.dueAt.After(now) {
		return 0
	}
	if b.reserved && b.limit != limit {
		b.idle(now)
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

// reserve reserves the token of the first in line. Without other users it reserves as of
// the moment when the waiting began, so that a late timer loses no time. With other users
// that would turn the limiter's clock back and create tokens.
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

// giveBack gives the token to the first in line. Its reservation goes back to the limiter
// together with the token, so that the limiter caps both at its burst. But if others have
// later reservations, the first in line would end up behind them: then it keeps its
// reservation and uses the token early.
func (b *bucket) giveBack(_ int64, now time.Time) {
	switch {
	case b.reserved && b.limiter.TokensAt(now) <= -1:
		b.returned++
		return
	case b.reserved:
		b.idle(now)
	}
	b.put(now)
}

// idle gives the reservation back.
func (b *bucket) idle(now time.Time) {
	for ; b.returned > 0; b.returned-- {
		b.put(now)
	}
	if b.reserved {
		b.reserved, b.dueAt = false, now
		b.put(now)
	}
}

// put returns a token to the limiter, which caps tokens at its burst. A negative number
// of events is undocumented but common (golang.org/issue/54082), and tested here.
// Reservation.Cancel cannot do it once the time to act has come.
func (b *bucket) put(now time.Time) { b.limiter.ReserveN(now, -1) }

// refillTime returns the time until a bucket with so many tokens, negative if in debt,
// holds n.
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

// A bucketLine is the line for one bucket.
type bucketLine struct {
	line
	bucket bucket
	gates  []gate // the bucket
}

// start prepares a zero bucketLine.
func (l *bucketLine) start(mu *sync.Mutex, limiter *rate.Limiter, own bool) {
	l.mu, l.bucket.limiter, l.bucket.own = mu, limiter, own
	l.gates = []gate{&l.bucket}
}

func (l *bucketLine) joinLocked(
	ctx context.Context, key string, most time.Duration, now time.Time,
) (*waiter, error) {
	c := claim{key: key, gates: &l.gates, deadline: deadlineOf(ctx, most, now)}
	w, _, err := l.line.joinLocked(&c, startTag{}, now)
	return w, err
}

// giveBackLocked returns a token that was not used.
func (l *bucketLine) giveBackLocked(now time.Time) {
	l.refreshLocked(now)
	l.bucket.giveBack(1, now)
	l.refreshLocked(now)
}

// behindLocked returns how long a request must wait at least, behind those in line and so
// many others.
func (l *bucketLine) behindLocked(others int64, now time.Time) time.Duration {
	if ahead := l.bucket.waiters.units + others; ahead > 0 {
		return l.bucket.delay(1, ahead, now) // which reserves nothing
	}
	return 0
}

// stateLocked reports whether the line may be forgotten. With a full burst that changes
// nothing.
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
