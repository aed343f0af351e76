package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
)

// command runs heed, and returns all it prints.
func command(args ...string) (code int, said string) {
	var out bytes.Buffer
	s := &session{in: &out, out: &out, err: &out, now: time.Now().UTC()}
	return s.run(args), out.String()
}

func TestWhatASubjectOwesIsShownAndForgotten(t *testing.T) { // F198
	addr := redistest.Start(t).Addr
	t.Setenv("REDIS_URL", "redis://"+addr+"/0")
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	store := &redisstore.Store{Client: client, Timeout: patience}
	other := &redisstore.Store{Client: client, Timeout: patience, Prefix: "other:"}
	hour, err := quota.Policy{Name: "api/1h", Quota: 10, Window: time.Hour}.Compile()
	require.NoError(t, err)
	window, err := quota.Policy{Name: "api/1d", Quota: 10, Window: 24 * time.Hour, Algorithm: quota.SlidingWindow}.Compile()
	require.NoError(t, err)
	for _, s := range []*redisstore.Store{store, other} {
		_, err = s.Take(context.Background(), nil, quota.Charge{Key: "key:ann", Limit: hour, N: 3},
			quota.Charge{Key: "key:ann", Limit: window, N: 4}, quota.Charge{Key: "key:ann", Limit: hour, DryRun: true})
		require.NoError(t, err)
	}

	const moment = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`
	code, said := command("store", "show", "key:ann")
	assert.Zero(t, code)
	assert.Regexp(t, `^"api/1d": 4 owed at `+moment+`\n"api/1h": 3 owed at `+moment+`\n"api/1h": 1 owed at `+moment+`, as a dry run\n$`, said)
	code, said = command("store", "reset", "key:ann")
	assert.Zero(t, code)
	assert.Equal(t, "\"key:ann\" owes nothing any more.\n", said)
	code, said = command("store", "show", "key:ann")
	assert.Zero(t, code)
	assert.Equal(t, "\"key:ann\" owes nothing.\n", said)
	_, said = command("store", "show", "-prefix", "other:", "key:ann")
	assert.Contains(t, said, `"api/1h": 3 owed`)
}

func TestARedisThatCannotBeAskedIsAFault(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	for _, args := range [][]string{{"store", "show", "key:ann"}, {"store", "reset", "key:ann"}} {
		code, said := command(args...)
		assert.Equal(t, wrong, code)
		assert.Contains(t, said, "redisstore: REDIS_URL: is missing")
	}
	fake := redistest.NewFake(t, redistest.WrongType)
	t.Setenv("REDIS_URL", "redis://:s3cret@"+fake.Addr)
	for _, args := range [][]string{{"store", "show", "key:ann"}, {"store", "reset", "key:ann"}} {
		code, said := command(args...)
		assert.Equal(t, wrong, code)
		assert.NotContains(t, said, "s3cret")
	}
	for _, args := range [][]string{{"store"}, {"store", "show"}, {"store", "show", "a", "b"}, {"store", "forget", "a"}} {
		code, _ := command(args...)
		assert.Equal(t, help, code, args)
	}
}

func TestACountOfAWindowHasTheOneBefore(t *testing.T) {
	s := &session{now: time.Unix(0, 0).UTC()}
	state := quota.State{Name: "api/1d", Bucket: quota.Bucket{Time: 1795262400000000, Level: 9, Unit: 2, Prev: 3}}
	assert.Equal(t, `"api/1d": 4.5 owed at 2026-11-21 12:00:00 UTC, and 3 in the window before`, s.owed(state))
}

func TestAllDigitsOfALargeCountAreShown(t *testing.T) {
	s := &session{now: time.Unix(0, 0).UTC()}
	for want, b := range map[string]quota.Bucket{
		"1234567":    {Level: 1234567, Unit: 1},
		"123456.333": {Level: 370369, Unit: 3},
		"0.5":        {Level: 1, Unit: 2},
	} {
		assert.Contains(t, s.owed(quota.State{Name: "api", Bucket: b}), ": "+want+" owed at ")
	}
}

func TestACountThatCannotBeReadIsAFault(t *testing.T) {
	server := redistest.Start(t)
	t.Setenv("REDIS_URL", "redis://"+server.Addr)
	_, err := server.Do("HSET", "heed:quota:key:ann", "api/1h", "nonsense")
	require.NoError(t, err)
	code, said := command("store", "show", "key:ann")
	assert.Equal(t, wrong, code)
	assert.Contains(t, said, `1 counts of "key:ann" cannot be read, and are as good as none`)
	assert.NotContains(t, said, "owes nothing")
}
