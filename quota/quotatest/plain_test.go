package quotatest_test

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/quota/quotatest"
)

// A plain Store is the simplest complete one: two maps, and the functions of quota.Limit.
// It forgets nothing.
type plain struct {
	now func() time.Time

	mu      sync.Mutex // guards all below
	buckets map[place]quota.Bucket
	ids     map[remembered]int64 // until when each is remembered
	spoilt  int64

	fault faults
}

type place struct {
	key, name string
	dryRun    bool
}

type remembered struct {
	place
	id string
}

// faults are the faults of a plain Store; each is a place in its code.
type faults struct {
	decision  func(d *quota.Decision)             // each, before it is returned
	bucket    func(b *quota.Bucket)               // each, before it is stored
	at        func(at time.Time) time.Time        // of Reserve
	until     func(until int64) int64             // of an ID
	id        func(c *quota.Charge) string        // by which an ID is remembered
	place     func(p place) place                 // of a bucket
	settledAt func(at int64) int64                // of a settlement
	states    func(s []quota.State) []quota.State // of Inspect

	deniedIDs, settledIDs, partly, resetIDs, writesDenials, forever, racy, uncounted bool
}

func newPlain(now func() time.Time) *plain {
	return &plain{now: now, buckets: make(map[place]quota.Bucket), ids: make(map[remembered]int64)}
}

// A step is the outcome of a charge.
type step struct {
	place
	found, met, after quota.Bucket
	wait              time.Duration
	fits, repeated    bool
}

// decide returns the outcome of charges; try is what Take or Reserve does.
func (s *plain) decide(
	charges []quota.Charge, now int64,
	try func(l *quota.Limit, b quota.Bucket, n int64) (quota.Bucket, time.Duration, bool),
) (steps []step, allowed bool) {
	allowed = true
	for i := range charges {
		c := &charges[i]
		v := step{place: s.place(c)}
		v.found = c.Limit.Drain(s.read(v.place, now), now)
		v.met = v.found
		for j, before := range steps {
			if before.place == v.place && before.fits {
				v.repeated = v.repeated || c.ID != "" && c.ID == charges[j].ID
				if !before.repeated {
					v.met = c.Limit.Drain(before.after, now)
				}
			}
		}
		v.repeated = v.repeated || s.knows(c, now)
		if v.after, v.fits = v.met, v.repeated; !v.repeated {
			v.after, v.wait, v.fits = try(c.Limit, v.met, c.Units())
		}
		allowed = allowed && (v.fits || c.DryRun)
		steps = append(steps, v)
	}
	return steps, allowed
}

// read looks a bucket up, and counts invalid ones.
func (s *plain) read(p place, now int64) quota.Bucket {
	b := s.buckets[p]
	if s.fault.uncounted {
		return b
	}
	if b.Unit < 0 || b.Time > now+24*time.Hour.Microseconds() {
		s.spoilt++
	}
	return b
}

func (s *plain) place(c *quota.Charge) place {
	p := place{c.Key, c.Limit.Name(), c.DryRun}
	if s.fault.place != nil {
		return s.fault.place(p)
	}
	return p
}

func (s *plain) remembered(c *quota.Charge) remembered {
	if s.fault.id != nil {
		return remembered{s.place(c), s.fault.id(c)}
	}
	return remembered{s.place(c), c.ID}
}

func (s *plain) knows(c *quota.Charge, now int64) bool {
	return c.ID != "" && now < s.ids[s.remembered(c)]
}

// keep makes a charge.
func (s *plain) keep(c *quota.Charge, v *step, now int64) {
	if v.repeated {
		return
	}
	if s.fault.bucket != nil {
		s.fault.bucket(&v.after)
	}
	s.buckets[v.place] = v.after
	s.remember(c, now)
}

func (s *plain) remember(c *quota.Charge, now int64) {
	if c.ID == "" {
		return
	}
	until := c.Limit.Remembers(now)
	if s.fault.until != nil {
		until = s.fault.until(until)
	}
	s.ids[s.remembered(c)] = until
}

func (s *plain) Take(_ context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s.take(dst, charges, true)
}

func (s *plain) Peek(_ context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	return s.take(dst, charges, false)
}

