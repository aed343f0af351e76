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

// FuzzLuaAgreesWithGo makes random errands, several by one script, at random moments,
// by policies of every Algorithm that share their names, on counts some of which
// nobody has written; and has package quota alone say what becomes of them.
func FuzzLuaAgreesWithGo(f *testing.F) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(f).Addr})
	f.Cleanup(func() { client.Close() })
	seeds := uint64(20)
	if testenv.Long() {
		seeds = 100
	}
	for seed := range seeds {
		f.Add(20 + seed) // TestTheAgreementIsAboutEveryScript has those before
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		newAgreement(t, client, seed).run()
	})
}

func TestTheAgreementIsAboutEveryScript(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	defer client.Close()
	var plain, refused int
	for seed := range uint64(20) {
		a := newAgreement(t, client, seed)
		a.run()
		plain, refused = plain+a.plain, refused+a.refused
	}
	require.Greater(t, plain, 100)
	require.Greater(t, refused, 20)
}

// An agreement is a Store and what package quota says of it.
type agreement struct {
	*rand.Rand
	t       *testing.T
	client  *redis.Client
	store   *Store
	now     int64
	limits  []*quota.Limit
	buckets []*quota.Limit // that are such, of different names

	fields  map[place]quota.Bucket
	values  map[place]string // of the fields
	changed map[place]bool   // by this script
	ids     map[place]int64  // until when they are remembered
	before  *errand          // an earlier one

	plain, refused int // scripts that were plain.lua, and that could not be
}

// A place is where something is kept.
type place struct {
	key, name string
	dryRun    bool
	id        string
}

func newAgreement(t *testing.T, client *redis.Client, seed uint64) *agreement {
	require.NoError(t, client.FlushAll(context.Background()).Err())
	a := &agreement{
		Rand: rand.New(rand.NewPCG(seed, 1)), t: t, client: client, store: &Store{Client: client, Timeout: 10 * time.Second},
		fields: make(map[place]quota.Bucket), values: make(map[place]string), ids: make(map[place]int64), before: new(errand),
	}
	SetClock(a.store)
	a.now = within(a.Int64N(1 << 52))
	for len(a.limits) < 6 {
		if l, err := a.policy().Compile(); err == nil {
			a.limits = append(a.limits, l)
			if l.Rate() > 0 && !slices.ContainsFunc(a.buckets, func(b *quota.Limit) bool { return b.Name() == l.Name() }) {
				a.buckets = append(a.buckets, l)
			}
		}
	}
	return a
}

func (a *agreement) run() {
	for range 25 {
		if a.IntN(8) == 0 {
			a.tamper()
		}
		errands := make([]*errand, 1+a.IntN(4))
		plain := len(a.buckets) > 0 && a.IntN(2) == 0
		for i := range errands {
			errands[i] = a.errand(plain)
		}
		a.perform(errands)
		a.changed = make(map[place]bool)
		for _, e := range errands {
			a.check(e)
		}
		a.before = errands[a.IntN(len(errands))]
		a.compare()
		a.now = within(a.now + a.step())
	}
}

// within is now, or the nearest moment that can be kept, with the windows around it:
// from 1973 to 2109.
func within(now int64) int64 {
	return min(max(100_000_000_000_000, now), 4_400_000_000_000_000)
}

// upTo is a number that is often small.
func (a *agreement) upTo(most int64) int64 {
	return a.Int64N(1 + min(most, 1<<a.IntN(54)))
}

// policy is a random one, and sometimes none.
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
	names := []string{"UTC", "America/New_York", "Europe/Berlin", "Africa/Cairo", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu"}
	location, err := time.LoadLocation(names[a.IntN(len(names))])
	require.NoError(a.t, err)
	return location
}

// step is how far the clock goes on, or back.
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

// errand is a random one, or one that plain.lua can do if it can read what it finds.
func (a *agreement) errand(plain bool) *errand {
	if plain {
		e := &errand{peek: a.IntN(6) == 0}
		for range 1 + a.IntN(4) {
			c := a.charge(toTake, a.buckets)
			c.DryRun, c.ID = false, ""
			e.charges = append(e.charges, c)
		}
		return e
	}
	if back := a.before.revocation(); !a.before.verb.settles() && len(back.charges) > 0 && a.IntN(3) == 0 {
		return back
	}
	e := &errand{verb: []verb{toTake, toTake, toTake, toReserve, toSettle, toRevoke}[a.IntN(6)], max: time.Duration(a.upTo(1<<53)) - 5}
	e.peek = !e.verb.settles() && a.IntN(6) == 0
	for range 1 + a.IntN(3) {
		e.charges = append(e.charges, a.charge(e.verb, a.limits))
		e.revoked = append(e.revoked, revoked{})
	}
	return e
}

