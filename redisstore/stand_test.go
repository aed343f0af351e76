package redisstore_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func newClient(t testing.TB, s *redistest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { client.Close() })
	return client
}

// A stand is a Redis that a test can lose.
type stand struct {
	connect    func() redis.UniversalClient
	lose, back func()
}

// stands are Redis servers that stop, die without their data, fail over, lose a shard, lose a Cluster, or are
// behind a bad network.
var stands = map[string]func(*testing.T) stand{
	"stops": func(t *testing.T) stand {
		s := redistest.Start(t)
		return stand{func() redis.UniversalClient { return newClient(t, s) }, s.Stop, s.Cont}
	},
	"dies": func(t *testing.T) stand {
		s := redistest.Start(t)
		return stand{func() redis.UniversalClient { return newClient(t, s) }, s.Kill, s.Restart}
	},
	"fails over": func(t *testing.T) stand {
		s := redistest.StartSentinel(t)
		return stand{func() redis.UniversalClient {
			client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs()})
			t.Cleanup(func() { client.Close() })
			return client
		}, s.Master.Kill, s.Watch}
	},
	"moves to another shard": func(t *testing.T) stand {
		shards := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
		lose := func() { // that of a Board, or of a Budget
			for _, shard := range shards {
				if newClient(t, shard).Exists(ctx, hash, "heed:budget:k").Val() > 0 {
					shard.Kill()
				}
			}
		}
		return stand{func() redis.UniversalClient {
			ring := redis.NewRing(&redis.RingOptions{HeartbeatFrequency: 50 * ms,
				Addrs: map[string]string{"a": shards[0].Addr, "b": shards[1].Addr}})
			t.Cleanup(func() { ring.Close() })
			return ring
		}, lose, func() {}}
	},
	"is a cluster that stops": func(t *testing.T) stand {
		nodes := redistest.StartCluster(t)
		each := func(do func(*redistest.Server)) func() {
			return func() {
				for _, node := range nodes {
					do(node)
				}
			}
		}
		return stand{func() redis.UniversalClient { return newClusterClient(t, nodes) },
			each((*redistest.Server).Stop), each((*redistest.Server).Cont)}
	},
	"is behind a bad network": func(t *testing.T) stand {
		p := redistest.NewProxy(t, redistest.Shared(t).Addr)
		return stand{func() redis.UniversalClient {
			client := redis.NewClient(&redis.Options{Addr: p.Addr()})
			t.Cleanup(func() { client.Close() })
			return client
		}, func() { p.Swallow(true) }, func() {
			p.Swallow(false)
			p.SetDelay(5 * ms)
			p.Cut(rand.IntN(300))
		}}
	},
}
