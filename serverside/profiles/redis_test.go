package profiles_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// inRedis returns a client of a Redis, and Options that count there under a prefix.
func inRedis(t *testing.T, addr, prefix string) (*redis.Client, profiles.Options) {
	client := redis.NewClient(&redis.Options{
		Addr: addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
	})
	t.Cleanup(func() { client.Close() })
	o := options()
	o.Store = &redisstore.Store{Client: client, Prefix: prefix, Timeout: time.Minute}
	return client, o
}

// patient returns cfg with a timeout for a slow machine.
func patient(cfg serverside.Config) serverside.Config {
	cfg.StoreTimeout = time.Minute
	return cfg
}

// All keys in Redis expire.
func TestRedisKeysNameTheirParts(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	operator, _ := inRedis(t, server.Addr, "")
	// As the user of docs/redis.conf:
	require.NoError(t, operator.Do(ctx, "ACL", "SETUSER", "default", "resetkeys", "~heed:*").Err())
	for _, c := range []struct {
		profile, prefix, file string
		fields                []string
		names                 map[string][]string // hashes and their fields
	}{
		{"OPTIONS /api/auth/login", "heed:rate_limit:", "universal_routes.json", nil,
			map[string][]string{"heed:rate_limit:key:ip:203.0.113.45": {"/api/auth/login/1m"}}},
		{"GET /api/data", "heed:rate_limit:", "universal_routes.json", []string{"X-User", "usr_abc123"},
			map[string][]string{"heed:rate_limit:key:user:usr_abc123": {"/api/data/1m"}}},
		{"GET /x", "heed:rate_limit:", "universal.yaml", nil,
			map[string][]string{"heed:rate_limit:key:ip:203.0.113.45": {"address/1m", "address/penalty"},
				"heed:rate_limit:key:*": {"global:all/1m"}}},
		{"POST /signup", "heed:rl:", "forge.yaml", nil,
			map[string][]string{"heed:rl:key:ip:203.0.113.45": {"address/1m", "address/penalty"},
				"heed:rl:key:signup_ip:203.0.113.45": {"signup_ip/1m"}}},
		{"GET /x", "heed:rl:", "forge.yaml", []string{"X-Token", "t"},
			map[string][]string{"heed:rl:key:ip:203.0.113.45": {"address/1m", "address/penalty"},
				"heed:rl:key:api_token:1:t": {"api_token/requests"}}},
		{"GET /x", "heed:rl:", "forja.yaml", nil, map[string][]string{"heed:rl:key:ip:203.0.113.45": {"ip/s", "ip/m"}}},
		{"GET /api/x", "heed:rl:", "api.yaml", []string{"X-User", "7"},
			map[string][]string{"heed:rl:key:ip:203.0.113.45": {"address/1m", "address/penalty"},
				"heed:rl:key:query:0:7": {"query/1m"}}},
		{"GET /x", "heed:rl:", "patterns.yaml", []string{"X-User", "7"},
			map[string][]string{"heed:rl:key:ip:203.0.113.45": {"ip/1m"}, "heed:rl:key:user:7": {"user/1h"}}},
	} {
		client, o := inRedis(t, server.Addr, c.prefix)
		h := limited(t, patient(fromFile(t, c.file, o)))
		found := map[string][]string{}
		require.Eventually(t, func() bool { // some keys expire after a second
			require.NoError(t, client.FlushAll(ctx).Err()) // so that no limit denies a later attempt
			require.Equal(t, 200, ask(h, c.profile, c.fields...).Code)
			for _, name := range client.Keys(ctx, "*").Val() {
				ttl, value := client.PTTL(ctx, name).Val(), client.Get(ctx, name).Val()
				if ttl == -2 || value == "" {
					continue
				}
				assert.True(t, 0 < ttl && ttl < 3*time.Hour, "%s lives for %v", name, ttl)
				found[name] = nil
				for line := range strings.Lines(value) {
					limit, _, _ := strings.Cut(line, "\t")
					found[name] = append(found[name], limit)
				}
			}
			return len(found) >= len(c.names)
		}, time.Minute, time.Millisecond, c.file)
		for name := range found {
			assert.ElementsMatch(t, c.names[name], found[name], "%s: %s", c.file, name)
		}
		assert.Len(t, found, len(c.names), c.file)
	}
}

