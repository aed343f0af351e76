package pace

import (
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

const (
	// leastHorizon is for how long it is looked back at least to see how fast
	// units come back.
	leastHorizon = 10 * time.Second

	// spareTime is in how long at least what is left is spent beside what comes
	// back.
	spareTime = 5 * time.Second

	// slack is the part of a quota that may be spent earlier than evenly, for
	// clients that send a few requests and then none.
	slack = 0.1

	// mostUnits is what more is read as: products of it are exact.
	mostUnits = 1 << 50

	// askAgain is how long the answer may take to the one request that goes to
	// see what there is in a new period.
	askAgain = time.Second
)

// A told is what a server tells of one policy, and what follows from it. It
// knows of no clock.
//
// Whether a policy is a window, of which nothing comes back before its end, or a
// bucket that is filled again all the time, is seldom told, and neither is what
// other clients take. But both show in what remains from one answer to the
// next. So units are spent at the rate at which they come back, less what others
// take, and beside that what is left is spread over the time until all are back.
//
// Two ways of counting do not show, and servers may tell them (see
// ratelimit.TokenBucket). Of what slides, a unit comes back a window after it was
// spent: so there is a memory of what this process spent. Of a leaky bucket, what is
// spent early waits at the server: so hardly anything is, and an answer is as old as
// its request.
type told struct {
	name, unit, partition string

	quota     int64
	window    time.Duration
	remaining int64         // at the last answer; -1 if only the policy is told
	at        time.Time     // when that came
	heard     int64         // its request's number
	until     time.Time     // when all units are back, or some if that is all that is told
	whole     time.Time     // when all are, as far as can be known
	period    time.Duration // the window, or the longest time to until that was told

	left    int64     // of remaining, without what was spent since
	spentAt time.Time // when units were last spent

	gained  float64 // units that came back, less what others took; without own of what slides,
	came    float64 // which are these
	elapsed float64 // in so many seconds

	soonSince time.Time // since when units are always back as soon as a single one can be

	queue int64  // the most that was left, if it is a leaky bucket
	own   *slide // what this process spent, if the policy slides
}

// is reports whether l tells of the same policy.
func (p *told) is(l *ratelimit.Limit) bool {
	return p.name == l.Name && p.unit == l.Unit && p.partition == l.Partition
}

// useful reports whether anything follows from l.
func useful(l *ratelimit.Limit) bool {
	if l.Remaining < 0 {
		return l.Quota > 0 && l.Window > 0
	}
	return l.Next >= 0 || l.Reset >= 0 || l.Window > 0
}

// An answer is what a response tells of a policy, and of which request.
type answer struct {
	*ratelimit.Limit
	number  int64     // of the request, in the order of sending
	charged int64     // units
	at      time.Time // when it was sent
	later   int64     // units of requests that were sent after it and not answered yet
}

// learn takes over what an answer tells. What it tells to a request that was sent
// before another that was answered already is old news: of that, only the worse
// is believed.
//
// Of those under way it is supposed that the server counts them in the order of
// sending, so that what remains is without all that were sent before.
func (p *told) learn(l answer, now time.Time) {
	l.Remaining = min(l.Remaining, mostUnits)
	if l.number < p.heard {
		p.left = min(p.left, l.Remaining-l.later)
		p.gained += float64(l.charged) // which what remained since was without
		return
	}
	if p.adopt(l.Limit); p.queue > 0 {
		now = l.at // it was counted then, and waited for its turn
	}
	if p.remaining >= 0 && l.Remaining >= 0 && !p.at.IsZero() {
		p.measure(float64(l.Remaining-p.remaining+l.charged), p.back(now), now.Sub(p.at))
	}
	p.watch(l.Limit, now)
	p.quota, p.window, p.remaining = min(l.Quota, mostUnits), l.Window, l.Remaining
	p.heard, p.at, p.until = l.number, now, now.Add(validity(l.Limit))
	p.whole = now.Add(recovery(l.Limit))
	p.period = max(p.window, p.period, p.until.Sub(now))
	p.left = l.Remaining - l.later
}

// adopt follows l's Algorithm, and adds to l what follows from that.
func (p *told) adopt(l *ratelimit.Limit) {
	known := l.Quota > 0 && l.Window > 0 && l.Remaining >= 0
	switch {
	case known && l.Algorithm == ratelimit.LeakyBucket:
		p.queue, p.own = max(p.queue, l.Remaining, 1), nil
		l.Reset = refill(l)
	case known && (l.Algorithm == ratelimit.SlidingWindow || l.Algorithm == ratelimit.SlidingLog):
		if p.queue = 0; p.own == nil || p.own.window != l.Window {
			p.own = &slide{window: l.Window, exact: l.Algorithm == ratelimit.SlidingLog}
		}
		if l.Reset < 0 {
			l.Reset = 2 * l.Window // what is counted in one window is counted in the next
		}
	case l.Remaining >= 0:
		p.queue, p.own = 0, nil
	}
}

// slides reports whether the policy does, and something is known of its state.
func (p *told) slides() bool { return p.own != nil && p.remaining >= 0 }

// back is how many of this process's units have come back by now since the last
// answer, where that is known.
func (p *told) back(now time.Time) float64 {
	if p.own == nil {
		return 0
	}
	return p.own.returns(p.at, now)
}

// validity is how long what l tells is good for: until all is back, or something.
func validity(l *ratelimit.Limit) time.Duration {
	if d := max(l.Next, l.Reset); d >= 0 && l.Remaining >= 0 {
		return d
	}
	return l.Window
}

// recovery is how long it is until all is back. Draft-11's t is when something is;
// but if that is no more than a single unit takes, it is a bucket, or a window
// that is all but over, and all are back when each has had its time.
func recovery(l *ratelimit.Limit) time.Duration {
	d := validity(l)
	if l.Remaining <= 0 || !brief(l) {
		return d
	}
	return max(d, refill(l))
}

// brief reports whether all that l tells of the time is that something is back when a
// single unit can be.
func brief(l *ratelimit.Limit) bool {
	if l.Reset >= 0 || l.Remaining < 0 || l.Quota <= 0 || l.Window <= 0 {
		return false
	}
	return validity(l) <= l.Window/time.Duration(l.Quota)+time.Second
}

// refill is how long a bucket takes to be full again.
func refill(l *ratelimit.Limit) time.Duration {
	return seconds(l.Window.Seconds() / float64(l.Quota) * float64(max(0, l.Quota-l.Remaining)))
}

// watch sees a bucket where units are back soon for longer than that can be the end of
// a window, which then has another one after it, and tells l so.
func (p *told) watch(l *ratelimit.Limit, now time.Time) {
	const fewest, shortest = 8, 4 * time.Second // with less, a window has no other phase that shows
	if !brief(l) || l.Quota < fewest || l.Window < shortest || now.Sub(p.at) > l.Window/4 {
		p.soonSince = now
	} else if each := l.Window / time.Duration(l.Quota); now.Sub(p.soonSince) > 2*(each+time.Second) {
		l.Reset = refill(l)
	}
}

// measure counts what came back in d. If that is much of what was missing, a
// new window has begun: how fast units come back does not follow from that.
//
// Of what slides, so many are own ones, and there is no new window.
func (p *told) measure(units, own float64, d time.Duration) {
	if missing := float64(p.quota - p.remaining); units > 1 && 2*units >= missing && !p.slides() {
		return
	}
	p.gained, p.came = p.gained+units-own, p.came+own
	p.elapsed += max(0, d).Seconds()
	if p.elapsed > max(leastHorizon, p.until.Sub(p.at)/8).Seconds() {
		p.gained, p.came, p.elapsed = p.gained/2, p.came/2, p.elapsed/2
	}
}

// flow is how many units come back in a second, less what others take: less
// than zero, where it is a window that others use, too.
func (p *told) flow() float64 {
	switch {
	case p.remaining < 0:
		return float64(p.quota) / p.window.Seconds()
	case p.queue > 0:
		return p.drain()
	case p.gained > -2 && p.gained < 2: // one more or less is no evidence
		return 0
	}
	flow := p.gained / max(p.elapsed, 1)
	if p.slides() {
		return min(flow, 0) // what others had comes back once only
	}
	if p.whole.After(p.until) {
		flow = min(flow, p.usual()) // a bucket's is no faster
	}
	return flow
}

// drain is flow where the policy is a leaky bucket. It is taken for the usual one at
// first: of a burst, all but one would wait there. And some of it is always left.
func (p *told) drain() float64 {
	usual := p.usual()
	if p.elapsed < 2 {
		return usual
	}
	return max(usual/8, min(usual, p.gained/p.elapsed))
}

// reserve is what is not spent where there is a flow, which is not known
// exactly, nor is steady.
func (p *told) reserve(flow float64) float64 {
	switch {
	case flow == 0:
		return 0
	case p.queue > 0:
		return (1 - slack) * float64(p.queue)
	}
	return 1 + 0.03*float64(p.quota)
}

// rate is how many units may be spent in a second. With n units left for a
// period, the first of them is spent one (n+1)-th of it from now, and with the
// end of it the next period's first. Others are left what they take, but for
// half of what is there; and where units come back, what is missing of the
// reserve is made up for slowly. It is the same until units are spent, or told of.
func (p *told) rate() float64 {
	flow := p.flow()
	switch {
	case p.remaining < 0:
		return flow
	case p.slides():
		return p.slidingRate(flow)
	}
	spare := float64(p.left) + 1 - p.reserve(flow)
	left := p.whole.Sub(later(p.at, p.spentAt))
	if flow > 0 {
		return max(flow+spare/p.horizon(left).Seconds(), flow/4)
	}
	each := spare / max(left, time.Millisecond).Seconds()
	return max(flow+each, each/2)
}

// slidingRate is rate where the policy slides. Where it runs out all the same, since
// others take more than they did, it slows down and does not stop.
func (p *told) slidingRate(flow float64) float64 {
	now := later(p.at, p.spentAt)
	level := p.level(now)
	rate := p.own.rate(level+0.5-0.01*float64(p.quota), now) + flow
	if !p.own.exact { // then what did come back is the better guess for the next moments
		soon := p.own.window.Seconds() / 8
		rate = min(rate, (p.gained+p.came)/max(p.elapsed, 1)+(level-1)/soon)
	}
	least := max(0, level+p.own.returns(now, now.Add(p.own.window))) / p.own.window.Seconds() / 4
	return max(rate, least)
}

// level is how many units are left at now, as far as they are this process's.
func (p *told) level(now time.Time) float64 { return float64(p.left) + p.back(now) }

// horizon is in how long what is left is spent beside what comes back: until all
// would be back, as far as that can be told.
func (p *told) horizon(left time.Duration) time.Duration {
	if p.window > 0 && p.quota > 0 {
		left = max(left, seconds(float64(p.quota-p.left)/p.usual()))
	}
	return max(left, spareTime)
}

// over reports whether nothing of what was told is still true.
func (p *told) over(now time.Time) bool {
	return p.remaining >= 0 && !p.until.After(now) && p.flow() <= 0
}

// wait is how long it is until n units may be spent.
func (p *told) wait(n int64, now time.Time) time.Duration {
	switch left := p.until.Sub(now); {
	case p.over(now):
		return p.ask(n, now)
	case n > 0:
		return p.turn(n, left, now)
	case p.remaining == 0: // of tokens, nobody knows how many it takes; but some
		return left
	}
	return 0
}

// ask is how long it is until n units may be spent of what is not known: of a
// bucket, no faster than it is filled.
func (p *told) ask(n int64, now time.Time) time.Duration {
	if usual := p.usual(); p.whole.After(now) && usual > 0 {
		return max(0, p.spentAt.Add(seconds(float64(n)/usual)).Sub(now))
	}
	return 0
}

func (p *told) turn(n int64, left time.Duration, now time.Time) time.Duration {
	rate, flow, missing := p.rate(), p.flow(), n-p.left
	if p.slides() {
		return min(p.slidingTurn(n, rate, now), left)
	}
	if flow > 0 {
		d := p.spentAt.Add(seconds(float64(n) / rate))
		if p.remaining >= 0 && missing > 0 {
			d = later(d, p.at.Add(seconds(float64(missing)/flow)))
		}
		return d.Sub(now)
	}
	if missing > 0 || rate <= 0 {
		return left
	}
	return min(p.spentAt.Add(seconds(float64(n)/rate)).Sub(now), left)
}

// slidingTurn is turn where the policy slides.
func (p *told) slidingTurn(n int64, rate float64, now time.Time) time.Duration {
	d := p.spentAt.Add(seconds(float64(n) / rate)).Sub(now)
	if missing := float64(n) - p.level(now); missing > 0 {
		d = max(d, p.own.wait(missing, now))
	}
	return d
}

// early reports whether n units may be spent although their turn has not come:
// if as much will be left as of the period, but for the slack.
func (p *told) early(n int64, now time.Time) bool {
	if p.remaining < 0 || p.left < n || p.flow() != 0 || p.quota == 0 || p.period == 0 {
		return false
	}
	even := float64(p.quota) * float64(p.until.Sub(now)) / float64(p.period)
	return float64(p.left-n) >= even-slack*float64(p.quota)
}

// spentUp reports whether there are no n units until some come back.
func (p *told) spentUp(n int64) bool { return p.remaining >= 0 && p.left < n && p.flow() <= 0 }

// ahead is about how long it takes to spend n units. If they come back at all,
// or are of periods to come, it is supposed that they come as usual.
func (p *told) ahead(n int64, now time.Time) time.Duration {
	if n == 0 || p.over(now) {
		return 0
	}
	rate, flow := p.rate(), p.flow()
	if flow > 0 || p.slides() {
		return p.spentAt.Add(seconds(float64(n) / max(rate, p.usual()))).Sub(now)
	}
	d := p.until.Sub(now)
	if rate > 0 && n <= p.left {
		return min(d, p.spentAt.Add(seconds(float64(n)/rate)).Sub(now))
	}
	if beyond := n - max(p.left, 0) - 1; beyond > 0 && p.usual() > 0 {
		d += seconds(float64(beyond) / p.usual())
	}
	return d
}

// usual is how many units there are in a second on average; 0 if unknown.
func (p *told) usual() float64 {
	if p.period <= 0 {
		return 0
	}
	return float64(p.quota) / p.period.Seconds()
}

func (p *told) spend(n int64, now time.Time) {
	p.left -= n
	p.spentAt = now
	p.count(n, now)
}

// count counts n units that were spent at that time; less than none, if they were
// not after all.
func (p *told) count(n int64, at time.Time) {
	if p.own != nil {
		p.own.spend(n, at)
	}
}

// seconds is s as a Duration, at most a day: no server is waited for so long.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 24*60*60) * float64(time.Second))
}
