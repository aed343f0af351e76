package quotatest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
)

// walks are random calls, which are compared with the model. A seed is one walk.
func walks() (all []test) {
	seeds, steps := 16, 150
	if raced || testing.Short() { // the race detector slows package math/big down a lot
		seeds, steps = 8, 70
	}
	for seed := range seeds {
		w := walk{Rand: rand.New(rand.NewPCG(uint64(seed), 0)), change: seed%4 > 0, back: seed%4 == 2}
		name := "random calls agree with the model"
		if w.change {
			name += " as policies change"
		}
		if w.back {
			name += " and the clock is set back"
		}
		name += fmt.Sprint(", seed ", seed)
		all = append(all, test{name: name, back: w.back, run: func(r *run) { w.follow(r, steps) }})
	}
	return all
}

// A walk does the same random things to a Store and to the model.
type walk struct {
	*run
	*rand.Rand
	model    *model
	back     bool // the clock is set back, too
	change   bool // several Limits have one Name
	location *time.Location
	limits   []*quota.Limit

	latest  map[bool][]quota.Charge // that were taken and settled
	waits   []time.Duration         // of the last answer
	times   []time.Time             // of charges
	history []string                // the latest calls
}

// follow makes random calls until the Store has another answer than the model.
func (w walk) follow(r *run, steps int) {
	w.run, w.model, w.latest, w.waits = r, newModel(), make(map[bool][]quota.Charge), []time.Duration{s}
	w.location = time.FixedZone("", w.IntN(28*4+1)*15*60-14*60*60)
	for len(w.limits) < 8 {
		p := w.policy()
		if l, err := p.Compile(); err == nil { // some numbers cannot be counted exactly
			w.limits = append(w.limits, l)
		}
	}
	for step := range steps {
		at := w.now()
		call, got, want := w.step()
		w.history = append(w.history[max(0, len(w.history)-9):],
			fmt.Sprintf("%v %s: %+v", at.UTC().Format("2006-01-02T15:04:05.000000"), call, got))
		if !reflect.DeepEqual(got, want) {
			w.t.Fatalf("step %d, after\n%s\nthe model says %+v", step, strings.Join(w.history, "\n"), want)
		}
		w.times = append(w.times, w.now())
		w.move(w.away())
	}
}

// upTo returns a number from 0 to most, of any magnitude.
func (w *walk) upTo(most int64) int64 { return w.Int64N(1 + min(most, 1<<w.IntN(62))) }

// policy returns a random policy with one of few Names.
func (w *walk) policy() quota.Policy {
	windows := []time.Duration{time.Second, m, h, 24 * h, 7 * 24 * h, time.Duration(1+w.upTo(1<<42)) * µs}
	p := quota.Policy{
		Name:      []string{"a", "b", "c"}[w.IntN(3)],
		Quota:     1 + w.upTo([]int64{9, 999, 99_999, 1 << 40}[w.IntN(4)]),
		Window:    windows[w.IntN(len(windows))],
		Algorithm: quota.Algorithm(w.IntN(5)),
	}
	switch p.Algorithm {
	case quota.TokenBucket, quota.LeakyBucket:
		if w.IntN(3) == 0 { // with a coarse Tick
			p.Quota, p.Window = 1_000_003+w.Int64N(99), 24*h
		} else {
			p.Window += time.Duration(w.upTo(999))
			p.Burst = w.upTo(2 * p.Quota)
		}
		higher, lower := w.upTo(1<<56), w.upTo(1<<56)
		p.MaxDebt = time.Duration(max(0, higher-lower)) // half of them have the usual one
	case quota.FixedWindow:
		if w.IntN(2) == 0 {
			p.Window, p.Calendar, p.Location = 0, quota.Calendar(1+w.IntN(3)), w.location
			if w.back { // another Limit cannot know which of the Calendar's windows was before
				p.Name = p.Calendar.String()
			}
		}
	case quota.SlidingLog:
		p.Quota = min(p.Quota, 1000)
	}
	if !w.change {
		p.Name = fmt.Sprint("limit ", len(w.limits))
	}
	return p
}

// charges returns one to four charges, often several of one count, or the latest ones again.
func (w *walk) charges(settling bool) (all []quota.Charge) {
	if w.IntN(6) == 0 && w.latest[settling] != nil {
		return w.latest[settling]
	}
	for range 1 + w.IntN(4) {
		l := w.limits[w.IntN(len(w.limits))]
		c := quota.Charge{Key: []string{"k", "k", "l"}[w.IntN(3)], Limit: l, DryRun: w.IntN(6) == 0}
		if w.IntN(5) == 0 {
			c.ID = []string{"x", "y"}[w.IntN(2)]
		}
		switch w.IntN(12) {
		case 0, 1, 2, 3:
			c.N = w.Int64N(3)
		case 4:
			c.N = atOnce(l) + w.Int64N(2)
		case 5:
			c.N = w.upTo(1<<63 - 2)
		default:
			c.N = w.upTo(atOnce(l))
		}
		if settling {
			if w.IntN(3) > 0 {
				c.N = -c.N
			}
			if len(w.times) > 0 && w.IntN(4) > 0 {
				c.At = w.times[max(0, len(w.times)-1-w.IntN(6))]
			}
		}
		if quota.CheckSettle(append(all, c)) == nil { // not two Shapes of one Name
			all = append(all, c)
		}
	}
	w.latest[settling] = all
	return all
}

