package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
)

// A FakeRedis does errands as Redis does, by package quota's functions.
type FakeRedis struct {
	RTT time.Duration

	mu      sync.Mutex // guards the rest
	buckets map[fakeID]quota.Bucket
	ids     map[string]bool
	calls   int
	lose    int
	down    error
}

type fakeID struct {
	key, name string
	dryRun    bool
}

// LeaseOf returns a Lease of what f keeps.
func LeaseOf(f *FakeRedis, most int64) *Lease {
	return &Lease{Store: new(Store), Max: most, run: f.run}
}

// Crash has l do nothing any more, but for what is under way.
func Crash(l *Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, h := range l.holdings {
		h.mu.Lock()
		h.ended = true
		h.timer.Stop()
		h.mu.Unlock()
	}
	l.holdings = nil
}

// HoldingsOf returns how many Keys l holds units for.
func HoldingsOf(l *Lease) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.holdings)
}

func (f *FakeRedis) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *FakeRedis) Down(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
}

// LoseAnswers has the next n calls done and not answered.
func (f *FakeRedis) LoseAnswers(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

// Remaining is what is left of l for key.
func (f *FakeRedis) Remaining(key string, l *quota.Limit) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixMicro()
	return l.Describe(l.Drain(f.buckets[fakeID{key, l.Name(), false}], now), now).Remaining
}

func (f *FakeRedis) run(_ context.Context, errands ...*errand) error {
	time.Sleep(f.RTT / 2)
	err := f.do(errands)
	time.Sleep(f.RTT / 2)
	return err
}

func (f *FakeRedis) do(errands []*errand) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return f.down
	}
	f.calls++
	if f.buckets == nil {
		f.buckets, f.ids = make(map[fakeID]quota.Bucket), make(map[string]bool)
	}
	for _, e := range errands {
		f.errand(e, time.Now().UnixMicro())
	}
	if f.lose > 0 {
		f.lose--
		return errors.New("lost")
	}
	return nil
}

func (f *FakeRedis) errand(e *errand, now int64) {
	e.now, e.allowed, e.visits = now, true, make([]visit, len(e.charges))
	for i := range e.charges {
		c, v := &e.charges[i], &e.visits[i]
		v.found = c.Limit.Drain(f.buckets[fakeID{c.Key, c.Limit.Name(), c.DryRun}], now)
		v.met, v.after, v.fits = v.found, v.found, true
		switch {
		case c.ID != "" && f.ids[c.ID]:
			v.repeat = true
		case e.verb.settles():
			v.after = c.Limit.Settle(v.met, c.N, c.At.UnixMicro(), now)
		case e.verb == toReserve:
			v.after, v.wait, v.fits = c.Limit.TryWithin(v.met, c.Units(), now, e.max)
		default:
			v.after, v.fits = c.Limit.Try(v.met, c.Units(), now)
		}
		e.allowed = e.allowed && (v.fits || c.DryRun)
	}
	for i := range e.charges {
		if c := &e.charges[i]; !e.peek && e.allowed && e.visits[i].fits {
			f.buckets[fakeID{c.Key, c.Limit.Name(), c.DryRun}] = e.visits[i].after
			f.ids[c.ID] = c.ID != ""
		}
	}
}
