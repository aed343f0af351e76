package redisstore_test

import (
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var pooled = quota.Policy{Name: "pooled", Quota: 1000, Window: time.Second, Burst: 500}

// ways are how the processes of a fleet use their Stores.
var ways = map[string]func(t *testing.T, s *redisstore.Store, limit *quota.Limit) use{
	"taking": func(_ *testing.T, s *redisstore.Store, limit *quota.Limit) use {
		return func(key string) (at time.Time, ok bool, wait time.Duration, err error) {
			ds, err := s.Take(ctx, nil, quota.Charge{Key: key, Limit: limit})
			if err != nil {
				return at, false, 0, err
			}
			return ds[0].At, ds[0].Allowed, ds[0].RetryAfter, nil
		}
	},
	"reserving": func(_ *testing.T, s *redisstore.Store, limit *quota.Limit) use { return reserving(s, limit) },
	"leasing": func(t *testing.T, s *redisstore.Store, limit *quota.Limit) use {
		lease := &redisstore.Lease{Store: s}
		t.Cleanup(func() { _ = lease.Close(ctx) })
		use := reserving(lease, limit)
		return func(key string) (at time.Time, ok bool, wait time.Duration, err error) {
			_, ok, wait, err = use(key)
			return time.Now(), ok, wait, err // it may be later than reserved
		}
	},
}

// reserving waits for the time of its reservation.
func reserving(r quota.Reserver, limit *quota.Limit) use {
	return func(key string) (time.Time, bool, time.Duration, error) {
		wait, at, ok, err := r.Reserve(ctx, 100*ms, quota.Charge{Key: key, Limit: limit})
		if ok {
			time.Sleep(wait)
		}
		return at, ok, wait, err
	}
}

// A fleet is several processes that use one key together, each with its own Store.
type fleet struct {
	*load
	redis   *redistest.Server
	clients []*redis.Client
}

// faults are what may happen to a fleet. They return how many units an empty Redis admits again.
var faults = map[string]func(t *testing.T, f *fleet) (forgiven int64){
	"nothing happens": func(*testing.T, *fleet) int64 { return 0 },
	"a third are killed": func(_ *testing.T, f *fleet) int64 {
		for _, client := range f.clients[:len(f.clients)/3] {
			client.Close()
		}
		return 0
	},
	"Redis is stopped": func(t *testing.T, f *fleet) int64 {
		f.redis.Stop()
		f.awaitFailures(t)
		f.redis.Cont()
		return 0
	},
	"Redis is killed": func(t *testing.T, f *fleet) int64 {
		f.redis.Kill()
		f.awaitFailures(t)
		f.redis.Restart()
		return pooled.Burst
	},
}

func (f *fleet) awaitFailures(t *testing.T) {
	t.Helper()
	enough := f.failed.Load() + int64(len(f.clients))
	require.Eventually(t, func() bool { return f.failed.Load() >= enough }, hang, ms)
	time.Sleep(stated(5*time.Second, 0))
}

// In no time is more used than the bucket admits. A Lease uses units up to 250 ms late; only the long form
// checks that, because a busy machine may suspend a process for longer. Counted from the start, no more is used
// than the bucket admits, however late.
func TestAFleetKeepsToTheLimit(t *testing.T) {
	mostlyWaits(t)
	for way, using := range ways {
		for what, fault := range faults {
			if way == "reserving" && what != "nothing happens" {
				continue // an empty Redis does not know of the units that are reserved
			}
			t.Run(way+", "+what, func(t *testing.T) {
				f := &fleet{load: newLoad(t, pooled, "pool"), redis: redistest.Shared(t)}
				for range stated(10, 4) {
					client := newClient(t, f.redis)
					f.clients = append(f.clients, client)
					s := &redisstore.Store{Client: client, Timeout: stated(50*ms, 300*ms)}
					f.start(3, using(t, s, compile(t, pooled)))
				}
				f.goOn(t, 10*time.Second)
				forgiven := fault(t, f)
				back := time.Now()
				f.goOn(t, 10*time.Second)
				f.end()

				used, most, late := f.used["pool"].times(), pooled, int64(0)
				if way == "leasing" {
					late = pooled.Quota / 4
				}
				if most.Burst += forgiven; forgiven > 0 { // units of the near future may be unknown to an empty Redis
					most.Burst += late
				}
				for n, at := range used {
					admitted := most.Burst + most.Quota*(at-f.began.UnixMicro())/most.Window.Microseconds()
					require.LessOrEqual(t, int64(n+1), admitted, "since the start")
				}
				if late == 0 || testenv.Long() {
					most.Burst = pooled.Burst + forgiven + late
					assert.Zero(t, excess(used, most), "in some time")
				}
				after := time.UnixMicro(between(used, back, time.Now())[0]).Sub(back)
				t.Logf("%d used, %d calls failed, used again %v later", len(used), f.failed.Load(), after)
				if testenv.Long() {
					assert.Less(t, after, time.Second)
				}
			})
		}
	}
}
