package quotatest

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A walk is a random timeline.
type walk struct {
	random *rand.Rand
	limits []*quota.Limit
	most   int64         // µs of one move
	back   time.Duration // the most by which the clock is set back, if at all

	keys  []string
	model *model
	times []time.Time   // of Decisions and reservations
	wait  time.Duration // of the last Decision or reservation
}

// charges returns one to three charges, often several of one bucket.
func (w *walk) charges() []quota.Charge {
	var cs []quota.Charge
	for range 1 + w.random.IntN(3) {
		limit := w.limits[w.random.IntN(len(w.limits))]
		n := w.random.Int64N(3)
		if w.random.IntN(2) == 0 {
			n = w.random.Int64N(atOnce(limit) + 2)
		}
		c := quota.Charge{Key: w.keys[w.random.IntN(len(w.keys))], Limit: limit, N: n, DryRun: w.random.IntN(8) == 0}
		if w.random.IntN(8) == 0 {
			c.ID = string("xyz"[w.random.IntN(3)])
		}
		if all := append(cs, c); quota.CheckTake(all) == nil { // not two Shapes of one Name
			cs = all
		}
	}
	return cs
}

// correct turns cs into a settlement, mostly of earlier charges.
func (w *walk) correct(cs []quota.Charge) {
	for i := range cs {
		cs[i].N = w.random.Int64N(9) - 6
		if w.random.IntN(3) == 0 {
			cs[i].N = -w.random.Int64N(atOnce(cs[i].Limit) + 1)
		}
		if len(w.times) > 0 && w.random.IntN(4) > 0 {
			last := len(w.times) - 1
			cs[i].At = w.times[last-w.random.IntN(min(8, last+1))]
		}
	}
}

// move returns how far the clock moves on.
func (w *walk) move() time.Duration {
	longest := time.Duration(w.most) * µs
	switch w.random.IntN(6) {
	case 0:
		return min(w.wait, longest)
	case 1:
		return max(0, min(w.wait, longest)-µs)
	case 2, 3:
		return min(longest, time.Duration(w.random.Int64N(1<<(2+w.random.IntN(40))))*µs)
	case 4:
		return -time.Duration(w.random.Int64N(int64(w.back/µs)+1)) * µs
	}
	return 0
}

// steps returns the length of a walk. It is shorter with the race detector, which slows
// package math/big down a lot.
func steps() int {
	if raced || testing.Short() {
		return 250
	}
	return 800
}

// compareRandomly does the same random things to the store and to the model, with unused
// keys.
func (r *run) compareRandomly(name string, w walk) {
	r.t.Helper()
	w.keys, w.model, w.wait = []string{name + " a", name + " b"}, newModel(), s
	for step := range steps() {
		r.compare(&w, step)
		w.times = append(w.times, r.now())
		r.move(w.move())
	}
}

// compare does one random thing.
func (r *run) compare(w *walk, step int) {
	r.t.Helper()
	_, peeks := r.store.(quota.Peeker)
	_, reserves := r.store.(quota.Reserver)
	_, settles := r.store.(quota.Settler)
	_, inspects := r.store.(quota.Inspector)
	cs, now := w.charges(), r.now().UnixMicro()
	switch kind := w.random.IntN(12); {
	case kind <= 1 && settles:
		w.correct(cs)
		got, want := r.settle(cs...), w.model.settle(cs, now)
		if !reflect.DeepEqual(got, want) {
			r.t.Fatalf("step %d: Settle %v: %v; the model %v", step, cs, got, want)
		}
	case kind <= 3 && reserves:
		got, ok := r.reserve(w.wait, cs...)
		want, wantOK := w.model.reserve(cs, w.wait, now)
		if got != want || ok != wantOK {
			r.t.Fatalf("step %d: Reserve %v: %v, %v; the model %v, %v", step, cs, got, ok, want, wantOK)
		}
		if ok {
			w.times = append(w.times, r.now().Add(got))
		}
		w.wait = min(got, 48*h)
	case kind == 4 && peeks:
		r.agree(step, cs, r.peek(cs...), w.model.take(cs, false, now))
	case kind == 5 && inspects && w.back == 0:
		r.agreeOnStates(w, step)
	default:
		ds := r.take(cs...)
		r.agree(step, cs, ds, w.model.take(cs, true, now))
		w.wait = max(ds[0].RetryAfter, ds[len(ds)-1].NextAfter)
	}
}

func (r *run) agree(step int, cs []quota.Charge, got, want []quota.Decision) {
	r.t.Helper()
	for i := range want {
		if !got[i].At.Equal(want[i].At) {
			r.t.Fatalf("step %d: At %v, want %v", step, got[i].At, want[i].At)
		}
		got[i].At = want[i].At
	}
	if !reflect.DeepEqual(got, want) {
		r.t.Fatalf("step %d: %d charges of %v\n  store %+v\n  model %+v", step, len(cs), cs, got, want)
	}
}

// agreeOnStates inspects a key, and sometimes resets it.
func (r *run) agreeOnStates(w *walk, step int) {
	r.t.Helper()
	key := w.keys[w.random.IntN(len(w.keys))]
	now := r.now().UnixMicro()
	states := make(map[accountID]map[string]quota.Bucket)
	for _, s := range r.inspect(key) {
		id := accountID{key, s.Name, s.DryRun}
		if states[id] == nil {
			states[id] = make(map[string]quota.Bucket)
		}
		states[id][s.Shape] = s.Bucket
	}
	for id, all := range w.model.accounts {
		for shape, a := range all {
			if id.key != key {
				continue
			}
			limit, want := a.by, quota.Decision{}
			describe(&want, as(a, limit, now), limit, now)
			got := limit.Describe(limit.Drain(states[id][shape], now), now)
			if got.Limit = 0; got != want {
				r.t.Fatalf("step %d: %s of %v\n  store %+v\n  model %+v", step, limit.Name(), states[id][shape], got, want)
			}
		}
	}
	if w.random.IntN(4) == 0 {
		r.reset(key)
		w.model.reset(key)
	}
}
