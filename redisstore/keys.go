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
		for i := 0; i < len(servers) && err == nil; i++ {
			err = s.scan(ctx, servers[i], func(k KeyState) bool { return yield(k, nil) })
		}
		if err != nil && err != errStopped {
			yield(KeyState{}, s.readFault(err))
		}
	}
}

// errStopped is the error of a scan whose caller wants no more.
var errStopped = errors.New("stopped")

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

// scan yields the Keys of server.
func (s *Store) scan(ctx context.Context, server redis.UniversalClient, yield func(KeyState) bool) error {
	match := globQuoter.Replace(s.prefix()) + "*"
	for cursor := uint64(0); ; {
		names, next, err := server.ScanType(ctx, cursor, match, scanned, "string").Result()
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(names, fetched) {
			if err := s.fetch(ctx, server, batch, yield); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// globQuoter quotes the characters that MATCH takes for a pattern.
var globQuoter = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// fetch yields the strings with these names. It skips those that are gone or cannot be read.
func (s *Store) fetch(
	ctx context.Context, server redis.UniversalClient, names []string, yield func(KeyState) bool,
) error {
	replies, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Time(ctx)
		for _, name := range names {
			pipe.Get(ctx, name)
			pipe.PTTL(ctx, name)
		}
		return nil
	})
	if err != nil && err != redis.Nil {
		return err
	}
	now := replies[0].(*redis.TimeCmd).Val()
	for i, name := range names {
		value, ttl := replies[1+2*i].(*redis.StringCmd).Val(), replies[2+2*i].(*redis.DurationCmd).Val()
		k := KeyState{Key: strings.TrimPrefix(name, s.prefix()), States: s.states(value), At: now, TTL: max(0, ttl)}
		if len(k.States) > 0 && !yield(k) {
			return errStopped
		}
	}
	return nil
}

// readFault returns the error of a command outside of scripts.
func (s *Store) readFault(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return s.redis().connections.explain(fmt.Errorf("redisstore: %w", err))
}
