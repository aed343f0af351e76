package redisstore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// FuzzLuaAgreesWithGo runs random ops, several in one script, at random times. The limits have every
// Algorithm and share their names, and some stored counts are invalid. Package quota computes the
// expected results.
func FuzzLuaAgreesWithGo(f *testing.F) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(f).Addr})
	f.Cleanup(func() { client.Close() })
	seeds := uint64(20)
	if testenv.Long() {
		seeds = 100
	}
	for seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		newAgreement(t, client, seed).run()
	})
}

// An agreement is a Store with the state that package quota computes for it.
type agreement struct {
	*rand.Rand
	t      *testing.T
	client *redis.Client
	store  *Store
	now    int64
	limits []*quota.Limit

	fields map[place]quota.Bucket
	ids    map[place]int64 // when they are forgotten
	before *op             // an earlier op, to repeat
}

// A place is a field of a Key's hash, or an ID.
type place struct {
	key, name string
	dryRun    bool
	id        string
}

func newAgreement(t *testing.T, client *redis.Client, seed uint64) *agreement {
	require.NoError(t, client.FlushAll(context.Background()).Err())
	a := &agreement{
		Rand: rand.New(rand.NewPCG(seed, 1)), t: t, client: client, store: &Store{Client: client, Timeout: 10 * time.Second},
		fields: make(map[place]quota.Bucket), ids: make(map[place]int64), before: new(op),
	}
	SetClock(a.store)
	a.now = within(a.Int64N(1 << 52))
	for len(a.limits) < 6 {
		if l, err := a.policy().Compile(); err == nil {
			a.limits = append(a.limits, l)
		}
	}
	return a
}

func (a *agreement) run() {
	for range 25 {
		if a.IntN(8) == 0 {
			a.tamper()
		}
		ops := make([]*op, 1+a.IntN(4))
		for i := range ops {
			ops[i] = a.op()
		}
		a.perform(ops)
		for _, o := range ops {
			a.check(o)
		}
		a.before = ops[a.IntN(len(ops))]
		a.compare()
		a.now = within(a.now + a.step())
	}
}

// within returns now, limited to times that can be stored with the windows around them: from 1973 to
// 2109.
func within(now int64) int64 {
	return min(max(100_000_000_000_000, now), 4_400_000_000_000_000)
}

// upTo returns a random number up to most, often a small one.
func (a *agreement) upTo(most int64) int64 {
	return a.Int64N(1 + min(most, 1<<a.IntN(54)))
}

// policy returns a random policy, sometimes an invalid one.
func (a *agreement) policy() quota.Policy {
	p := quota.Policy{
		Name:      []string{"a", "b", "c"}[a.IntN(3)],
		Algorithm: quota.Algorithm(a.IntN(5)),
		Quota:     1 + a.upTo(1<<40),
		Window:    time.Duration(1+a.upTo(1<<42)) * time.Microsecond,
	}
	switch p.Algorithm {
	case quota.TokenBucket, quota.LeakyBucket:
		p.Window += time.Duration(a.IntN(1000))
		p.Burst = a.upTo(1 << 30)
	case quota.SlidingWindow:
		p.Window *= []time.Duration{1, 10, 1e6}[a.IntN(3)]
	case quota.SlidingLog:
		p.Quota = 1 + a.Int64N(20)
	case quota.FixedWindow:
		if a.IntN(2) == 0 {
			p.Window, p.Calendar = 0, quota.Day+quota.Calendar(a.IntN(3))
			p.Location = a.location()
		}
	}
	return p
}

func (a *agreement) location() *time.Location {
	names := []string{
		"UTC", "America/New_York", "Europe/Berlin", "Africa/Cairo", "America/Sao_Paulo", "Pacific/Apia",
		"Asia/Kathmandu",
	}
	location, err := time.LoadLocation(names[a.IntN(len(names))])
	require.NoError(a.t, err)
	return location
}

// step returns how far the clock moves, forward or back.
func (a *agreement) step() int64 {
	switch a.IntN(6) {
	case 0:
		return 0
	case 1:
		return -a.upTo(1 << 38)
	case 2:
		l := a.limits[a.IntN(len(a.limits))]
		return l.Remembers(a.now) - a.now + a.Int64N(3) - 1
	}
	return a.upTo(1 << 42)
}

// op returns a random op.
func (a *agreement) op() *op {
	if back := a.before.revocation(); !a.before.verb.settles() && len(back.charges) > 0 && a.IntN(3) == 0 {
		return back
	}
	verbs := []verb{take, take, take, peek, reserve, settle, revoke}
	o := &op{verb: verbs[a.IntN(7)], within: time.Duration(a.upTo(1<<53)) - 5}
	for range 1 + a.IntN(3) {
		o.charges = append(o.charges, a.charge(o.verb))
	}
	return o
}

func (a *agreement) charge(verb verb) quota.Charge {
	l := a.limits[a.IntN(len(a.limits))]
	c := quota.Charge{
		Key: []string{"k", "l"}[a.IntN(2)], Limit: l, N: a.upTo(2 * min(l.AtOnce(), 1<<52)), DryRun: a.IntN(5) == 0,
	}
	switch a.IntN(30) {
	case 0:
		c.N = 1<<63 - 1
	case 1, 2, 3:
		c.N = l.AtOnce()
	}
	if a.IntN(4) == 0 {
		c.ID = []string{"x", "y", "z"}[a.IntN(3)]
	}
	if verb.settles() {
		if a.IntN(2) == 0 {
			c.N = -c.N
		}
		if c.N == 0 {
			c.N = -1 << 63
		}
		if a.IntN(2) == 0 {
			c.At = time.UnixMicro(a.now + a.step())
		}
	}
	return c
}

