package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
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

	debug  bool
	counts map[place][]record
	wrote  map[string]bool // the Keys that the last batch has written

	wroteIDs map[string]bool // the Keys of which it has written IDs
	ids      map[place]int64 // when they are forgotten
	before   *op             // an earlier op, to repeat
}

// A place is the count of a Key for one Name, or an ID of it.
type place struct {
	key, name string
	dryRun    bool
	id        string
}

// A record is one of the counts of a place, of which each has another shape.
type record struct {
	limit  *quota.Limit
	bucket quota.Bucket
	last   int64 // until when it is kept
}

// keep returns r after a call that has changed it.
func (r record) keep(now int64) record {
	if whole := r.limit.Whole(r.bucket); whole > r.last && whole > now {
		r.last = whole + min(max(0, whole-now)/16, day) + 1_000_000
	}
	return r
}

func newAgreement(t *testing.T, client *redis.Client, seed uint64) *agreement {
	require.NoError(t, client.FlushAll(context.Background()).Err())
	a := &agreement{
		Rand: rand.New(rand.NewPCG(seed, 1)), t: t, client: client, store: &Store{Client: client, Timeout: 10 * time.Second},
		counts: make(map[place][]record), ids: make(map[place]int64), before: new(op),
	}
	SetClock(a.store)
	a.debug = os.Getenv("AGREE") != ""
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
		a.wrote, a.wroteIDs = make(map[string]bool), make(map[string]bool)
		a.perform(ops)
		for _, o := range ops {
			a.check(o)
		}
		a.forget()
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
	if !a.before.verb.settles() && a.IntN(3) == 0 {
		if back := a.before.undoing(); back != nil {
			return back
		}
	}
	verbs := []verb{take, take, take, peek, reserve, settle, undo}
	o := &op{verb: verbs[a.IntN(7)], within: time.Duration(a.upTo(1<<53)) - 5}
	for range 1 + a.IntN(3) {
		o.charges = append(o.charges, a.charge(o.verb))
		if quota.CheckSettle(o.charges) != nil { // two shapes of one Name
			o.charges = o.charges[:len(o.charges)-1]
		}
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
	keys, args := encode(a.store.prefix(), ops, a.now)
	args = append(args, a.now/1_000_000, a.now%1_000_000)
	reply, err := a.client.Eval(context.Background(), a.store.script.source, keys, args...).Result()
	require.NoError(a.t, err, fmt.Sprintf("%q", args))
	_, _, err = decode(ops, reply)
	require.NoError(a.t, err)
}

// check compares o's answer with what package quota computes, and stores the new state.
func (a *agreement) check(o *op) {
	made, ids, allowed, wrote := maps.Clone(a.counts), maps.Clone(a.ids), true, []place(nil)
	for i, c := range o.charges {
		in := place{c.Key, c.Limit.Name(), c.DryRun, ""}
		id := in
		id.id = c.ID
		if o.verb == undo {
			delete(a.ids, id)
			delete(ids, id)
		}
		own := a.find(made[in], c.Limit)
		want := found{bucket: own, fits: true, repeated: c.ID != "" && o.verb != undo && ids[id] > a.now}
		want.adopted = o.found[i].adopted
		after := own
		if !want.repeated {
			after, want.fits = a.after(o, c, own)
		}
		require.Equal(a.t, want, o.found[i], "charge %d of %+v at %d", i, o, a.now)
		if !want.fits || want.repeated {
			allowed = allowed && (want.fits || c.DryRun)
			continue
		}
		made[in] = a.charged(made[in], o, c, after)
		wrote = append(wrote, in)
		if c.ID != "" && o.verb != undo {
			ids[id] = c.Limit.Remembers(a.now)
		}
	}
	if a.debug {
		fmt.Printf("%d %c within %v", a.now, o.verb, o.within)
		for i, c := range o.charges {
			fmt.Printf(" [%s %q %s n=%d at=%d dry=%v id=%s found=%v]", c.Key, c.Limit.Name(), c.Limit.Shape(), c.N, chargedAt(&c), c.DryRun, c.ID, o.found[i])
		}
		fmt.Println()
	}
	require.Equal(a.t, allowed, o.allowed)
	if !allowed || o.verb == peek {
		return
	}
	a.counts = made
	for _, in := range wrote {
		a.wrote[in.key] = true
		for i, r := range made[in] {
			made[in][i] = r.keep(a.now)
		}
	}
	for id := range ids {
		if ids[id] != a.ids[id] {
			a.wroteIDs[id.key] = true
		}
	}
	a.ids = ids
}

// find returns the count of l among records, as of now, or what it begins with.
func (a *agreement) find(records []record, l *quota.Limit) (most quota.Bucket) {
	most = l.Drain(most, a.now)
	for _, r := range records {
		if a.isOver(r) {
			continue
		}
		if r.limit.Shape() == l.Shape() {
			return l.Drain(r.bucket, a.now)
		}
		b := a.drained(r)
		if r.limit.Whole(b) <= a.now {
			continue
		}
		b = l.Drain(b, a.now)
		if cmp.Or(cmp.Compare(b.Level, most.Level), cmp.Compare(b.Prev, most.Prev), cmp.Compare(b.Time, most.Time),
			cmp.Compare(b.Log, most.Log)) > 0 {
			most = b
		}
	}
	return most
}

// isOver reports whether r is of a Calendar's window that has ended.
func (a *agreement) isOver(r record) bool {
	return r.limit.Policy().Calendar != 0 && r.limit.Starts(r.bucket.Time)[2] <= a.now
}

// drained returns the count of another shape as of now. Of a Calendar the script knows only the window of the
// count, so it does not move it if the clock was set back; the limit itself does.
func (a *agreement) drained(r record) quota.Bucket {
	if r.limit.Policy().Calendar != 0 && r.bucket.Time > a.now+r.bucket.Ahead {
		return r.bucket
	}
	return r.limit.Drain(r.bucket, a.now)
}

// charged returns records after a charge that left the bucket after.
func (a *agreement) charged(records []record, o *op, c quota.Charge, after quota.Bucket) []record {
	own, all := record{limit: c.Limit}, []record(nil)
	n, at := c.Units(), int64(0)
	if o.verb.settles() {
		n, at = c.N, chargedAt(&c)
	}
	owe := slices.ContainsFunc(records, func(r record) bool {
		if r.limit.Shape() == c.Limit.Shape() {
			return c.Limit.Whole(c.Limit.Drain(r.bucket, a.now)) > a.now
		}
		return r.limit.Whole(a.drained(r)) > a.now
	})
	for _, r := range records {
		if r.limit.Shape() == c.Limit.Shape() {
			own.last = r.last
			continue
		}
		if !owe && !a.isOver(r) {
			continue // gone
		}
		if owe && !a.isOver(r) {
			r.bucket = r.limit.Follow(a.drained(r), c.Limit, n, at, a.now)
		}
		all = append(all, r)
	}
	own.bucket = after
	return append(all, own)
}

// forget drops what Redis has dropped from the Keys that a batch has written.
func (a *agreement) forget() {
	maps.DeleteFunc(a.counts, func(in place, records []record) bool {
		return a.wrote[in.key] && !slices.ContainsFunc(records, func(r record) bool { return r.last > a.now })
	})
	maps.DeleteFunc(a.ids, func(id place, until int64) bool { return a.wroteIDs[id.key] && until <= a.now })
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

// tamper writes invalid lines into a Key, which count as absent.
func (a *agreement) tamper() {
	lines := []string{
		"a", "a\tb1,1,1", "a\tb1,1,1 1 1", "\t", "a\tb1,1,1 1 9007199254740992 1", "a\tl5 1 1 1 0 0 123", "\x00\xff\n\n",
		"a\tl5 1 5 1 0 0 000000000000000400001", "a\tb1,1,1 -1 1 1", "a\tb1,1,1 1 1 1 x", "a\tz1 1 1 1", "a\tb0,1,1 5 5 5",
		"a\tf1 1 1 1 1 99999999999999 ",
	}
	key := a.store.prefix() + []string{"k", "l"}[a.IntN(2)]
	value, _ := a.client.Get(context.Background(), key).Result()
	value = value + lines[a.IntN(len(lines))] + "\n"
	require.NoError(a.t, a.client.Set(context.Background(), key, value, redis.KeepTTL).Err())
}

// compare compares the state in Redis with the expected one.
func (a *agreement) compare() {
	for _, key := range []string{"k", "l"} {
		states, err := a.store.Inspect(context.Background(), key)
		require.NoError(a.t, err)
		got, want := make(map[string]quota.Bucket), make(map[string]quota.Bucket)
		for _, s := range states {
			got[fmt.Sprint(s.Name, s.DryRun, s.Shape)] = s.Bucket
		}
		for in, records := range a.counts {
			for _, r := range records {
				if in.key == key {
					want[fmt.Sprint(in.name, in.dryRun, r.limit.Shape())] = r.bucket
				}
			}
		}
		require.Equal(a.t, want, got, "%s at %d", key, a.now)
	}
	for id, until := range a.ids {
		member := string(appendName(nil, id.name, id.dryRun)) + "\n" + id.id
		score, err := a.client.ZScore(context.Background(), idSetOf(a.store.prefix(), id.key), member).Result()
		require.NoError(a.t, err, fmt.Sprint(id))
		require.Equal(a.t, until, int64(score), fmt.Sprint(id))
	}
}
