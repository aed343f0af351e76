//go:build unix

package benchmarks_test

import (
	"context"
	_ "embed"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
)

//go:embed simple.lua
var simpleSource string

var simpleScript = redis.NewScript(simpleSource)

// A simpleStore is a plain limiter in Redis: token buckets, and one script for all calls that
// gathered while the last one was under way. It counts as exactly as redisstore.Store does, and
// lacks all the rest: no other algorithm, no costs, refunds or IDs, no Cluster, no breaker, and
// one call that Redis refuses fails all that were sent with it. What a Store costs more than
// this is the price of that.
type simpleStore struct {
	client  redis.Scripter
	timeout time.Duration

	mu      sync.Mutex // guards what follows
	queue   []*simpleCall
	sending bool // a goroutine sends what is in the queue
}

type simpleCall struct {
	key    string
	limits []any // as the script has them: how many, and their numbers
	done   chan struct{}

	// What became of it, once done is closed:
	allowed bool
	levels  []any // of each limit
	err     error
}

// take takes a unit of key of each limit if all have one.
func (s *simpleStore) take(ctx context.Context, key string, limits []any) (allowed bool, levels []any, err error) {
	c := &simpleCall{key: key, limits: limits, done: make(chan struct{})}
	s.mu.Lock()
	s.queue = append(s.queue, c)
	if !s.sending {
		s.sending = true
		go s.send()
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.allowed, c.levels, c.err
	case <-ctx.Done():
		return false, nil, ctx.Err()
	}
}

// send sends what has gathered, again and again until there is nothing.
func (s *simpleStore) send() {
	for {
		s.mu.Lock()
		calls := s.queue
		s.queue, s.sending = nil, len(calls) > 0
		s.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		s.run(calls)
	}
}

// run makes calls, by one script.
func (s *simpleStore) run(calls []*simpleCall) {
	keys, args := make([]string, len(calls)), make([]any, 0, len(calls)*len(calls[0].limits))
	for i, c := range calls {
		keys[i] = c.key
		args = append(args, c.limits...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	reply, err := simpleScript.Run(ctx, s.client, keys, args...).Slice()
	for _, c := range calls {
		if c.err = err; err == nil {
			n := 1 + c.limits[0].(int)
			c.allowed, c.levels = reply[0].(int64) == 1, reply[1:n]
			reply = reply[n:]
		}
		close(c.done)
	}
}

// simpleLimits are what a simpleStore is told of limits.
func simpleLimits(tb testing.TB, rules, limit int) []any {
	all := []any{rules}
	for i := range rules {
		l := compile(tb, quota.Policy{Name: ruleNames[i], Quota: int64(limit), Window: day})
		require.Equal(tb, time.Microsecond, l.Tick())
		all = append(all, l.Name(), l.Unit(), l.Rate(), l.Capacity())
	}
	return all
}

func openSimpleStore(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
	s, limits := &simpleStore{client: client, timeout: patience}, simpleLimits(tb, rules, limit)
	return func(ctx context.Context, key string) (bool, error) {
		allowed, _, err := s.take(ctx, "simple:"+key, limits)
		return allowed, err
	}
}

// openPlainScript sends the script once for each decision.
func openPlainScript(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
	return byScript(tb, client, rules, limit)
}

// openAutoPipeline does too, but has go-redis gather commands in pipelines.
func openAutoPipeline(tb testing.TB, client redis.UniversalClient, rules, limit int) decideShared {
	pipeline, err := client.(*redis.Client).AutoPipeline()
	require.NoError(tb, err)
	tb.Cleanup(func() { pipeline.Close() })
	return byScript(tb, pipeline, rules, limit)
}

func byScript(tb testing.TB, client redis.Scripter, rules, limit int) decideShared {
	limits := simpleLimits(tb, rules, limit)
	return func(ctx context.Context, key string) (bool, error) {
		reply, err := simpleScript.Run(ctx, client, []string{"simple:" + key}, limits...).Slice()
		return err == nil && reply[0].(int64) == 1, err
	}
}