// perform executes ops in one script, as a Store does.
func (a *agreement) perform(ops []*op) {
	keys, args := encodeOps(a.store.prefix(), ops, a.now)
	args = append(args, a.now/1_000_000, a.now%1_000_000)
	reply, err := a.client.Eval(context.Background(), a.store.script.source, keys, args...).Result()
	require.NoError(a.t, err)
	_, err = decodeReply(ops, reply)
	require.NoError(a.t, err)
}

// check compares o's answer with what package quota computes, and stores the new state.
func (a *agreement) check(o *op) {
	met, left := make(map[place]quota.Bucket), make(map[place]quota.Bucket)
	first, ids, allowed := make(map[place]quota.Bucket), make(map[place]int64), true
	for i, c := range o.charges {
		in, id := place{c.Key, c.Limit.Name(), c.DryRun, ""}, place{c.Key, c.Limit.Name(), c.DryRun, c.ID}
		if _, before := met[in]; !before || o.verb.settles() {
			met[in] = a.fields[in]
		}
		if o.verb == revoke {
			delete(a.ids, id)
		}
		repeats := c.ID != "" && o.verb != revoke && max(a.ids[id], ids[id]) > a.now
		before, touched := first[in]
		if !touched {
			before = a.fields[in]
			first[in] = before
		}
		want := found{
			bucket: c.Limit.Drain(met[in], a.now), before: c.Limit.Drain(before, a.now), fits: true, repeated: repeats,
		}
		after := want.bucket
		if !repeats {
			after, want.fits = a.after(o, c, want.bucket)
		}
		require.Equal(a.t, want, o.found[i], "charge %d of %+v", i, o)
		if !want.fits || repeats {
			allowed = allowed && (want.fits || c.DryRun)
			continue
		}
		met[in], left[in] = after, after
		if o.verb.settles() && after != want.bucket {
			a.fields[in] = after
		}
		if c.ID != "" {
			ids[id] = c.Limit.Remembers(a.now)
		}
		if o.verb == settle {
			a.remember(ids)
		}
	}
	require.Equal(a.t, allowed, o.allowed)
	if allowed && o.verb != peek && !o.verb.settles() {
		for in, b := range left {
			a.fields[in] = b
		}
		a.remember(ids)
	}
}

// after returns the bucket after a charge, and whether the charge fits.
func (a *agreement) after(o *op, c quota.Charge, b quota.Bucket) (after quota.Bucket, fits bool) {
	switch {
	case o.verb == reserve:
		after, _, fits = c.Limit.TryWithin(b, c.Units(), a.now, o.within)
		return after, fits
	case o.verb.settles():
		return c.Limit.Settle(b, c.N, chargedAt(&c), a.now), true
	}
	return c.Limit.Try(b, c.Units(), a.now)
}

// remember adds ids. It drops those that have expired: they must not come back if the clock steps back.
func (a *agreement) remember(ids map[place]int64) {
	for id := range ids {
		maps.DeleteFunc(a.ids, func(old place, until int64) bool { return old.key == id.key && until <= a.now })
	}
	maps.Copy(a.ids, ids)
}

// tamper writes invalid values.
func (a *agreement) tamper() {
	value := fmt.Sprint(a.now+a.step(), " ", a.upTo(1<<54), " ", a.upTo(1<<54))
	switch a.IntN(6) {
	case 0:
		value += fmt.Sprint(" ", a.upTo(1<<54))
	case 1:
		value = fmt.Sprint(a.now, " ", a.IntN(1000), " 1 0 ", string(make([]byte, a.IntN(20))))
	case 2:
		value = fmt.Sprint(a.now, " 3 1 0 ", string([]byte{byte(a.now >> 48), byte(a.now >> 40), byte(a.now >> 32),
			byte(a.now >> 24), byte(a.now >> 16), byte(a.now >> 8), byte(a.now), 0, 3}))
	case 3:
		value = value[:a.IntN(len(value))] + []string{"", " ", "+1", "-", "0", "x", " 1 2 3 4 5"}[a.IntN(7)]
	}
	key, name := []string{"k", "l"}[a.IntN(2)], []string{"a", "b", "c"}[a.IntN(3)]
	b, _ := decode(value)
	a.fields[place{key, name, false, ""}] = b
	require.NoError(a.t, a.client.HSet(context.Background(), a.store.prefix()+key, name, value).Err())
}

// compare compares the state in Redis with the expected one.
func (a *agreement) compare() {
	for _, key := range []string{"k", "l"} {
		states, err := a.store.Inspect(context.Background(), key)
		require.NoError(a.t, err)
		for in, want := range a.fields {
			if in.key != key || want == (quota.Bucket{}) {
				continue
			}
			at := slices.IndexFunc(states, func(s quota.State) bool { return s.Name == in.name && s.DryRun == in.dryRun })
			require.GreaterOrEqual(a.t, at, 0, fmt.Sprint(in, want, a.now, states))
			require.Equal(a.t, want, states[at].Bucket, fmt.Sprint(in))
			states = slices.Delete(states, at, at+1)
		}
		require.Empty(a.t, states)
	}
	for id, until := range a.ids {
		member := fmt.Sprintf("%s\t%d%s", id.name, map[bool]int{true: 1}[id.dryRun], id.id)
		score, err := a.client.ZScore(context.Background(), idSetOf(a.store.prefix(), id.key), member).Result()
		require.NoError(a.t, err, fmt.Sprint(id))
		require.Equal(a.t, until, int64(score), fmt.Sprint(id))
	}
}
