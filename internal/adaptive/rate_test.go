package adaptive

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A controller sets the rate, and learns from answers.
type controller interface {
	limit() float64
	learn(refused, held bool, sent, now time.Time)
}

// ours is a Rate with a step.
type ours struct {
	Rate
	step float64
}

func newOurs(step float64) *ours { return &ours{From(time.Time{}, 0.5), step} }

func (o *ours) limit() float64 { return o.PerSecond }

func (o *ours) learn(refused, held bool, sent, now time.Time) {
	if refused {
		o.Refuse(sent, now, held, 0.1)
	} else {
		o.Answer(sent, now, held, o.step, math.MaxFloat64)
	}
}

// cubic is the adaptive retry mode of the AWS SDKs, by its specification: at each refusal the rate
// falls to 0.7 of the measured rate, and then rises along CUBIC's curve in seconds, at most to
// twice the measured rate.
type cubic struct {
	fill, last, window, measured float64
	throttled                    time.Time
	slot                         time.Time
	count                        float64
}

func (c *cubic) limit() float64 {
	if c.fill == 0 {
		return 2000 // before the first refusal it does not pace
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

// A limiter is a server's limit, which it does not announce.
type limiter interface {
	admits(now time.Duration) (ok bool, delay time.Duration)
	perSecond() float64
}

type bucketServer struct {
	limit, burst float64
	tokens       float64
	at           time.Duration
}

func (b *bucketServer) perSecond() float64 { return b.limit }

func (b *bucketServer) admits(now time.Duration) (bool, time.Duration) {
	b.tokens = min(b.burst, b.tokens+(now-b.at).Seconds()*b.limit)
	b.at = now
	if b.tokens < 1 {
		return false, 0
	}
	b.tokens--
	return true, 0
}

type windowServer struct {
	quota  int
	window time.Duration
	number int64
	used   int
}

func (w *windowServer) perSecond() float64 { return float64(w.quota) / w.window.Seconds() }

func (w *windowServer) admits(now time.Duration) (bool, time.Duration) {
	if n := int64(now / w.window); n != w.number {
		w.number, w.used = n, 0
	}
	if w.used == w.quota {
		return false, 0
	}
	w.used++
	return true, 0
}

// A quotaServer counts with package quota.
type quotaServer struct {
	limit  *quota.Limit
	bucket quota.Bucket
}

func (q *quotaServer) perSecond() float64 {
	p := q.limit.Policy()
	return float64(p.Quota) / p.Window.Seconds()
}

func (q *quotaServer) admits(now time.Duration) (ok bool, delay time.Duration) {
	at := now.Microseconds()
	q.bucket = q.limit.Drain(q.bucket, at)
	delay = q.limit.Delay(q.bucket, at)
	q.bucket, ok = q.limit.Try(q.bucket, 1, at)
	return ok, delay
}

// A run is the requests of one simulation.
type run struct {
	at      []time.Duration
	refused []bool
	held    []bool
}

// An inFlight is a request under way, and when its answer comes.
type inFlight struct {
	request int
	back    time.Duration
}

// drive sends requests as fast as p allows and the workers can, with this latency to the server and
// back.
func drive(p controller, s limiter, latency, all time.Duration) (f run) {
	var (
		start = time.Unix(1e9, 0)
		away  []inFlight         // in the order of their answers
		due   = 1.0              // the part of a request that p's limit must still allow
		now   = time.Duration(0) // the time up to which due is computed
		late  bool               // all workers were busy when the request was due
	)
	for now < all {
		next := now + time.Duration(max(0, due)/p.limit()*float64(time.Second))
		if len(away) > 0 && (len(away) == workers || away[0].back <= next) {
			back, n := away[0].back, away[0].request
			away = away[1:]
			late = late || back > next
			due -= (back - now).Seconds() * p.limit()
			now = back
			p.learn(f.refused[n], f.held[n], start.Add(f.at[n]), start.Add(now))
			continue
		}
		f.held = append(f.held, !late)
		now, due, late = next, 1, false
		ok, delay := s.admits(now)
		if !ok {
			delay = 0
		}
		back := now + latency + delay
		i := len(away)
		for i > 0 && away[i-1].back > back {
			i--
		}
		away = slices.Insert(away, i, inFlight{len(f.at), back})
		f.at, f.refused = append(f.at, now), append(f.refused, !ok)
	}
	return f
}

// share returns, for the requests between two times, the part that was refused, and the part of the
// server's long-term rate that was used.
func (f run) share(from, to time.Duration, perSecond float64) (refused, used float64) {
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

// settled is the first second after which, for a while, at most 5 % are refused and at least 80 %
// are used. It is negative if there is none.
func (f run) settled(perSecond float64) time.Duration {
	while := time.Duration(max(20, 100/perSecond)) * time.Second
	for at := time.Duration(0); ; at += time.Second {
		if at+while > allOf {
			return -1
		}
		if refused, used := f.share(at, at+while, perSecond); refused <= 0.05 && used >= 0.8 {
			return at
		}
	}
}

const (
	workers  = 100
	latency  = 50 * time.Millisecond
	allOf    = 10 * time.Minute
	learning = 10 * time.Second
)

// lasting is how long a simulation runs. In the short form, fast servers do not get a million
// requests.
func lasting(s limiter) time.Duration {
	if s.perSecond() >= 200 && !testenv.Long() {
		return allOf / 2
	}
	return allOf
}

// servers returns functions that make a new server for each run.
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

// runs are the simulations of the curve with each server. All tests share them.
var runs = sync.OnceValue(func() map[string]run {
	all := make(map[string]run)
	for name, open := range servers() {
		s := open()
		all[name] = drive(newOurs(0), s, latency, lasting(s))
	}
	return all
})

// These are the figures in Adaptive's documentation.
func TestAnUnannouncedLimitIsFoundWithFewRefusals(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(servers())) {
		s, f := servers()[name](), runs()[name]
		from := learning
		if w, ok := s.(*windowServer); ok {
			from = max(from, w.window) // the first window's quota is used up at once
		}
		refused, used := f.share(from, lasting(s), s.perSecond())
		t.Logf("%-28s %.1f %% refused, %3.0f %% used", name, 100*refused, 100*used)
		assert.LessOrEqual(t, refused, 0.03, name)
		assert.GreaterOrEqual(t, used, 0.8, name)
		if b, ok := s.(*bucketServer); ok && b.burst >= 10 {
			assert.GreaterOrEqual(t, used, 0.87, name)
		}
	}
}

func TestAnUnannouncedLimitIsFoundInSeconds(t *testing.T) {
	for name, open := range servers() {
		s := open()
		if b, ok := s.(*bucketServer); ok {
			found := runs()[name].settled(b.limit)
			t.Logf("%-28s %v", name, found)
			assert.GreaterOrEqual(t, found, time.Duration(0), name)
			assert.LessOrEqual(t, found, 20*time.Second, name)
		}
	}
}

// The reason for the curve: no straight line fits all servers, and CUBIC in seconds is too steep
// for slow servers and too flat for fast ones.
func TestNoOtherControllerFitsAllServers(t *testing.T) {
	controllers := map[string]func() controller{
		"1/s each second":  func() controller { return newOurs(1) },
		"10/s each second": func() controller { return newOurs(10) },
		"AWS SDK":          func() controller { return &cubic{} },
	}
	for name, open := range controllers {
		mostRefused, leastUsed := 0.0, 1.0
		for _, server := range slices.Sorted(maps.Keys(servers())) {
			if mostRefused > 0.2 && leastUsed < 0.7 && !testenv.Long() {
				break // the remaining servers cannot change the result
			}
			s := servers()[server]()
			refused, used := drive(open(), s, latency, allOf).share(learning, allOf, s.perSecond())
			mostRefused, leastUsed = max(mostRefused, refused), min(leastUsed, used)
		}
		t.Logf("%-18s up to %.0f %% refused, down to %.0f %% used", name, 100*mostRefused, 100*leastUsed)
		assert.Greater(t, mostRefused, 0.2, name)
		assert.Less(t, leastUsed, 0.7, name)
	}
}

// Compare the controllers for each algorithm of a server.
func TestTheCurveIsRefusedLeastWhateverServersCount(t *testing.T) {
	controllers := []struct {
		name string
		open func() controller
	}{
		{"the curve", func() controller { return newOurs(0) }},
		{"AIMD, 1/s each second", func() controller { return newOurs(1) }},
		{"AWS SDK's CUBIC", func() controller { return &cubic{} }},
	}
	worst := make([]float64, len(controllers))
	for _, policy := range []quota.Policy{quota.PerMinute(60), quota.PerSecond(10), quota.PerSecond(200)} {
		for policy.Algorithm = range quota.SlidingWindow + 1 { // a SlidingLog of 200 behaves as one of 10
			limit, err := policy.Compile()
			require.NoError(t, err)
			for i, p := range controllers {
				s := &quotaServer{limit: limit}
				f := drive(p.open(), s, latency, lasting(s))
				refused, used := f.share(max(learning, policy.Window), lasting(s), s.perSecond())
				worst[i] = max(worst[i], refused)
				found := "never"
				if at := f.settled(s.perSecond()); at >= 0 {
					found = "after " + at.String()
				}
				t.Logf("%3d in %-3v %-14v %-22s %5.1f %% refused, %3.0f %% used, found %s",
					policy.Quota, policy.Window, policy.Algorithm, p.name, 100*refused, 100*used, found)
			}
		}
	}
	assert.LessOrEqual(t, worst[0], 0.05)
	assert.Greater(t, worst[1], 0.05)
	assert.Greater(t, worst[2], 0.05)
}
