package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// farBoard returns a Board with default options whose Redis is behind p.
func farBoard(t *testing.T, p *redistest.Proxy) *redisstore.Board {
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	b := &redisstore.Board{Client: client}
	t.Cleanup(func() { b.Close(); client.Close() })
	return b
}

func TestBoardsAgreeAfterABadNetwork(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Shared(t)
	proxies := make([]*redistest.Proxy, 3)
	boards := make([]*redisstore.Board, 3)
	for i := range boards {
		proxies[i] = redistest.NewProxy(t, server.Addr)
		boards[i] = farBoard(t, proxies[i])
		left(t, boards[i], host)
	}
	posted := time.Now()
	var longest time.Duration
	for range stated(200, 40) {
		p, b := proxies[rand.IntN(3)], boards[rand.IntN(3)]
		switch rand.IntN(8) {
		case 0:
			p.Swallow(true)
		case 1:
			p.Refuse(true)
		case 2:
			p.Cut(rand.IntN(300))
		case 3:
			p.Reset()
		case 4:
			p.SetDelay(time.Duration(rand.IntN(20)) * ms)
		default:
			p.Swallow(false)
			p.Refuse(false)
		}
		wait := time.Hour + time.Duration(rand.IntN(1000))*time.Second
		began := time.Now()
		b.Post(ctx, host, wait, 0)
		longest = max(longest, began.Add(wait).Sub(posted))
		time.Sleep(time.Duration(rand.IntN(60)) * ms)
	}
	for _, p := range proxies {
		p.Swallow(false)
		p.Refuse(false)
		p.Cut(-1)
		p.SetDelay(0)
		p.Reset()
	}
	for i, b := range boards {
		require.Eventually(t, func() bool { return left(t, b, host) >= longest-time.Since(posted)-ms }, hang, ms, "%d", i)
	}
	for _, b := range boards {
		require.Eventually(t, func() bool { return b.Post(ctx, "then", time.Hour, 0) == nil }, hang, ms)
		held(t, b, "then")
	}
}

func TestABoardFarFromRedisWorksByDefault(t *testing.T) {
	mostlyWaits(t)
	p := redistest.NewProxy(t, redistest.Shared(t).Addr)
	p.SetDelay(stated(20*ms, 5*ms)) // 20 ms leave a sync only 10 ms, which a busy machine may exceed
	a, b := farBoard(t, p), farBoard(t, p)
	for i := range 10 {
		key := fmt.Sprint(i)
		posts := time.Duration(0) // a sync may be in flight already
		require.Eventually(t, func() bool {
			posts++
			return a.Post(ctx, key, time.Hour+posts*time.Second, 0) == nil
		}, hang, ms)
		held(t, b, key)
	}
}

// Some scripts are executed, but their replies are lost.
func TestAReplacementHoldsAlthoughItsReplyIsLost(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Shared(t)
	p := redistest.NewProxy(t, server.Addr)
	a, b := farBoard(t, p), openBoard(t, newClient(t, server))
	require.Eventually(t, func() bool { return a.Post(ctx, "warm", time.Hour, 0) == nil }, hang, ms)
	for i := range 30 {
		key := fmt.Sprint(i)
		require.NoError(t, b.Post(ctx, key, 24*time.Hour, 0))
		held(t, a, key)
		p.Cut(rand.IntN(50))
		a.Replace(ctx, key, time.Minute, 0)
		p.Cut(-1)
		for _, one := range []*redisstore.Board{a, b} {
			require.Eventually(t, func() bool {
				l := left(t, one, key)
				return 0 < l && l <= time.Minute+time.Second
			}, hang, ms, i)
		}
	}
}
