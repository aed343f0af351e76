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

// sets is the expected contents of Redis: for each key, when each hold expires, in ms.
type sets map[string]map[string]int64

// run does what the script should do.
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

// A gateFake is a client of a Redis that the test controls, without a network and by the clock of package
// time.
type gateFake struct {
	*redis.Client

	mu    sync.Mutex // guards what follows
	sets  sets
	serve server
	calls []string // for each call its verbs and its key
}

// A server answers a call. execute runs its script.
type server func(ctx context.Context, execute func() any) (any, error)

func newGateFake(t *testing.T) *gateFake {
	g := &gateFake{Client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), sets: make(sets), serve: well}
	g.AddHook(g)
	t.Cleanup(func() {
		time.Sleep(time.Minute) // for probes of a silent server
		g.Close()
	})
	return g
}

func well(_ context.Context, execute func() any) (any, error) { return execute(), nil }

// silent executes nothing and never answers.
func silent(ctx context.Context, _ func() any) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// noAnswers executes calls but never answers.
func noAnswers(ctx context.Context, execute func() any) (any, error) {
	execute()
	return silent(ctx, nil)
}

// delayed executes calls after d and never answers.
func delayed(d time.Duration) server {
	return func(ctx context.Context, execute func() any) (any, error) {
		time.AfterFunc(d, func() { execute() })
		return silent(ctx, nil)
	}
}

func refusing(err error) server {
	return func(context.Context, func() any) (any, error) { return nil, err }
}

func (g *gateFake) set(serve server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.serve = serve
}

// forget removes all data.
func (g *gateFake) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sets = make(sets)
}

// inUse returns how many places of key are taken.
func (g *gateFake) inUse(key string) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sets.run("heed:quota:2:\x01"+key, time.Now(), 0, nil)[1].(int64)
}

// took returns the calls since its last call.
func (g *gateFake) took() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}

// isForgotten asserts that the Store sends nothing any more.
func (g *gateFake) isForgotten(t *testing.T) {
	t.Helper()
	synctest.Wait()
	g.took()
	time.Sleep(time.Hour)
	assert.Empty(t, g.took())
}

func (g *gateFake) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gateFake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gateFake) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "info" {
			return nil
		}
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

func (g *gateFake) execute(args []string) any {
	if len(args) < 2 {
		return int64(1) // for a probe or a ping
	}
	key, args := args[0], args[1:]
	g.mu.Lock()
	defer g.mu.Unlock()
	var verbs []string
	for i := 1; i < len(args); i += 3 {
		verbs = append(verbs, args[i])
	}
	g.calls = append(g.calls, strings.Join(verbs, " ")+" "+strings.TrimPrefix(key, "heed:quota:2:\x01"))
	ttl, _ := strconv.ParseInt(args[0], 10, 64)
	return g.sets.run(key, time.Now(), ttl, args[1:])
}

// store returns a Store that Redis has answered.
func (g *gateFake) store(t *testing.T) *redisstore.Store {
	s := &redisstore.Store{Client: g.Client}
	require.NoError(t, s.Ping(ctx))
	return s
}

// mustAcquire takes n places, which must be free. The Hold does not become garbage during the test.
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
