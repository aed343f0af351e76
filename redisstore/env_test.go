package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

func TestFromEnvConnectsToTheRedisOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		url, tls string
		options  redis.Options
		secured  string // the server name for TLS
	}{
		{
			"redis://:s3cret@redis.example:6380/2", "",
			redis.Options{Addr: "redis.example:6380", Password: "s3cret", DB: 2}, "",
		},
		{"redis://:s3cret@redis.example", "false", redis.Options{Addr: "redis.example:6379", Password: "s3cret"}, ""},
		{
			"redis://:s3cret@redis.example:6379/0", "true",
			redis.Options{Addr: "redis.example:6379", Password: "s3cret"}, "redis.example",
		},
		{"redis://[2001:db8::1]:6379", "true", redis.Options{Addr: "[2001:db8::1]:6379"}, "2001:db8::1"},
		{
			"rediss://:s3cret@redis.example:6379/0", "",
			redis.Options{Addr: "redis.example:6379", Password: "s3cret"}, "redis.example",
		},
		{
			"rediss://:s3cret@redis.example:6379/0", "true",
			redis.Options{Addr: "redis.example:6379", Password: "s3cret"}, "redis.example",
		},
	} {
		t.Setenv("REDIS_URL", c.url)
		t.Setenv("REDIS_TLS", c.tls)
		store, err := redisstore.FromEnv()
		require.NoError(t, err, c.url)
		client := store.Client.(*redis.Client)
		got := client.Options()
		assert.Equal(t, []any{c.options.Addr, c.options.Password, c.options.DB}, []any{got.Addr, got.Password, got.DB})
		assert.Equal(t, c.secured != "", got.TLSConfig != nil, c.url)
		if c.secured != "" {
			assert.Equal(t, c.secured, got.TLSConfig.ServerName)
		}
		assert.NotContains(t, fmt.Sprint(store.Client), "s3cret")
		require.NoError(t, client.Close())
	}
}

func TestFromEnvOrHasADefaultURL(t *testing.T) {
	t.Setenv("REDIS_TLS", "")
	for url, want := range map[string]string{"": "127.0.0.1:6379", "redis://redis.example": "redis.example:6379"} {
		t.Setenv("REDIS_URL", url)
		store, err := redisstore.FromEnvOr("redis://127.0.0.1:6379")
		require.NoError(t, err)
		assert.Equal(t, want, store.Client.(*redis.Client).Options().Addr)
		require.NoError(t, store.Client.Close())
	}
}

func TestFromEnvReportsFaultsWithoutSecrets(t *testing.T) {
	const (
		missing = "redisstore: REDIS_URL is not set: for example redis://:password@host:6379/0"
		invalid = "redisstore: REDIS_URL is not the URL of a Redis, such as redis://:password@host:6379/0"
	)
	for _, c := range []struct{ url, tls, want string }{
		{"", "", missing},
		{"", "s3cret", missing + "\nredisstore: REDIS_TLS must be true or false"},
		{"http://:s3cret@host", "", invalid},
		{"redis://:s3cret@host:port", "", invalid},
		{"rediss://:s3cret@host", "false", "redisstore: REDIS_TLS is false, but REDIS_URL begins with rediss"},
		{
			"unix:///run/redis.sock", "true",
			"redisstore: REDIS_TLS is true, but REDIS_URL is a Unix socket, which has no TLS",
		},
	} {
		t.Setenv("REDIS_URL", c.url)
		t.Setenv("REDIS_TLS", c.tls)
		_, err := redisstore.FromEnv()
		assert.EqualError(t, err, c.want)
		_, ok := errors.AsType[*redisstore.EnvError](err)
		assert.True(t, ok)
	}
}

func TestRedisTimeoutSetsTheTimeoutOfTheStore(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://redis.example")
	t.Setenv("REDIS_TLS", "")
	for text, want := range map[string]time.Duration{"": 0, "20ms": 20 * time.Millisecond, "1s": time.Second} {
		t.Setenv("REDIS_TIMEOUT", text)
		store, err := redisstore.FromEnv()
		require.NoError(t, err)
		assert.Equal(t, want, store.Timeout)
		require.NoError(t, store.Client.Close())
	}
	for _, text := range []string{"20", "0s", "-1s", "redis://:s3cret@host"} {
		t.Setenv("REDIS_TIMEOUT", text)
		_, err := redisstore.FromEnv()
		assert.EqualError(t, err, "redisstore: REDIS_TIMEOUT must be a duration, such as 20ms")
	}
}

func TestAStoreFromTheEnvironmentCounts(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://"+redistest.Shared(t).Addr)
	t.Setenv("REDIS_TLS", "")
	t.Setenv("REDIS_TIMEOUT", hang.String())
	store, err := redisstore.FromEnv()
	require.NoError(t, err)
	defer store.Client.Close()
	limit, err := quota.PerHour(1).Compile()
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		ds, err := store.Take(t.Context(), nil, quota.Charge{Key: "k", Limit: limit})
		require.NoError(t, err)
		assert.Equal(t, want, ds[0].Allowed)
	}
}