func (s *plain) take(dst []quota.Decision, charges []quota.Charge, taking bool) ([]quota.Decision, error) {
	if err := quota.CheckTake(charges); err != nil {
		return dst, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.now()
	now := at.UnixMicro()
	steps, allowed := s.decide(charges, now, func(
		l *quota.Limit, b quota.Bucket, n int64,
	) (quota.Bucket, time.Duration, bool) {
		after, fits := l.Try(b, n, now)
		return after, 0, fits
	})
	if s.fault.racy {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	for i := range steps {
		v, c := &steps[i], &charges[i]
		left := v.found
		if taking && v.fits && (allowed || s.fault.partly) {
			left = v.after
			s.keep(c, v, now)
		} else if taking && s.fault.deniedIDs {
			s.remember(c, now)
		} else if taking && s.fault.writesDenials {
			s.buckets[v.place] = v.found
		}
		d := quota.Judge(charges, i, v.met, left, now)
		if v.repeated {
			d = c.Limit.Describe(left, now)
			d.Allowed = true
		}
		d.At = at
		if s.fault.decision != nil {
			s.fault.decision(&d)
		}
		dst = append(dst, d)
	}
	return dst, nil
}

func (s *plain) Reserve(
	_ context.Context, most time.Duration, charges ...quota.Charge,
) (wait time.Duration, at time.Time, ok bool, err error) {
	if err := quota.CheckTake(charges); err != nil {
		return 0, time.Time{}, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at = s.now()
	now := at.UnixMicro()
	steps, ok := s.decide(charges, now, func(
		l *quota.Limit, b quota.Bucket, n int64,
	) (quota.Bucket, time.Duration, bool) {
		return l.TryWithin(b, n, now, most)
	})
	for i := range steps {
		v, c := &steps[i], &charges[i]
		if !c.DryRun {
			wait = max(wait, v.wait)
		}
		if ok && v.fits {
			s.keep(c, v, now)
		}
	}
	if ok {
		at = at.Add(wait)
	}
	if s.fault.at != nil {
		at = s.fault.at(at)
	}
	return wait, at, ok, nil
}

func (s *plain) Settle(_ context.Context, charges ...quota.Charge) error {
	if err := quota.CheckSettle(charges); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().UnixMicro()
	for i := range charges {
		c := &charges[i]
		if c.N == 0 || s.knows(c, now) && !s.fault.settledIDs {
			continue
		}
		at := int64(0)
		if !c.At.IsZero() {
			at = c.At.UnixMicro()
		}
		if s.fault.settledAt != nil {
			at = s.fault.settledAt(at)
		}
		s.remember(c, now)
		met := c.Limit.Drain(s.buckets[s.place(c)], now)
		if after := c.Limit.Settle(met, c.N, at, now); after != met {
			s.buckets[s.place(c)] = after
		}
	}
	return nil
}

func (s *plain) Inspect(_ context.Context, key string) (states []quota.State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, b := range s.buckets {
		if p.key == key {
			states = append(states, quota.State{Name: p.name, DryRun: p.dryRun, Bucket: b})
		}
	}
	slices.SortFunc(states, func(a, b quota.State) int {
		if a.Name == b.Name && a.DryRun != b.DryRun && b.DryRun {
			return -1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	if s.fault.states != nil {
		states = s.fault.states(states)
	}
	return states, nil
}

func (s *plain) Reset(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.buckets {
		if p.key == key {
			delete(s.buckets, p)
		}
	}
	for r := range s.ids {
		if r.key == key && !s.fault.resetIDs {
			delete(s.ids, r)
		}
	}
	return nil
}

// kept returns each bucket and how long it must be kept.
func (s *plain) kept() map[string]quotatest.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make(map[string]quotatest.Item)
	for p, b := range s.buckets {
		ttl := 1000 * time.Hour
		if s.fault.forever {
			ttl = -1
		}
		items[fmt.Sprintf("%q %q %v", p.key, p.name, p.dryRun)] = quotatest.Item{Value: fmt.Sprint(b), TTL: ttl}
	}
	return items
}

// suite returns a Suite for plain Stores with a fault, which wrong sets.
func suite(wrong func(f *faults)) quotatest.Suite {
	return quotatest.Suite{
		Open: func(_ *testing.T, now func() time.Time) quota.Store {
			s := newPlain(now)
			wrong(&s.fault)
			return s
		},
		Kept: func(_ *testing.T, s quota.Store) map[string]quotatest.Item { return s.(*plain).kept() },
		Spoil: map[string]func(*testing.T, quota.Store, quota.Charge){
			"a negative unit": func(_ *testing.T, s quota.Store, c quota.Charge) {
				s.(*plain).spoil(c, func(b *quota.Bucket) { b.Unit = -1 })
			},
			"a time to come": func(_ *testing.T, s quota.Store, c quota.Charge) {
				s.(*plain).spoil(c, func(b *quota.Bucket) { b.Time += 1 << 50 })
			},
		},
		Corrupt: func(s quota.Store) int64 { return s.(*plain).spoilt },
	}
}

func (s *plain) spoil(c quota.Charge, wrong func(b *quota.Bucket)) {
	b := s.buckets[s.place(&c)]
	wrong(&b)
	s.buckets[s.place(&c)] = b
}
