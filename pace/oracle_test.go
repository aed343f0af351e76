package pace_test

import (
	"context"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// An arrival is a request in a random timeline. No two events fall on the same moment,
// because their order would be undefined: requests come on whole milliseconds, leave
// 0.417 ms later, and are given back at odd nanoseconds.
type arrival struct {
	at       time.Duration
	most     time.Duration // the bound of its wait
	cancel   time.Duration // after its arrival; 0: never
	giveBack time.Duration // after its admission; 0: never
}

// An outcome is when a request was admitted, or that it was refused.
type outcome = time.Duration

const (
	refused   outcome = -1 * time.Hour
	cancelled outcome = -2 * time.Hour
	wrong     outcome = -3 * time.Hour
)

func randomArrivals(r *rand.Rand, n int) []arrival {
	arrivals := make([]arrival, n)
	at := 0
	for i := range arrivals {
		at += 1 + r.IntN(300)/(1+r.IntN(10))
		a := arrival{at: time.Duration(at) * ms, most: time.Duration(r.IntN(3000))*ms + 417*time.Microsecond}
		if r.IntN(3) == 0 {
			a.cancel = time.Duration(r.IntN(1000))*ms + 417*time.Microsecond
		}
		if r.IntN(4) == 0 {
			a.giveBack = time.Duration(1 + r.IntN(200_000_000))
		}
		arrivals[i] = a
	}
	return arrivals
}

// observed runs arrivals through a Keyed and returns their outcomes.
func observed(t *testing.T, limit rate.Limit, burst int, arrivals []arrival) []outcome {
	outcomes := make([]outcome, len(arrivals))
	synctest.Test(t, func(t *testing.T) {
		tl := newTimeline(t, pace.PerHost(limit, burst))
		for i, a := range arrivals {
			tl.wg.Go(func() {
				tl.at(a.at)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if a.cancel > 0 {
					time.AfterFunc(a.cancel, cancel)
				}
				req := request(ctx, "http://example.com/")
				switch err := tl.pacer.WaitAtMost(req, a.most); {
				case err == nil:
					outcomes[i] = time.Since(tl.start)
				case ctx.Err() != nil:
					outcomes[i] = cancelled
				case time.Since(tl.start) == a.at:
					outcomes[i] = refused
				default:
					outcomes[i] = wrong // refused too late
				}
				if a.giveBack > 0 && outcomes[i] >= 0 {
					time.Sleep(a.giveBack)
					tl.pacer.Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
				}
			})
		}
		tl.wg.Wait()
	})
	return outcomes
}

// A model is a first-in-first-out token bucket in exact arithmetic, without limiters,
// timers or goroutines: it steps from event to event.
type model struct {
	limit    *big.Rat // tokens per nanosecond
	burst    *big.Rat
	tokens   *big.Rat // as of at
	at       *big.Rat // nanoseconds
	waiting  []int
	events   []event
	arrivals []arrival
	outcomes []outcome
}

type event struct {
	at   time.Duration
	kind string
	who  int
}

func modelled(limit, burst int64, arrivals []arrival) []outcome {
	m := &model{
		limit:    big.NewRat(limit, 1e9),
		burst:    big.NewRat(burst, 1),
		tokens:   big.NewRat(burst, 1),
		at:       new(big.Rat),
		outcomes: make([]outcome, len(arrivals)),
		arrivals: arrivals,
	}
	for i, a := range arrivals {
		m.events = append(m.events, event{a.at, "arrives", i})
		if a.cancel > 0 {
			m.events = append(m.events, event{a.at + a.cancel, "leaves", i})
		}
	}
	for len(m.events) > 0 || len(m.waiting) > 0 {
		m.step()
	}
	return m.outcomes
}

// step makes the next thing happen: an admission or an event.
func (m *model) step() {
	slices.SortFunc(m.events, func(a, b event) int { return int(a.at - b.at) })
	if len(m.waiting) > 0 {
		due := m.when(1)
		if len(m.events) == 0 || due.Cmp(rat(m.events[0].at)) <= 0 {
			m.moveTo(due)
			m.tokens.Sub(m.tokens, big.NewRat(1, 1))
			m.letFirstGo()
			return
		}
	}
	e := m.events[0]
	m.events = m.events[1:]
	m.moveTo(rat(e.at))
	switch e.kind {
	case "arrives":
		m.waiting = append(m.waiting, e.who)
		latest := rat(e.at + m.arrivals[e.who].most)
		if due := m.when(len(m.waiting)); due.Cmp(latest) > 0 {
			m.waiting = m.waiting[:len(m.waiting)-1]
			m.outcomes[e.who] = refused
		}
	case "leaves":
		if i := slices.Index(m.waiting, e.who); i >= 0 {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			m.outcomes[e.who] = cancelled
		}
	case "gives back":
		m.tokens = least(m.burst, new(big.Rat).Add(m.tokens, big.NewRat(1, 1)))
	}
}

func (m *model) letFirstGo() {
	who := m.waiting[0]
	m.waiting = m.waiting[1:]
	ns, _ := m.at.Float64()
	at := time.Duration(ns)
	m.outcomes[who] = at
	if d := m.arrivals[who].giveBack; d > 0 {
		m.events = append(m.events, event{at + d, "gives back", who})
	}
}

// when returns the time at which n tokens are available.
func (m *model) when(n int) *big.Rat {
	missing := new(big.Rat).Sub(big.NewRat(int64(n), 1), m.tokens)
	if missing.Sign() <= 0 {
		return new(big.Rat).Set(m.at)
	}
	return missing.Add(missing.Quo(missing, m.limit), m.at)
}

func (m *model) moveTo(at *big.Rat) {
	gained := new(big.Rat).Sub(at, m.at)
	gained.Mul(gained, m.limit)
	m.tokens = least(m.burst, gained.Add(gained, m.tokens))
	m.at = new(big.Rat).Set(at)
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return new(big.Rat).Set(a)
	}
	return b
}

func rat(d time.Duration) *big.Rat { return new(big.Rat).SetInt64(int64(d)) }

func FuzzKeyedAgainstAnExactBucket(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, int64(1+seed%13), int64(1+seed%4))
	}
	f.Fuzz(func(t *testing.T, seed uint64, limit, burst int64) {
		if limit < 1 || limit > 50 || burst < 1 || burst > 20 {
			t.Skip()
		}
		arrivals := randomArrivals(rand.New(rand.NewPCG(seed, 1)), 60)
		want := modelled(limit, burst, arrivals)
		got := observed(t, rate.Limit(limit), int(burst), arrivals)
		for i := range arrivals {
			assert.InDelta(t, want[i], got[i], 10, "request %d of seed %d: %+v", i, seed, arrivals[i])
		}
	})
}
