package redisstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/redis/go-redis/v9"
)

const (
	scanned = 1000 // the COUNT of a SCAN
	fetched = 100  // keys read in one round trip
)

// A KeyState is what is stored of one Key.
type KeyState struct {
	Key    string
	States []quota.State // at least one, as Inspect returns them
	At     time.Time     // when they were read, by Redis' clock
	TTL    time.Duration // until Redis forgets the Key, soon after its buckets are full again
}

// Keys returns what is stored of all Keys, in no particular order, for operators and reports. For
// one Key, use Inspect.
//
// It reads in batches, by SCAN, while limiters go on. A Key that is charged meanwhile may be
// missing or come twice. An error ends the sequence. The Redis user needs the permission to SCAN,
// which limiters do not. On a Cluster or Ring the servers are read one after the other.
func (s *Store) Keys(ctx context.Context) iter.Seq2[KeyState, error] {
	return func(yield func(KeyState, error) bool) {
		c := s.redis()
		if isNil(c.redis) {
			yield(KeyState{}, errNoClient)
			return
		}
		servers, err := masters(ctx, c.redis)
		if err != nil {
			yield(KeyState{}, s.readFault(err))
			return
		}
		for _, server := range servers {
			if !s.scan(ctx, server, yield) {
				return
			}
		}
	}
}

// masters returns a client for each server that holds Keys.
func masters(ctx context.Context, client redis.UniversalClient) (all []redis.UniversalClient, err error) {
	var mu sync.Mutex // guards all
	add := func(_ context.Context, server *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, server)
		return nil
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, add)
	case *redis.Ring:
		err = c.ForEachShard(ctx, add)
	default:
		all = append(all, c)
	}
	return all, err
}

// scan yields the Keys of server, and reports whether to go on.
func (s *Store) scan(ctx context.Context, server redis.UniversalClient, yield func(KeyState, error) bool) bool {
	match := globQuoter.Replace(s.prefix()) + "*"
	for cursor := uint64(0); ; {
		names, next, err := server.ScanType(ctx, cursor, match, scanned, "string").Result()
		if err != nil {
			yield(KeyState{}, s.readFault(err))
			return false
		}
		for batch := range slices.Chunk(names, fetched) {
			states, err := s.fetch(ctx, server, batch)
			if err != nil {
				yield(KeyState{}, s.readFault(err))
				return false
			}
			for _, k := range states {
				if !yield(k, nil) {
					return false
				}
			}
		}
		if cursor = next; cursor == 0 {
			return true
		}
	}
}

// globQuoter quotes the characters that MATCH takes for a pattern.
var globQuoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// fetch reads the strings with these names. It skips those that are gone or cannot be read.
func (s *Store) fetch(ctx context.Context, server redis.UniversalClient, names []string) (all []KeyState, err error) {
	var now *redis.TimeCmd
	values, ttls := make([]*redis.StringCmd, len(names)), make([]*redis.DurationCmd, len(names))
	_, err = server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		now = pipe.Time(ctx)
		for i, name := range names {
			values[i], ttls[i] = pipe.Get(ctx, name), pipe.PTTL(ctx, name)
		}
		return nil
	})
	if err != nil && err != redis.Nil {
		return nil, err
	}
	for i, name := range names {
		k := KeyState{
			Key: strings.TrimPrefix(name, s.prefix()), States: s.states(values[i].Val()), At: now.Val(), TTL: max(0, ttls[i].Val()),
		}
		if len(k.States) > 0 {
			all = append(all, k)
		}
	}
	return all, nil
}

// readFault returns the error of a command outside of scripts.
func (s *Store) readFault(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return s.redis().connections.explain(fmt.Errorf("redisstore: %w", err))
}
