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
// arrive while the last script runs. It counts as exactly as redisstore.Store and lacks all else:
// no other algorithm, no costs, refunds or IDs, no Cluster and no breaker, and one bad call fails
// its whole batch. The difference in cost is the price of these.
type simpleStore struct {
	client  redis.Scripter
	timeout time.Duration

	mu      sync.Mutex // guards what follows
	queue   []*simpleCall
	sending bool // a goroutine sends the queue
}

type simpleCall struct {
	key    string
	limits []any // arguments of the script: how many, and their numbers
	done   chan struct{}

	// The result, once done is closed:
	allowed bool
	levels  []any // of each limit
	err     error
}

// take takes a unit of each limit of key if all have one.
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

// send sends the queue until it is empty.
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

// run makes the calls with one script.
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

// simpleLimits returns limits as arguments of the script.
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

// openAutoPipeline does too, but go-redis collects commands in pipelines.
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
