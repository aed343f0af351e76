package redisstore_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// uses has what a component needs of a user.
var uses = map[string]func(*testing.T, redis.UniversalClient){
	"heed-store":    useStore,
	"heed-gate":     useGate,
	"heed-budget":   useBudget,
	"heed-board":    useBoard,
	"heed-limits":   useLimits,
	"heed-document": useDocument,
}

// Each user that docs/redis.md has for one component may do what the component needs, and may not use
// the keys of the others. The user heed may do all that, on a Cluster too.
func TestEachDocumentedUserHasThePermissionsItNeeds(t *testing.T) {
	mostlyWaits(t)
	for user, use := range uses {
		t.Run(user, func(t *testing.T) { useAs(t, user, use, redistest.Shared(t)) })
		t.Run("heed as "+user, func(t *testing.T) { useAs(t, "heed", use, redistest.Shared(t)) })
	}
	t.Run("heed on a Cluster", func(t *testing.T) { useAs(t, "heed", useStore, redistest.SharedCluster(t)...) })
	for command := range commandsOfScripts(t) {
		assert.Contains(t, strings.Fields(rulesOf(t, "heed")), "+"+strings.ToLower(command))
	}
}

// rulesOf returns the rules that docs/redis.md has for a user.
func rulesOf(t *testing.T, user string) string {
	page, err := os.ReadFile("../docs/redis.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "    ACL SETUSER "+user+" ")
	require.True(t, found)
	rules, _, _ := strings.Cut(rest, "\n\n")
	return rules
}

// useAs calls use with a client of a documented user. Of several servers it is a cluster's.
func useAs(t *testing.T, user string, use func(*testing.T, redis.UniversalClient), servers ...*redistest.Server) {
	args := []any{"ACL", "SETUSER", user}
	for _, rule := range strings.Fields(rulesOf(t, user)) {
		args = append(args, rule)
	}
	// Without DisableIdentity go-redis sends CLIENT SETINFO, which this user may not.
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs(servers), Username: user, Password: "secret", DisableIdentity: true,
	})
	t.Cleanup(func() { client.Close() })
	for _, server := range servers {
		admin := newClient(t, server)
		require.NoError(t, admin.Do(ctx, args...).Err())
		admin.HSet(ctx, "heed:limits:key", "per_minute", 5) // fails on all servers of a cluster but one
		admin.Set(ctx, "heed:rules", "rules: []", 0)
	}
	use(t, client)
	for _, server := range servers {
		assert.Empty(t, newClient(t, server).Do(ctx, "ACL", "LOG").Val(), "denied")
	}
	assert.ErrorContains(t, client.Set(ctx, "other", 1, 0).Err(), "NOPERM")
	assert.ErrorContains(t, client.HSet(ctx, "other", "a", 1).Err(), "NOPERM")
	if user != "heed" {
		assert.ErrorContains(t, client.HSet(ctx, "heed:other", "a", 1).Err(), "NOPERM")
	}
}

func useStore(t *testing.T, client redis.UniversalClient) {
	s := &redisstore.Store{Client: client, Timeout: patient}
	require.NoError(t, s.Ping(ctx))
	for algorithm := quota.TokenBucket; algorithm <= quota.SlidingLog; algorithm++ {
		limit := compile(t, quota.Policy{Quota: 100, Window: time.Minute, Algorithm: algorithm})
		charge := quota.Charge{Key: "key " + algorithm.String(), Limit: limit}
		for _, charge.ID = range []string{"", "once"} {
			for name, call := range calls(s, charge) {
				assert.NoError(t, call(ctx), "%v, %v, %q", name, algorithm, charge.ID)
			}
		}
		charge.ID, charge.N = "", -1
		assert.NoError(t, s.Settle(ctx, charge))
		_, err := s.Inspect(ctx, charge.Key)
		assert.NoError(t, err)
		assert.NoError(t, s.Reset(ctx, charge.Key))
	}
	_, err := s.Take(ctx, nil, quota.Charge{Key: "a", ID: "a", Limit: compile(t, quota.PerDay(10))},
		quota.Charge{Key: "a", Limit: compile(t, quota.PerHour(10))})
	assert.NoError(t, err)
	if single, ok := client.(*redis.Client); ok {
		refuseOne(t, single)
	}
	lease := &redisstore.Lease{Store: s}
	for range 100 {
		_, err := lease.Take(ctx, nil, quota.Charge{Key: "leased", Limit: compile(t, quota.PerSecond(1000))})
		assert.NoError(t, err)
	}
	assert.NoError(t, lease.Close(ctx))
}