// Two replicas of the server get fifty requests at once.
func TestConcurrentRequestsKeepTheLimit(t *testing.T) {
	server := redistest.Start(t)
	_, one := inRedis(t, server.Addr, "")
	_, other := inRedis(t, server.Addr, "")
	for _, c := range []struct {
		config func(profiles.Options) serverside.Config
		what   string
		limit  int64
	}{
		{profiles.Forge, "GET /login", 5}, {profiles.Forja, "GET /x", 20},
		{profiles.Universal, "POST /api/account/x", 5}, {profiles.API, "POST /upload", 10},
	} {
		replicas := []serverside.Config{patient(c.config(one)), patient(c.config(other))}
		for i := range replicas {
			if replicas[i].Rules[0].MaxInFlight > 0 { // another limit
				replicas[i].Rules[0].Policies[0].Quota, replicas[i].Rules[0].MaxInFlight = c.limit, 0
			}
			for _, r := range replicas[i].Rules { // so that nothing is refilled meanwhile
				for p := range r.Policies {
					if r.Policies[p].Window > 0 {
						r.Policies[p].Window = 720 * time.Hour
					}
				}
			}
		}
		handlers := []*serverside.Limiter{must(t, replicas[0]), must(t, replicas[1])}
		var admitted atomic.Int64
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				h := handlers[i%2].Wrap(handler)
				if askFrom("198.51.100.99:1", h, c.what, "X-User", "ann", "X-Tenant", "acme").Code == 200 {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		assert.Equal(t, c.limit, admitted.Load(), c.what)
	}
}

func TestReplicasLimitGuessesTogether(t *testing.T) {
	server := redistest.Start(t)
	_, one := inRedis(t, server.Addr, "heed:rl:")
	_, other := inRedis(t, server.Addr, "heed:rl:")
	for _, p := range withLogin[:4] {
		limiters := []*serverside.Limiter{must(t, patient(p.of(one))), must(t, patient(p.of(other)))}
		began, codes := time.Now(), map[int]int{}
		for i := range 60 {
			h := limiters[i%2].Wrap(handler)
			peer := fmt.Sprintf("198.51.%d.7:1", i)
			codes[askFrom(peer, h, "POST "+p.path, "X-Account", p.name, "X-Fails", "yes").Code]++
		}
		assert.LessOrEqual(t, codes[401], 6+int(time.Since(began)/(12*time.Second)), "%s: %v", p.name, codes)
		assert.GreaterOrEqual(t, codes[401], 5, "%s: %v", p.name, codes)

		began, codes = time.Now(), map[int]int{}
		for i := range 300 {
			early := limiters[i%2].WrapEarly(authenticated(handler))
			codes[ask(early, "GET /api/items", "Authorization", fmt.Sprint("made up ", i)).Code]++
		}
		assert.LessOrEqual(t, codes[401], 101+int(time.Since(began)/(600*time.Millisecond)), "%s: %v", p.name, codes)
		require.NoError(t, one.Store.(*redisstore.Store).Client.FlushAll(t.Context()).Err())
	}
}

// A corrupt bucket neither admits everything nor denies for ever.
func TestMalformedCountInRedisStartsAnew(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	client, o := inRedis(t, server.Addr, "heed:rate_limit:")
	h := limited(t, patient(profiles.Universal(o)))
	for i, poison := range []string{"1000", "abc", "nan", "inf", "-inf", "", "1000 1000"} {
		user := fmt.Sprint("user", i)
		key := "heed:rate_limit:key:user:" + user
		require.NoError(t, client.Set(ctx, key, "/api/export/1h\tb1,1,1 "+poison, 0).Err())
		n, denied := spend(h, 20, "GET /api/export", "X-User", user)
		assert.Equal(t, 10, n, "%q", poison)
		assert.Equal(t, "0", numbers(denied)[1])
	}
}

// A key of another type is an outage: the failure mode decides.
func TestRedisKeyOfAnotherTypeEvadesNoLimit(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	client, o := inRedis(t, server.Addr, "heed:rl:")
	var failed atomic.Int64
	o.Audit = func(e serverside.Event) {
		if e.Kind == serverside.StoreFailed {
			failed.Add(1)
		}
	}
	require.NoError(t, client.ZAdd(ctx, "heed:rl:key:login:203.0.113.45", redis.Z{Score: 1, Member: "1"}).Err())
	n, _ := spend(limited(t, patient(profiles.API(o))), 20, "POST /login", "X-Account", "ann")
	assert.Equal(t, 5, n)
	assert.Positive(t, failed.Load())

	require.NoError(t, client.HSet(ctx, "heed:rl:key:query:0:7", "a", "1").Err())
	cfg := patient(profiles.API(o))
	cfg.OnStoreError = serverside.FailClosed
	for range 20 {
		assert.Equal(t, 503, ask(limited(t, cfg), "GET /api/x", "X-User", "7").Code)
	}
}
