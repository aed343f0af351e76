package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
)

// BenchmarkTrain measures what trains take in which nobody rides: they were made before,
// each is on the wire again as soon as it was answered, and nobody reads the answer. A
// Store has callers to serve beside: what it takes more than this is theirs.
func BenchmarkTrain(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(b).Addr})
	defer client.Close()
	for _, shape := range []struct{ trains, calls int }{{1, 1}, {1, 16}, {2, 8}, {1, 64}, {2, 32}, {2, 128}} {
		b.Run(fmt.Sprintf("%d of %d", shape.trains, shape.calls), func(b *testing.B) {
			commands := make([][]any, shape.trains)
			for i := range commands {
				commands[i] = trainOf(b, client, shape.calls, fmt.Sprint("train", i))
			}
			var all sync.WaitGroup
			b.ResetTimer()
			for _, command := range commands {
				all.Go(func() {
					for i := 0; i < b.N; i += shape.trains * shape.calls {
						if reply, err := client.Do(context.Background(), command...).Text(); err != nil || reply == "" {
							b.Error(reply, err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// trainOf is the command of one that carries so many calls, each of a Key of its own.
func trainOf(b *testing.B, client *redis.Client, calls int, name string) (command []any) {
	limit, err := quota.Policy{Name: "day", Quota: 1_000_000, Window: 24 * time.Hour}.Compile()
	require.NoError(b, err)
	var errands []*errand
	for i := range calls {
		errands = append(errands, &errand{verb: toTake, charges: []quota.Charge{{Key: fmt.Sprintf("%s %04d", name, i), Limit: limit}}})
	}
	p := newPlan("heed:quota:", errands)
	p.encode(time.Now().UnixMicro())
	script := embedded.of(p)
	require.NoError(b, client.ScriptLoad(context.Background(), script.source).Err())
	command = []any{"evalsha", script.sha, len(p.keys)}
	for _, key := range p.keys {
		command = append(command, key)
	}
	return append(command, p.args)
}
