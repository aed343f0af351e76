package pace

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"
)

// A pilot says how fast to go, and is told what comes of it.
type pilot interface {
	limit() float64
	learn(refused, held bool, sent, now time.Time)
}

// ours is the climb of an Adaptive, with a step or without.
type ours struct {
	climb
	step rate.Limit
}

func newOurs(step rate.Limit) *ours { return &ours{climb{rate: firstLimit}, step} }

func (o *ours) limit() float64 { return float64(o.rate) }

func (o *ours) learn(refused, held bool, sent, now time.Time) {
	if refused {
		o.refusal(sent, now, held, 0.1)
	} else {
		o.answer(sent, now, held, o.step, rate.Inf)
	}
}

// cubic is what the AWS SDKs' adaptive retry mode does, by its specification:
// the rate falls to 0.7 of what was measured, at each refusal, and rises
// along CUBIC's curve in seconds, at most to twice what was measured.
type cubic struct {
	fill, last, window, measured float64
	throttled                    time.Time
	slot                         time.Time
	count                        float64
}

func (c *cubic) limit() float64 {
	if c.fill == 0 {
		return 2000 // it does not pace before the first refusal: as fast as the workers are
	}
	return c.fill
}

func (c *cubic) learn(refused, _ bool, _, now time.Time) {
	c.measure(now)
	const beta, scale = 0.7, 0.4
	if refused {
		used := c.measured
		if c.fill > 0 {
			used = min(used, c.fill)
		}
		c.last, c.throttled, c.fill = used, now, max(0.5, used*beta)
		c.window = math.Cbrt(c.last * (1 - beta) / scale)
	} else if c.fill > 0 {
		dt := now.Sub(c.throttled).Seconds()
		c.fill = max(0.5, min(scale*math.Pow(dt-c.window, 3)+c.last, 2*c.measured))
	}
}

func (c *cubic) measure(now time.Time) {
	c.count++
	if c.slot.IsZero() {
		c.slot = now
	}
	if d := now.Sub(c.slot); d >= time.Second/2 {
		c.measured = 0.8*c.count/d.Seconds() + 0.2*c.measured
		c.count, c.slot = 0, now
	}
}

// A limiter is a server's, which tells nothing.
type limiter interface {
	admits(now time.Duration) bool
	perSecond() float64
}

type bucketServer struct {
	limit, burst float64
	tokens       float64
	at           time.Duration
}

func (b *bucketServer) perSecond() float64 { return b.limit }

