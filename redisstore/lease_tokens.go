package redisstore

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Tokens are what a Lease holds of one Limit of a Key: units that are charged in Redis and not
// used, in the order in which they may be. Times of this process are monotonic.
type tokens struct {
	limit        *quota.Limit
	reservations []reservation // none is empty
	left         int64         // units in them
	state        knownState

	want    int64 // units that are to be held
	used    int64 // since the last sweep
	waiting int64 // for which callers wait, beside those of a refill that is under way
	denied  bool  // some were, since the last sweep
}

// A reservation is units that one refill charged.
type reservation struct {
	found     quota.Bucket
	wait      time.Duration // until all of them are free, if they are of no bucket
	at        int64         // Redis' time, in µs since the Unix epoch
	sent, got time.Duration // when Redis was asked, and when it had answered
	first, n  int64         // units first to n-1 are held: those before were used, those after went back
}

// A knownState is a bucket as Redis last reported it, or a whole one if it has not yet.
type knownState struct {
	bucket quota.Bucket
	at     int64         // Redis' time, in µs since the Unix epoch
	sent   time.Duration // when Redis was asked
}

// freeAfter is how long after r.at its unit i, counted from 0, is free.
func (r *reservation) freeAfter(l *quota.Limit, i int64) time.Duration {
	if l.Rate() == 0 {
		return r.wait // windows and logs give back many units at once
	}
	_, wait, _ := l.TryWithin(l.Settle(r.found, i, 0, r.at), 1, r.at, quota.Forever)
	return wait
}

// expires is when its units may no longer be used: surely not later than lifetime after they
// were charged, since Redis charged them after it was asked.
func (r *reservation) expires() time.Duration { return r.sent + lifetime }

func (r *reservation) left() int64 { return r.n - r.first }

func (t *tokens) add(r reservation) {
	t.reservations = append(t.reservations, r)
	t.left += r.left()
}

// expire drops what may not be used any more, and returns when the next of the rest may not.
func (t *tokens) expire(now time.Duration) (next time.Duration) {
	for len(t.reservations) > 0 {
		r := &t.reservations[0]
		if next = r.expires(); next >= now {
			return next
		}
		t.left -= r.left()
		t.reservations = t.reservations[1:]
	}
	return 0
}

// find returns in what time the first n units may be used together, and Redis' time of the last
// of them. ok is false if there are not so many, or the first will have expired.
func (t *tokens) find(n int64, now time.Duration) (wait time.Duration, at int64, ok bool) {
	next := t.expire(now)
	if n > t.left {
		return 0, 0, false
	}
	i := 0
	for ; n > t.reservations[i].left(); i++ {
		n -= t.reservations[i].left()
	}
	r := &t.reservations[i]
	free := r.freeAfter(t.limit, r.first+n-1)
	use := max(now, r.got+free) // surely not too soon, since Redis charged it before it answered
	return use - now, r.at + free.Microseconds(), use <= next
}

// spend uses the first n units, which were found.
func (t *tokens) spend(n int64) {
	t.left -= n
	t.used += n
	for n > 0 {
		r := &t.reservations[0]
		some := min(n, r.left())
		r.first += some
		n -= some
		if r.left() == 0 {
			t.reservations = t.reservations[1:]
		}
	}
}

// split returns the last n units that are held, and the others.
func (t *tokens) split(n int64) (others, last []reservation) {
	others = slices.Clone(t.reservations)
	for n > 0 {
		r := &others[len(others)-1]
		some := *r
		some.first = max(r.first, r.n-n)
		n -= some.left()
		last = append(last, some)
		if r.n = some.first; r.left() == 0 {
			others = others[:len(others)-1]
		}
	}
	slices.Reverse(last)
	return others, last
}

// undrained is how many of some units may be given back at now: as many as Redis' bucket would
// still count of them if they had been charged with nothing else. So after that it owes no less
// than if they had never been taken. If more went back, what has drained meanwhile would be used
// a second time. Windows and logs see to that themselves.
func undrained(l *quota.Limit, units []reservation, now time.Duration) (n int64) {
	var only quota.Bucket
	for i := range units {
		r := &units[i]
		sent := r.sent.Microseconds()
		only = l.Settle(l.Drain(only, sent), r.left(), 0, sent)
		n += r.left()
	}
	if l.Rate() == 0 {
		return n
	}
	return l.Drain(only, now.Microseconds()+1).Level / l.Unit()
}

