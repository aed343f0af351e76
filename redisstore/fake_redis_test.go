package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A fakeRedis does what lua/store.lua does, with the functions of package quota and without a network,
// for synctest bubbles.
type fakeRedis struct {
	mu      sync.Mutex              // guards what follows
	rtt     time.Duration           // round trip time
	limits  map[string]*quota.Limit // by their numbers in ARGV
	buckets map[fakeBucket]quota.Bucket
	ids     map[string]bool
	asked   int   // round trips, without probes
	lose    int   // how many more answers to lose
	down    error // if not nil, the result of every command
}

type fakeBucket struct {
	key, limit string
	dryRun     bool
}

func newFakeRedis(rtt time.Duration) *fakeRedis {
	f := &fakeRedis{rtt: rtt, limits: make(map[string]*quota.Limit)}
	f.forget()
	f.limit(quota.Policy{Name: "lease holders", Quota: 1_000_000, Window: time.Second, Algorithm: quota.SlidingWindow})
	return f
}

// forget removes all data.
func (f *fakeRedis) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buckets, f.ids = make(map[fakeBucket]quota.Bucket), make(map[string]bool)
}

// limit returns the Limit of p, and registers it: the script only gets its numbers.
func (f *fakeRedis) limit(p quota.Policy) *quota.Limit {
	l, err := p.Compile()
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits[fmt.Sprint([]string{
		l.Name(), fmt.Sprint(int(l.Policy().Algorithm)), fmt.Sprint(l.Tick().Microseconds()), fmt.Sprint(l.Rate()),
		fmt.Sprint(l.Policy().Window.Microseconds()), fmt.Sprint(l.Capacity()), fmt.Sprint(l.Most()), fmt.Sprint(l.Unit()),
	})] = l
	return l
}

// charge charges n units as another process, or refunds them if n is negative.
func (f *fakeRedis) charge(c quota.Charge, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, now := fakeBucket{c.Key, c.Limit.Name(), c.DryRun}, time.Now().UnixMicro()
	f.buckets[name] = c.Limit.Settle(c.Limit.Drain(f.buckets[name], now), n, 0, now)
}

// wait returns how long until c fits.
func (f *fakeRedis) wait(c quota.Charge) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixMicro()
	return c.Limit.Wait(c.Limit.Drain(f.buckets[fakeBucket{c.Key, c.Limit.Name(), c.DryRun}], now), c.Units(), now)
}

// setRTT changes the round trip time, also for commands on the way to Redis.
func (f *fakeRedis) setRTT(rtt time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rtt = rtt
}

func (f *fakeRedis) travel() {
	f.mu.Lock()
	half := f.rtt / 2
	f.mu.Unlock()
	time.Sleep(half)
}

// A fakeLink is the connection of one process to a fakeRedis.
type fakeLink struct {
	*redis.Client
	to *fakeRedis

	mu  sync.Mutex // guards cut
	cut bool       // commands are lost from now on
}

func (f *fakeRedis) link(t testing.TB) *fakeLink {
	l := &fakeLink{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), to: f}
	l.AddHook(l)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func (l *fakeLink) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
}

func (l *fakeLink) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

func (*fakeLink) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*fakeLink) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *fakeLink) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if l.isCut() {
			return errors.New("cut")
		}
		var args []string // after the script: the number of keys, the keys, and ARGV
		for _, arg := range cmd.Args()[2:] {
			args = append(args, fmt.Sprint(arg))
		}
		l.to.travel()
		reply, err := l.to.execute(args)
		l.to.travel()
		if err == nil {
			cmd.(interface{ SetVal(any) }).SetVal(reply)
		}
		return err
	}
}

// roundTrips returns how many round trips there were.
func (f *fakeRedis) roundTrips() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// fail makes every command return err, until err is nil.
func (f *fakeRedis) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = err
}

// loseAnswers executes the next n scripts without an answer.
func (f *fakeRedis) loseAnswers(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

// remaining returns what is left of l for key.
func (f *fakeRedis) remaining(key string, l *quota.Limit) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now().UnixMicro()
	return l.Describe(l.Drain(f.buckets[fakeBucket{key, l.Name(), false}], now), now).Remaining
}

func (f *fakeRedis) execute(args []string) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, f.down
	}
	call := &fakeCall{fakeRedis: f, now: time.Now().UnixMicro()}
	n, _ := strconv.Atoi(args[0])
	if call.keys, call.rest = args[1:1+n], args[1+n:]; len(call.rest) == 0 {
		return int64(1), nil // to a probe
	}
	f.asked++
	call.run()
	if f.lose > 0 {
		f.lose--
		return nil, errors.New("lost")
	}
	return call.reply, nil
}

// A fakeCall is one execution of the script.
type fakeCall struct {
	*fakeRedis
	now   int64
	keys  []string
	rest  []string // the unread part of ARGV
	reply []any
}

func (c *fakeCall) text() (s string) {
	s, c.rest = c.rest[0], c.rest[1:]
	return s
}

func (c *fakeCall) int() int64 {
	n, err := strconv.ParseInt(c.text(), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (c *fakeCall) run() {
	limits := make([]*quota.Limit, c.int())
	for i := range limits {
		numbers := fmt.Sprint(c.rest[:8])
		if limits[i] = c.limits[numbers]; limits[i] == nil {
			panic("unknown limit " + numbers)
		}
		c.rest = c.rest[8:]
	}
	c.reply = []any{c.now, int64(0)}
	for len(c.rest) > 0 {
		c.op(limits)
	}
}

// op executes one call of several charges.
func (c *fakeCall) op(limits []*quota.Limit) {
	verb, within := c.text(), time.Duration(0)
	if verb == "reserve" {
		within = time.Duration(c.int()) * time.Microsecond
	}
	n, answer, allowed := c.int(), len(c.reply), true
	c.reply = append(c.reply, nil)
	left := make(map[fakeBucket]quota.Bucket)
	var ids []string
	for range n {
		key, l, n, has, at, id := c.keys[c.int()-1], limits[c.int()-1], c.int(), c.text(), int64(0), ""
		if strings.Contains(has, "a") {
			at = c.int()
		}
		if strings.Contains(has, "i") {
			id = c.text()
			c.int() // the index of the ID's set in KEYS
		}
		dry := strings.Contains(has, "d")
		name := fakeBucket{strings.TrimPrefix(key, "heed:quota:"), l.Name(), dry}
		b, seen := left[name]
		if !seen {
			b = c.buckets[name]
		}
		b = l.Drain(b, c.now)
		after, fits := b, true
		switch {
		case c.ids[id] && verb != "revoke":
		case verb == "settle" || verb == "revoke":
			after = l.Settle(b, n, at, c.now)
		case verb == "reserve":
			after, _, fits = l.TryWithin(b, n, c.now, within)
		default:
			after, fits = l.Try(b, n, c.now)
		}
		verdict := int64(0)
		if fits {
			verdict, left[name] = 1, after
		}
		if fits && c.ids[id] {
			verdict = 2
		}
		if id != "" {
			ids = append(ids, id)
		}
		allowed = allowed && (fits || dry)
		c.reply = append(c.reply, verdict, b.Time, b.Level, b.Prev, b.Log)
	}
	c.reply[answer] = int64(0)
	if !allowed {
		return
	}
	c.reply[answer] = int64(1)
	if verb == "peek" {
		return
	}
	for name, b := range left {
		c.buckets[name] = b
	}
	for _, id := range ids {
		c.ids[id] = verb != "revoke"
	}
}
