package redisstore

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// tokens are the units that a Lease holds of one Limit of a Key: charged in Redis and not used yet, in
// the order of their use. Times of this process are monotonic.
type tokens struct {
	limit        *quota.Limit
	reservations []reservation // none is empty
	left         int64         // units in them
	state        lastState

	want    int64 // units to hold
	used    int64 // since the last sweep
	waiting int64 // units that callers wait for, besides those of a refill in flight
	denied  bool  // since the last sweep, units were denied
}

// A reservation is the units that one refill charged.
type reservation struct {
	found     quota.Bucket
	wait      time.Duration // until all units are free, if the algorithm is not a bucket
	at        int64         // Redis' time, in µs since the Unix epoch
	sent, got time.Duration // when Redis was asked, and when it had answered
	first, n  int64         // units first to n-1 are held; earlier ones were used, later ones went back
}

// A lastState is a bucket as Redis last reported it. The zero value is a full bucket.
type lastState struct {
	bucket quota.Bucket
	at     int64         // Redis' time, in µs since the Unix epoch
	sent   time.Duration // when Redis was asked
}

// freeAfter returns how long after r.at unit i of the reservation is free. The first unit is 0.
func (r *reservation) freeAfter(l *quota.Limit, i int64) time.Duration {
	if l.Rate() == 0 {
		return r.wait // windows and logs free many units at once
	}
	_, wait, _ := l.TryWithin(l.Settle(r.found, i, 0, r.at), 1, r.at, quota.Forever)
	return wait
}

// expires returns when the units may no longer be used: lifetime after they were charged, or a little
// earlier, counted from the request.
func (r *reservation) expires() time.Duration { return r.sent + lifetime }

func (r *reservation) left() int64 { return r.n - r.first }

func (t *tokens) add(r reservation) {
	t.reservations = append(t.reservations, r)
	t.left += r.left()
}

// expire drops units that may no longer be used. It returns when the next of the rest expire.
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

// find returns how long until the first n units may be used together, and Redis' time then. ok is
// false if there are fewer than n, or the first one will have expired by then.
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
	use := max(now, r.got+free) // never too soon: Redis charged it before r.got
	return use - now, r.at + free.Microseconds(), use <= next
}

// spend uses the first n units, after find.
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

// split returns the last n units, and the others.
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

// undrained returns how many of units may be given back at now: as many as would still be charged in
// Redis if its bucket had nothing else in it. Giving back more would let units that have drained
// meanwhile be used twice. Windows and logs need no such correction.
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

// sweep ends a horizon. It returns how many units are held in excess of those that the next horizon
// needs, if it is like the last one.
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

// isLow reports whether to start a refill, so early that no caller has to wait for it. If half of the
// units lasted less than a refill takes, that is impossible: then one refill for all units is better.
func (t *tokens) isLow(now time.Duration) bool {
	if t.want < 2 || 2*t.left > t.want || len(t.reservations) == 0 {
		return false
	}
	r := &t.reservations[len(t.reservations)-1]
	return now-r.got >= r.got-r.sent
}

// toRefill returns how many units to take in a refill if one more caller waits for n: the units that
// callers wait for, and some ahead unless half of those are held. ok is false if callers wait for
// units, and Redis is not expected to have them and one more.
func (t *tokens) toRefill(n, peers int64, now time.Duration) (units int64, ok bool) {
	short := max(0, t.waiting+n-t.left)
	perTick := float64(t.limit.Rate()) / float64(t.limit.Unit())
	free := t.left + t.limit.Describe(t.stateAt(now)).Remaining + int64(perTick*float64(horizon/t.limit.Tick()))
	hold := min(t.want, max(1, free/max(1, peers)))
	if t.want < 2 || 2*t.left > hold {
		return 0, short == 0
	}
	fits := t.limit.Describe(t.stateAt(now + horizon)).Remaining // units that can be reserved
	ahead := min(hold-t.left, fits-short)
	if ahead <= 0 {
		return 0, short == 0
	}
	return short + ahead, true
}

// record stores a bucket that Redis reported.
func (t *tokens) record(b quota.Bucket, at int64, sent time.Duration) {
	if at >= t.state.at {
		t.state = lastState{bucket: b, at: at, sent: sent}
	}
}

// stateAt returns the bucket in Redis and the time there, as far as known. The bucket may have less left
// than this, but not more, unless units were given back.
func (t *tokens) stateAt(now time.Duration) (quota.Bucket, int64) {
	at := t.state.at + (now - t.state.sent).Microseconds()
	return t.limit.Drain(t.state.bucket, at), at
}

// peers is the number of processes that lease a Key. Each process charges one unit a second to a
// window in the Key's hash, whose count is the number.
type peers struct {
	n       int64         // as last counted, this process included; 0 before the first count
	counted time.Duration // when this process was last charged
	asked   time.Duration // when Redis was last asked
}

// peerLimit is the Limit that counts peers, with dry runs that deny nothing.
var peerLimit = func() *quota.Limit {
	p := quota.Policy{Name: "lease holders", Quota: 1_000_000, Window: time.Second, Algorithm: quota.SlidingWindow}
	l, err := p.Compile()
	if err != nil {
		panic(err)
	}
	return l
}()

// count returns the op that counts peers, or nil if it is not due. It is due ten times a second, so that
// new peers are soon known; once a second it also counts this process.
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

// record stores the larger count of this second and the last one.
func (p *peers) record(o *op) {
	before := o.found[0].before
	p.n = max(1, before.Level, before.Prev, o.left(0).Level)
}