// sweep is called when a horizon is over. It returns how many units more are held than will be
// used in the next one, if that is like the last.
func (t *tokens) sweep(now time.Duration, most int64) (excess int64) {
	t.expire(now)
	keep := t.used
	if keep < worthLeasing/2 && !t.denied {
		keep = 0
	}
	t.want = min(2*keep, most)
	t.used, t.denied = 0, false
	return max(0, t.left-keep)
}

// isLow reports whether it is time for a refill, so early that no caller has to wait for it. If
// half of what was held did not last as long as a refill takes, there is no such time, and it is
// better to ask for all of it at once.
func (t *tokens) isLow(now time.Duration) bool {
	if t.want < 2 || 2*t.left > t.want || len(t.reservations) == 0 {
		return false
	}
	r := &t.reservations[len(t.reservations)-1]
	return now-r.got >= r.got-r.sent
}

// toRefill returns how many units a refill is to bring, if there is one more caller that waits
// for n: those that callers wait for, and some ahead, unless half of what is to be held is. ok is
// false if callers wait for units that Redis cannot be expected to have, and one more.
func (t *tokens) toRefill(n, peers int64, now time.Duration) (units int64, ok bool) {
	short := max(0, t.waiting+n-t.left)
	perTick := float64(t.limit.Rate()) / float64(t.limit.Unit())
	free := t.left + t.limit.Describe(t.stateAt(now)).Remaining + int64(perTick*float64(horizon/t.limit.Tick()))
	hold := min(t.want, max(1, free/max(1, peers)))
	if t.want < 2 || 2*t.left > hold {
		return 0, short == 0
	}
	fits := t.limit.Describe(t.stateAt(now + horizon)).Remaining // which is what may be reserved
	ahead := min(hold-t.left, fits-short)
	if ahead <= 0 {
		return 0, short == 0
	}
	return short + ahead, true
}

// know takes note of a bucket that Redis reported.
func (t *tokens) know(b quota.Bucket, at int64, sent time.Duration) {
	if at >= t.state.at {
		t.state = knownState{bucket: b, at: at, sent: sent}
	}
}

// stateAt returns the bucket in Redis, and the time there, as far as they are known: it owes no
// less, unless units were given back, since all the time has passed that may have.
func (t *tokens) stateAt(now time.Duration) (quota.Bucket, int64) {
	at := t.state.at + (now - t.state.sent).Microseconds()
	return t.limit.Drain(t.state.bucket, at), at
}

// Peers are how many processes lease a Key: each charges one unit a second to a window in the
// Key's hash, for which its number is the count.
type peers struct {
	n       int64         // as last counted, this process included; 0 before
	counted time.Duration // when this process was
	asked   time.Duration // when Redis was
}

// peerLimit is the Limit that peers are counted by, in dry runs. It denies nobody.
var peerLimit = func() *quota.Limit {
	p := quota.Policy{Name: "lease holders", Quota: 1_000_000, Window: time.Second, Algorithm: quota.SlidingWindow}
	l, err := p.Compile()
	if err != nil {
		panic(err)
	}
	return l
}()

// count returns the op that counts peers, and once a second this process among them; or nil if
// it is not due: that is ten times a second, so that one that joins is soon known.
func (p *peers) count(key string, now time.Duration) *op {
	if p.n > 0 && now-p.asked < time.Second/10 {
		return nil
	}
	o := &op{verb: peek, charges: []quota.Charge{{Key: key, Limit: peerLimit, N: 1, DryRun: true}}}
	if p.asked = now; p.n == 0 || now-p.counted >= time.Second {
		o.verb, p.counted = take, now
	}
	return o
}

// know takes note of how many were counted in this second, or in the last one.
func (p *peers) know(o *op) {
	before := o.found[0].before
	p.n = max(1, before.Level, before.Prev, o.left(0).Level)
}