func (a *agreement) charge(verb verb, limits []*quota.Limit) quota.Charge {
	l := limits[a.IntN(len(limits))]
	c := quota.Charge{Key: []string{"k", "l"}[a.IntN(2)], Limit: l, N: a.upTo(2 * min(l.AtOnce(), 1<<52)), DryRun: a.IntN(5) == 0}
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

// perform has errands done by one script, as a Store does, and by a second one if the
// first was plain.lua and could not.
func (a *agreement) perform(errands []*errand) {
	p := newPlan(a.store.prefix(), errands)
	p.encode(a.now)
	err := a.attempt(p)
	if err == errSpecial {
		a.refused++
		p.special = true
		err = a.attempt(p)
	} else if p.plain() {
		a.plain++
	}
	require.NoError(a.t, err)
	p.free()
}

func (a *agreement) attempt(p *plan) error {
	script := a.store.script().of(p)
	reply, err := a.client.Eval(context.Background(), script.source, p.keys, p.args, a.now/1_000_000, a.now%1_000_000).Text()
	require.NoError(a.t, err)
	_, err = p.answer(reply)
	return err
}

// check says what becomes of e, whose answer must be that, and remembers what it leaves.
func (a *agreement) check(e *errand) {
	met, left := make(map[place]quota.Bucket), make(map[place]quota.Bucket)
	ids, restored, allowed := make(map[place]int64), make(map[place]bool), true
	for i, c := range e.charges {
		in, id := place{c.Key, c.Limit.Name(), c.DryRun, ""}, place{c.Key, c.Limit.Name(), c.DryRun, c.ID}
		if _, before := met[in]; !before || e.verb.settles() {
			met[in] = a.fields[in]
		}
		if e.verb == toRevoke {
			delete(a.ids, id)
		}
		repeats := c.ID != "" && e.verb != toRevoke && max(a.ids[id], ids[id]) > a.now
		want := visit{before: a.believed(in), found: c.Limit.Drain(a.fields[in], a.now), met: c.Limit.Drain(met[in], a.now), fits: true, repeat: repeats}
		want.after = want.met
		if e.verb == toRevoke && a.restore(in, e.revoked[i], restored) {
			require.Equal(a.t, want, e.visits[i], "charge %d of %+v", i, e)
			continue
		}
		if !repeats {
			a.visit(e, c, &want)
		}
		require.Equal(a.t, want, e.visits[i], "charge %d of %+v", i, e)
		if !want.fits || repeats {
			allowed = allowed && (want.fits || c.DryRun)
			continue
		}
		met[in], left[in] = want.after, want.after
		if e.verb.settles() && want.after != want.met {
			a.leave(in, want.after)
		}
		if c.ID != "" {
			ids[id] = c.Limit.Remembers(a.now)
		}
		if e.verb == toSettle {
			a.remember(ids)
		}
	}
	require.Equal(a.t, allowed, e.allowed)
	if allowed && !e.peek && !e.verb.settles() {
		for in, b := range left {
			a.leave(in, b)
		}
		a.remember(ids)
	}
}

// believed is what a field holds, undrained.
func (a *agreement) believed(in place) quota.Bucket {
	if b := a.fields[in]; b.Time <= a.now+farAhead {
		return b
	}
	return quota.Bucket{}
}

func (a *agreement) leave(in place, b quota.Bucket) {
	a.fields[in], a.values[in], a.changed[in] = b, encode(b), true
}

// restore undoes what was taken from a field.
func (a *agreement) restore(in place, r revoked, restored map[place]bool) bool {
	if r.left != "" && !a.changed[in] && a.values[in] == r.left {
		b, _ := decode(r.before)
		a.leave(in, b)
		restored[in] = true
	}
	return restored[in]
}

// remember adds to the IDs. Those that are over are forgotten then, and do not come
// back with the time.
func (a *agreement) remember(ids map[place]int64) {
	for id := range ids {
		maps.DeleteFunc(a.ids, func(old place, until int64) bool { return old.key == id.key && until <= a.now })
	}
	maps.Copy(a.ids, ids)
}

func (a *agreement) visit(e *errand, c quota.Charge, v *visit) {
	switch e.verb {
	case toTake:
		v.after, v.fits = c.Limit.Try(v.met, c.Units(), a.now)
	case toReserve:
		v.after, v.wait, v.fits = c.Limit.TryWithin(v.met, c.Units(), a.now, e.max)
	default:
		v.after = c.Limit.Settle(v.met, c.N, chargedAt(&c), a.now)
	}
}

// tamper writes what nobody would.
func (a *agreement) tamper() {
	value := make([]byte, a.IntN(50))
	for i := range value {
		value[i] = byte(a.IntN(256))
	}
	if len(value) > 7 && a.IntN(3) > 0 {
		value[0] = 128 | byte(a.IntN(5))<<4 | byte(a.now>>48)
		copy(value[1:], appendNumber(nil, a.now+a.step(), 6))
		if after := 7 + int(value[0]>>4&7); after < len(value) {
			value[after] = byte(a.IntN(2))
		}
	}
	key, name := []string{"k", "l"}[a.IntN(2)], []string{"a", "b", "c"}[a.IntN(3)]
	b, ok := decode(string(value))
	if !ok {
		b = quota.Bucket{}
	}
	a.fields[place{key, name, false, ""}], a.values[place{key, name, false, ""}] = b, string(value)
	require.NoError(a.t, a.client.HSet(context.Background(), a.store.prefix()+key, name, value).Err())
}

// compare looks whether Redis holds what it should.
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
		member := fmt.Sprintf("%s\t%d%s", id.name, bit(id.dryRun), id.id)
		score, err := a.client.ZScore(context.Background(), setOf(a.store.prefix(), id.key), member).Result()
		require.NoError(a.t, err, fmt.Sprint(id))
		require.Equal(a.t, until, int64(score), fmt.Sprint(id))
	}
}
