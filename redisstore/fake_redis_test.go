package redisstore_test

import (
	"context"
	"encoding/binary"
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
	f.limits[fmt.Sprintf("%s\t%s", l.Name(), l.Shape())] = l
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
		if cmd.Name() == "info" {
			return nil
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
	reply string
}

func (c *fakeCall) text() (s string) {
	s, c.rest = c.rest[0], c.rest[1:]
	return s
}

func (c *fakeCall) run() {
	n, _ := strconv.Atoi(c.text())
	limits, dry := make([]*quota.Limit, n), make([]bool, n)
	for i := range limits {
		text := c.text()
		text, dry[i] = strings.CutPrefix(text, "\t")
		id, _, _ := strings.Cut(text[strings.Index(text, "\t"):], " ")
		name, _, _ := strings.Cut(text, "\t")
		if limits[i] = c.limits[name+id]; limits[i] == nil {
			panic("unknown limit " + text)
		}
	}
	c.reply = fmt.Sprint(c.now, " 0 0 ")
	for len(c.rest) > 0 {
		c.op(strings.Fields(c.text()), limits, dry)
	}
}

// op executes one call of several charges, whose IDs have no spaces.
func (c *fakeCall) op(fields []string, limits []*quota.Limit, dryRuns []bool) {
	next := func() (s string) {
		s, fields = fields[0], fields[1:]
		return s
	}
	number := func() int64 {
		n, err := strconv.ParseInt(next(), 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	verb, allowed := next(), true
	within, _ := strconv.ParseInt(verb[1:], 10, 64)
	left := make(map[fakeBucket]quota.Bucket)
	var ids []string
	for len(fields) > 0 {
		key, i := c.keys[number()-1], number()-1
		digits, flags := next(), ""
		if at := strings.IndexAny(digits, "ai"); at > 0 {
			digits, flags = digits[:at], digits[at:]
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			panic(err)
		}
		at, id := int64(0), ""
		if strings.Contains(flags, "a") {
			at = number()
		}
		if strings.Contains(flags, "i") {
			number() // the index of the ID's set in KEYS
			number() // its length
			id = next()
			ids = append(ids, id)
		}
		l, dry := limits[i], dryRuns[i]
		name := fakeBucket{strings.TrimPrefix(key, "heed:quota:2:"), l.Name(), dry}
		b, seen := left[name]
		if !seen {
			b = c.buckets[name]
		}
		b = l.Drain(b, c.now)
		after, fits := b, true
		switch {
		case c.ids[id] && verb != "u":
		case verb == "s" || verb == "u":
			after = l.Settle(b, n, at, c.now)
		case verb[0] == 'r' || verb[0] == 'q':
			after, _, fits = l.TryWithin(b, n, c.now, time.Duration(within)*time.Microsecond)
		default:
			after, fits = l.Try(b, n, c.now)
		}
		outcome := 4
		if fits {
			outcome, left[name] = 5, after
		}
		if fits && c.ids[id] {
			outcome = 6
		}
		allowed = allowed && (fits || dry)
		c.reply += fmt.Sprintf("%d %d %d %d %d ", outcome, b.Time, b.Level, b.Prev, b.Ahead)
		for log := []byte(b.Log); len(log) > 0; log = log[9:] {
			c.reply += fmt.Sprintf("%016d%05d", binary.BigEndian.Uint64(log)>>8, int(log[7])<<8+int(log[8]))
		}
		c.reply += " "
	}
	if !allowed || verb == "p" || verb[0] == 'q' {
		return
	}
	for name, b := range left {
		c.buckets[name] = b
	}
	for _, id := range ids {
		c.ids[id] = verb != "u"
	}
}
