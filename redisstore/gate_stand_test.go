package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sets is what the script of Acquire should keep: for each key, when each hold
// expires, in ms.
type sets map[string]map[string]int64

// run is what the script should do.
func (s sets) run(key string, now time.Time, ttl int64, notices []string) []any {
	if s[key] == nil {
		s[key] = make(map[string]int64)
	}
	holds, ms, corrupt := s[key], now.UnixMilli(), int64(0)
	for hold, expiry := range holds {
		if expiry <= ms || expiry > ms+24*time.Hour.Milliseconds() {
			delete(holds, hold)
		}
		if expiry > ms+24*time.Hour.Milliseconds() {
			corrupt = 1
		}
	}
	var there []any
	for ; len(notices) > 0; notices = notices[3:] {
		verb, hold := notices[0], notices[1]
		limit, _ := strconv.ParseInt(notices[2], 10, 64)
		_, found := holds[hold]
		if !found && verb == "take" && s.used(key)+places(hold) <= limit {
			found = true
			holds[hold] = 0
		}
		if found && verb == "drop" {
			delete(holds, hold)
		} else if found {
			holds[hold] = ms + ttl
		}
		there = append(there, map[bool]int64{true: 1}[found])
	}
	return append([]any{now.UnixMicro(), s.used(key), corrupt}, there...)
}

func (s sets) used(key string) (sum int64) {
	for hold := range s[key] {
		sum += places(hold)
	}
	return sum
}

func places(hold string) int64 {
	digits, _, _ := strings.Cut(hold, ":")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// A gateStand is a client to a Redis that a test makes up, without a network, and
// whose time is that of package time.
type gateStand struct {
	*redis.Client

	mu    sync.Mutex // guards what follows
	sets  sets
	serve server
	calls []string // the verbs of each, and its key
}

// A server answers a call, which execute carries out.
type server func(ctx context.Context, execute func() any) (any, error)

func newGateStand(t *testing.T) *gateStand {
	g := &gateStand{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), sets: make(sets), serve: well}
	g.AddHook(g)
	t.Cleanup(func() {
		time.Sleep(time.Minute) // for probes of a server that was silent
		g.Close()
	})
	return g
}

func well(_ context.Context, execute func() any) (any, error) { return execute(), nil }

// silent is a server that is gone.
func silent(ctx context.Context, _ func() any) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// mute is a server whose answers get lost.
func mute(ctx context.Context, execute func() any) (any, error) {
	execute()
	return silent(ctx, nil)
}

// delayed is a server that is mute, and takes its time.
func delayed(d time.Duration) server {
	return func(ctx context.Context, execute func() any) (any, error) {
		time.AfterFunc(d, func() { execute() })
		return silent(ctx, nil)
	}
}

func refusing(err error) server {
	return func(context.Context, func() any) (any, error) { return nil, err }
}

func (g *gateStand) set(serve server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.serve = serve
}

// forget makes the server an empty one.
func (g *gateStand) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sets = make(sets)
}

// inUse is how many places of key are taken.
func (g *gateStand) inUse(key string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sets.run("heed:quota:\x01"+key, time.Now(), 0, nil)[1].(int64)
}

// took returns the calls since it was last asked.
func (g *gateStand) took() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}

// isForgotten asserts that there is nothing of which a Store tells Redis, now or later.
func (g *gateStand) isForgotten(t *testing.T) {
	t.Helper()
	synctest.Wait()
	g.took()
	time.Sleep(time.Hour)
	assert.Empty(t, g.took())
}

func (g *gateStand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gateStand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gateStand) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var args []string
		for _, arg := range cmd.Args() {
			args = append(args, fmt.Sprint(arg))
		}
		g.mu.Lock()
		serve := g.serve
		g.mu.Unlock()
		value, err := serve(ctx, func() any { return g.execute(args[3:]) })
		cmd.(interface{ SetVal(any) }).SetVal(value)
		return err
	}
}

func (g *gateStand) execute(args []string) any {
	if len(args) < 2 {
		return int64(1) // a probe or a ping
	}
	key, args := args[0], args[1:]
	g.mu.Lock()
	defer g.mu.Unlock()
	var verbs []string
	for i := 1; i < len(args); i += 3 {
		verbs = append(verbs, args[i])
	}
	g.calls = append(g.calls, strings.Join(verbs, " ")+" "+strings.TrimPrefix(key, "heed:quota:\x01"))
	ttl, _ := strconv.ParseInt(args[0], 10, 64)
	return g.sets.run(key, time.Now(), ttl, args[1:])
}

// store is one that knows that Redis answers.
func (g *gateStand) store(t *testing.T) *redisstore.Store {
	s := &redisstore.Store{Client: g.Client}
	require.NoError(t, s.Ping(ctx))
	return s
}

// mustAcquire takes n places, which must be free, for a Hold that does not become
// garbage before the test ends.
func mustAcquire(t testing.TB, s *redisstore.Store, key string, limit, n int64) *quota.Hold {
	t.Helper()
	h, d, err := s.Acquire(ctx, key, limit, n)
	require.NoError(t, err)
	require.True(t, d.Allowed, "%+v", d)
	t.Cleanup(func() { runtime.KeepAlive(h) })
	return h
}

func isLost(h *quota.Hold) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}