// refuseOne makes a call for two Keys on a Ring. One is denied, so the other is given back.
func refuseOne(t *testing.T, client *redis.Client) {
	o := client.Options()
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"one": o.Addr}, Username: o.Username, Password: o.Password, DisableIdentity: true,
	})
	t.Cleanup(func() { ring.Close() })
	s, limit := &redisstore.Store{Client: ring, Timeout: patient}, compile(t, quota.PerDay(10))
	ds, err := s.Take(ctx, nil,
		quota.Charge{Key: "b", ID: "b", Limit: limit}, quota.Charge{Key: "c", N: 11, Limit: limit})
	require.NoError(t, err)
	assert.False(t, ds[1].Allowed)
	states, err := s.Inspect(ctx, "b")
	require.NoError(t, err)
	for _, state := range states {
		assert.Zero(t, state.Bucket.Level, "given back")
	}
}

func useGate(t *testing.T, client redis.UniversalClient) {
	s := &redisstore.Store{Client: client, Timeout: patient}
	for range 2 {
		hold, d, err := s.Acquire(ctx, "key", 2, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		hold.Release()
	}
}

func useBudget(t *testing.T, client redis.UniversalClient) {
	assert.True(t, failing(t, slowly(client)).Withdraw(ctx, host))
	b := failing(t, slowly(client))
	b.Key = ""
	assert.True(t, b.Withdraw(ctx, host))
}

func useBoard(t *testing.T, client redis.UniversalClient) {
	posting := &redisstore.Board{Client: client, Timeout: patient}
	reading := &redisstore.Board{Client: client, Timeout: patient}
	t.Cleanup(func() { posting.Close(); reading.Close() })
	hears := func(most time.Duration) func() bool {
		return func() bool {
			wait, _, err := reading.Read(ctx, host)
			return assert.NoError(t, err) && (wait > 0) == (most > 0) && wait <= most
		}
	}
	require.NoError(t, posting.Post(ctx, host, time.Hour, time.Second))
	require.Eventually(t, hears(time.Hour), hang, time.Millisecond)
	require.NoError(t, posting.Replace(ctx, host, 0, 0))
	require.Eventually(t, hears(0), hang, time.Millisecond)
}

func useLimits(t *testing.T, client redis.UniversalClient) {
	limits := &redisstore.Limits{Client: client, Timeout: patient}
	t.Cleanup(func() { limits.Close() })
	policies, err := limits.Limits(ctx, "key")
	require.NoError(t, err)
	assert.Len(t, policies, 1)
	require.Eventually(t, func() bool { return listens(t, client, "heed:limits:changed") }, hang, time.Millisecond)
}

func useDocument(t *testing.T, client redis.UniversalClient) {
	document := &redisstore.Document{Client: client, Timeout: patient, Degraded: func(err error) { t.Error(err) }}
	text, err := document.Read(ctx)
	require.NoError(t, err)
	assert.NotEmpty(t, text)
	following, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); document.Follow(following, func() {}) }()
	t.Cleanup(func() { stop(); <-ended })
	require.Eventually(t, func() bool { return listens(t, client, "heed:rules") }, hang, time.Millisecond)
}

// listens reports whether the user of client may subscribe to a channel. It asks as another user.
func listens(t *testing.T, client redis.UniversalClient, channel string) bool {
	admin := redis.NewClient(&redis.Options{Addr: client.(*redis.Client).Options().Addr})
	defer admin.Close()
	numbers, err := admin.PubSubNumSub(ctx, channel).Result()
	require.NoError(t, err)
	return numbers[channel] > 0
}