func (b *bucketServer) admits(now time.Duration) bool {
	b.tokens = min(b.burst, b.tokens+(now-b.at).Seconds()*b.limit)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

type windowServer struct {
	quota  int
	window time.Duration
	number int64
	used   int
}

func (w *windowServer) perSecond() float64 { return float64(w.quota) / w.window.Seconds() }

func (w *windowServer) admits(now time.Duration) bool {
	if n := int64(now / w.window); n != w.number {
		w.number, w.used = n, 0
	}
	if w.used == w.quota {
		return false
	}
	w.used++
	return true
}

// An ascent is what became of each request.
type ascent struct {
	at      []time.Duration
	refused []bool
	held    []bool
}

// fly sends as fast as p allows and so many workers can, with so long a way to
// the server and back.
func fly(p pilot, s limiter, trip, all time.Duration) (f ascent) {
	var (
		start    = time.Unix(1e9, 0)
		answered int                // of the ascent's requests
		due      = 1.0              // how much of a request is to be earned still
		now      = time.Duration(0) // since when it is earned at p's limit
		late     bool               // all workers were busy when it was
	)
	for now < all {
		next := now + time.Duration(max(0, due)/p.limit()*float64(time.Second))
		busy := len(f.at)-answered == workers
		if answered < len(f.at) && (busy || f.at[answered]+trip <= next) {
			back := f.at[answered] + trip
			late = late || back > next
			due -= (back - now).Seconds() * p.limit()
			now = back
			p.learn(f.refused[answered], f.held[answered], start.Add(f.at[answered]), start.Add(now))
			answered++
			continue
		}
		f.held = append(f.held, !late)
		now, due, late = next, 1, false
		f.at, f.refused = append(f.at, now), append(f.refused, !s.admits(now))
	}
	return f
}

// share is how many requests of the time between were refused, and how many
// were not, of those that the server admits in the long run.
func (f ascent) share(from, to time.Duration, perSecond float64) (refused, used float64) {
	sent, no := 0.0, 0.0
	for i, at := range f.at {
		if from <= at && at < to {
			sent++
			if f.refused[i] {
				no++
			}
		}
	}
	return no / max(1, sent), (sent - no) / (perSecond * (to - from).Seconds())
}

// settled is the first second from which on, for a while, at most 5 % are
// refused and at least 80 % used.
func (f ascent) settled(perSecond float64) time.Duration {
	while := time.Duration(max(20, 100/perSecond)) * time.Second
	for at := time.Duration(0); ; at += time.Second {
		if refused, used := f.share(at, at+while, perSecond); refused <= 0.05 && used >= 0.8 {
			return at
		}
	}
}

const (
	workers  = 100
	trip     = 50 * time.Millisecond
	allOf    = 10 * time.Minute
	learning = 10 * time.Second
)

// servers are by name, and made anew for each ascent.
func servers() map[string]func() limiter {
	all := make(map[string]func() limiter)
	for _, r := range []float64{1, 3, 10, 30, 100, 1000} {
		for _, burst := range []float64{1, 10, 60} {
			all[fmt.Sprintf("%4g/s, %g at once", r, burst)] = func() limiter {
				return &bucketServer{limit: r, burst: burst, tokens: burst}
			}
		}
	}
	for _, r := range []int{1, 10, 100} {
		for _, w := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
			all[fmt.Sprintf("%4d/s, windows of %v", r, w)] = func() limiter {
				return &windowServer{quota: r * int(w/time.Second), window: w}
			}
		}
	}
	return all
}

// The figures that Adaptive states.
func TestAnUntoldLimitIsFoundAndUsedWithFewRefusals(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(servers())) {
		s := servers()[name]()
		f := fly(newOurs(0), s, trip, allOf)
		from, most := learning, 0.04
		if w, ok := s.(*windowServer); ok {
			from = max(from, w.window) // the first window's quota is gone at once
			if w.window == time.Minute && w.quota == 60 {
				most = 0.09 // its rest is asked about five times, and that is much beside 60
			}
		}
		refused, used := f.share(from, allOf, s.perSecond())
		t.Logf("%-28s %.1f %% refused, %3.0f %% used", name, 100*refused, 100*used)
		assert.LessOrEqual(t, refused, most, name)
		assert.GreaterOrEqual(t, used, 0.8, name)
		if b, ok := s.(*bucketServer); ok && b.burst >= 10 {
			assert.GreaterOrEqual(t, used, 0.87, name)
		}
	}
}

func TestAnUntoldLimitIsFoundInSeconds(t *testing.T) {
	for name, open := range servers() {
		s := open()
		if b, ok := s.(*bucketServer); ok {
			found := fly(newOurs(0), s, trip, allOf).settled(b.limit)
			t.Logf("%-28s %v", name, found)
			assert.LessOrEqual(t, found, 20*time.Second, name)
		}
	}
}

// Why the curve is the default, and neither a straight line, of which no slope
// fits all servers, nor CUBIC in seconds, which is too steep for slow servers
// and too flat for fast ones.
func TestTheCurveFitsServersThatNoStepAndNoCurveInSecondsFits(t *testing.T) {
	pilots := map[string]func() pilot{
		"1/s each second":  func() pilot { return newOurs(1) },
		"10/s each second": func() pilot { return newOurs(10) },
		"AWS SDK":          func() pilot { return &cubic{} },
	}
	for name, open := range pilots {
		mostRefused, leastUsed := 0.0, 1.0
		for _, server := range servers() {
			s := server()
			refused, used := fly(open(), s, trip, allOf).share(learning, allOf, s.perSecond())
			mostRefused, leastUsed = max(mostRefused, refused), min(leastUsed, used)
		}
		t.Logf("%-18s up to %.0f %% refused, down to %.0f %% used", name, 100*mostRefused, 100*leastUsed)
		assert.Greater(t, mostRefused, 0.2, name)
		assert.Less(t, leastUsed, 0.7, name)
	}
}
