package redisstore

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A pool is what a Lease holds of one Limit of a Key: units that are charged in Redis
// and not used, in the order of their times. Times of this process are monotonic.
type pool struct {
	limit   *quota.Limit
	batches []batch // none is empty
	left    int64   // units in them

	state state // of the bucket in Redis, as last told

	want  int64 // units that are to be held
	spent int64 // since the last tick
}

// A batch is units that were charged at once.
type batch struct {
	met       quota.Bucket  // as they found it
	wait      time.Duration // until all of them are free, if they are of no bucket
	at        int64         // Redis' time, in µs since the Unix epoch
	sent, got time.Duration // when Redis was asked, and when it answered
	used, n   int64         // units before used are gone, n is how many there were
}

// A state is a bucket, and when Redis told it. It is stale if something was given back
// since.
type state struct {
	bucket quota.Bucket
	at     int64
	sent   time.Duration
	stale  bool
}

// moment is how long after b.at its unit i, counted from 1, is free.
func (b *batch) moment(l *quota.Limit, i int64) time.Duration {
	if l.Rate() == 0 {
		return b.wait // windows and logs give units back in heaps
	}
	_, wait, _ := l.TryWithin(l.Settle(b.met, i-1, 0, b.at), 1, b.at, quota.Forever)
	return wait
}

// due is when a unit with such a moment may be used: surely not before its time, since
// Redis charged it before it answered.
func (b *batch) due(moment time.Duration) time.Duration { return b.got + moment }

// lapses is when its units may no longer be used: surely not later than lifetime after
// they were charged, since Redis charged them after it was asked.
func (b *batch) lapses() time.Duration { return b.sent + lifetime }

// add holds what was charged.
func (p *pool) add(b batch) {
	if b.n > 0 {
		p.batches = append(p.batches, b)
		p.left += b.n
	}
}

// lapse drops the units that may not be used at now, and returns when the first of the
// others may not.
func (p *pool) lapse(now time.Duration) (first time.Duration) {
	for len(p.batches) > 0 {
		b := &p.batches[0]
		if first = b.lapses(); first >= now {
			return first
		}
		p.left -= b.n - b.used
		p.batches = p.batches[1:]
	}
	return 0
}

// find returns how long after now the first n units may be used together, and Redis'
// time of the last of them. ok is false if there are not so many, or not together.
func (p *pool) find(n int64, now time.Duration) (wait time.Duration, at int64, ok bool) {
	first := p.lapse(now)
	if p.left < n {
		return 0, 0, false
	}
	last, i := p.nth(n)
	moment := last.moment(p.limit, i)
	use := max(now, last.due(moment))
	return use - now, last.at + moment.Microseconds(), use <= first
}

// nth returns the batch of the n-th unit that is held, and its number there.
func (p *pool) nth(n int64) (*batch, int64) {
	for k := range p.batches {
		b := &p.batches[k]
		if n <= b.n-b.used {
			return b, b.used + n
		}
		n -= b.n - b.used
	}
	return nil, 0
}

// spend uses the first n units, which were found.
func (p *pool) spend(n int64) {
	p.left -= n
	p.spent += n
	for n > 0 {
		b := &p.batches[0]
		some := min(n, b.n-b.used)
		b.used += some
		n -= some
		if b.used == b.n {
			p.batches = p.batches[1:]
		}
	}
}

// drop takes away the last n units that are held.
func (p *pool) drop(n int64) (dropped []batch) {
	for n > 0 {
		last := len(p.batches) - 1
		b := &p.batches[last]
		some := min(n, b.n-b.used)
		b.n -= some
		d := *b
		d.used, d.n = b.n, b.n+some
		dropped = append(dropped, d)
		p.left -= some
		n -= some
		if b.n == b.used {
			p.batches = p.batches[:last]
		}
	}
	slices.Reverse(dropped)
	return dropped
}

// undrained is how many of the units of dropped Redis' bucket counts at now in any
// case: as many as one would that had been charged with nothing else. So after they
// went back, the bucket owes no less than if they had never been taken, and whatever
// is given back, those that are used are what such a bucket admits. If more went back,
// what has drained would be used a second time. Windows and logs look after that
// themselves.
func undrained(l *quota.Limit, dropped []batch, now time.Duration) (n int64) {
	var alone quota.Bucket
	for i := range dropped {
		b := &dropped[i]
		sent := b.sent.Microseconds()
		alone = l.Settle(l.Drain(alone, sent), b.n-b.used, 0, sent)
		n += b.n - b.used
	}
	if l.Rate() == 0 {
		return n
	}
	return l.Drain(alone, now.Microseconds()+1).Level / l.Unit()
}

// tick notes that a horizon is over, and returns how many units more are held than
// will be used in the next one, if that is like the last.
func (p *pool) tick(now time.Duration, most int64) (excess int64) {
	p.lapse(now)
	excess = max(0, p.left-p.spent)
	p.want = min(2*p.spent, most)
	p.spent = 0
	return excess
}

// low reports whether it is time to take more units ahead, early enough for nobody to
// wait for them. Where half of what was held did not last as long as asking for it
// takes, that is hopeless, and asking for all of it at once gets more.
func (p *pool) low(now time.Duration) bool {
	if p.want < 2 || 2*p.left > p.want || len(p.batches) == 0 {
		return false
	}
	b := &p.batches[len(p.batches)-1]
	return now-b.got >= b.got-b.sent
}

// grow notes that what is held did not suffice.
func (p *pool) grow(most int64) { p.want = min(max(1, 2*p.want), most) }

// ahead is how many units are to be taken ahead, of a Limit that so many processes
// share: none where that is hopeless.
func (p *pool) ahead(holders int64, now time.Duration) int64 {
	if p.want < 2 || !p.state.hopeful(p.limit, toReserve, 1, horizon, now) {
		return 0
	}
	fair := max(1, p.room(now)/max(1, holders))
	return max(0, min(p.want, fair)-p.left)
}

// room is how many units may be used within the horizon, those that others hold apart,
// as far as is known.
func (p *pool) room(now time.Duration) int64 {
	l := p.limit
	perTick := float64(l.Rate()) / float64(l.Unit())
	coming := int64(perTick * float64(horizon/l.Tick()))
	if p.state.at == 0 {
		return l.AtOnce() + coming
	}
	return l.Describe(p.state.now(l, now)).Remaining + p.left + coming
}

// now returns the bucket in Redis and the time there, as far as they are known: it
// owes no less, unless somebody has given something back, for it is not earlier there.
func (s *state) now(l *quota.Limit, now time.Duration) (quota.Bucket, int64) {
	at := s.at + (now - s.sent).Microseconds()
	return l.Drain(s.bucket, at), at
}

// hopeful reports whether n units may fit in Redis within max.
func (s *state) hopeful(l *quota.Limit, v verb, n int64, max, now time.Duration) bool {
	if s.at == 0 || s.stale {
		return true
	}
	b, at := s.now(l, now)
	if v == toTake {
		return l.Wait(b, n, at) == 0
	}
	_, wait, _ := l.TryWithin(b, n, at, max)
	return wait <= max
}