// away returns how far the clock moves.
func (w *walk) away() time.Duration {
	l, now := w.limits[w.IntN(len(w.limits))], w.now().UnixMicro()
	near := time.Duration(w.IntN(3)-1) * µs
	switch w.IntN(8) {
	case 0, 1: // to the moment at which the answer says that something changes
		return min(max(0, w.waits[w.IntN(len(w.waits))]+near), 100*24*h)
	case 2: // to the end of a window, or of an ID that is used now
		end := now + micros(l.Policy().Window)
		if windowed(l) && w.IntN(2) == 0 {
			end = endOf(l, now)
		}
		return max(0, time.Duration(end-now)*µs+near)
	case 3, 4:
		return time.Duration(w.upTo(1<<43)) * µs
	case 5:
		back := w.upTo(1 << 40)
		if w.back && !w.model.mayForget(now, now-back) {
			return -time.Duration(back) * µs
		}
	}
	return 0
}

// step makes one random call, and returns the answers of the Store and the model.
func (w *walk) step() (call string, got, want any) {
	now := w.now().UnixMicro()
	switch kind := w.IntN(12); {
	case kind <= 1 && w.settler != nil:
		cs := w.charges(true)
		return w.text("Settle", cs), w.settle(cs...), w.model.settle(cs, now)
	case kind <= 3 && w.reserver != nil:
		cs, longest := w.charges(false), max(w.waits[0], time.Duration(w.upTo(1<<43))*µs)-time.Duration(w.IntN(3))
		wait, ok := w.reserve(longest, cs...)
		w.waits = []time.Duration{min(wait, 100*24*h)}
		w.times = append(w.times, w.now().Add(w.waits[0]))
		call = w.text(fmt.Sprint("Reserve within ", longest), cs)
		return call, fmt.Sprint(wait, ok), fmt.Sprint(w.model.reserve(cs, longest, now))
	case kind == 4 && w.peeker != nil:
		cs := w.charges(false)
		return w.text("Peek", cs), w.peek(cs...), w.model.take(cs, false, now)
	case kind == 5 && w.inspector != nil:
		return w.look(now)
	}
	cs := w.charges(false)
	ds := w.take(cs...)
	w.waits = nil
	for _, d := range ds {
		w.waits = append(w.waits, d.RetryAfter, d.NextAfter, d.ResetAfter)
	}
	return w.text("Take", cs), ds, w.model.take(cs, true, now)
}

// look inspects a key, and sometimes resets it.
func (w *walk) look(now int64) (call string, got, want any) {
	key := []string{"k", "l"}[w.IntN(2)]
	states := w.inspect(key)
	sorted := slices.Clone(states)
	if quota.SortStates(sorted); !reflect.DeepEqual(sorted, states) {
		w.t.Errorf("not sorted: %+v", states)
	}
	for _, s := range states { // of a Calendar they may be kept: they end with the window
		counts := w.model.counts[place{key, s.Name, s.DryRun, ""}]
		if _, ok := counts[s.Shape]; !ok && len(counts) > 0 && !strings.HasPrefix(s.Shape, "c") {
			w.t.Errorf("%+v should be forgotten together with those beside it", s)
		}
	}
	var store, model []quota.Decision
	for _, l := range w.limits {
		for _, dry := range []bool{false, true} {
			var b quota.Bucket
			for _, s := range states {
				if s.Name == l.Name() && s.DryRun == dry && s.Shape == l.Shape() {
					b = s.Bucket
				}
			}
			c, ok := w.model.counts[place{key, l.Name(), dry, ""}][l.Shape()]
			if !ok {
				c = nothing(l)
			}
			store = append(store, l.Describe(l.Drain(b, now), now))
			model = append(model, describe(c.as(l, now), now))
		}
	}
	if w.IntN(4) == 0 {
		w.reset(key)
		w.model.reset(key)
		key += ", and reset it"
	}
	return "Inspect " + key, store, model
}

// text describes a call.
func (w *walk) text(verb string, cs []quota.Charge) string {
	for _, c := range cs {
		verb += fmt.Sprintf(" {%d of %s for %s, %s", c.N, c.Limit.Name(), c.Key, c.Limit.Shape())
		if verb += map[bool]string{true: ", dry"}[c.DryRun]; c.ID != "" {
			verb += ", ID " + c.ID
		}
		if !c.At.IsZero() {
			verb += fmt.Sprintf(", made %v ago", w.now().Sub(c.At))
		}
		verb += "}"
	}
	return verb
}
