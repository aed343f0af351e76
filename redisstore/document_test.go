package redisstore_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
)

func TestReadReturnsTheCurrentDocument(t *testing.T) {
	server := redistest.Shared(t)
	d := &redisstore.Document{Client: newClient(t, server), Key: "heed:text", Timeout: patient}
	_, err := d.Read(ctx)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.EqualError(t, err, "redisstore: heed:text: file does not exist")
	for _, text := range []string{"one", "two\nlines", "\x00\xff"} {
		must(t, server, "SET", "heed:text", text)
		got, err := d.Read(ctx)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	longest := strings.Repeat("x", 1<<20-1)
	must(t, server, "SET", "heed:text", longest)
	must(t, server, "APPEND", "heed:text", "y")
	got, err := d.Read(ctx)
	require.NoError(t, err)
	assert.Equal(t, longest+"y", string(got))
	must(t, server, "APPEND", "heed:text", "z")
	_, err = d.Read(ctx)
	assert.EqualError(t, err, "redisstore: heed:text is longer than 1 MiB")
	must(t, server, "DEL", "heed:text")
	must(t, server, "HSET", "heed:text", "a", "b")
	_, err = d.Read(ctx)
	assert.ErrorContains(t, err, "WRONGTYPE")
}

func TestADocumentReadEndsAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := silentRedis(t, redis.Options{})
		d := &redisstore.Document{Client: client, Timeout: 50 * ms}
		start := time.Now()
		_, err := d.Read(t.Context())
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 50*ms, time.Since(start))
	})
	_, err := new(redisstore.Document).Read(ctx)
	assert.EqualError(t, err, "redisstore: Client is nil")
}

// It does not wait for the next probe of the breaker.
func TestADocumentIsReadAsSoonAsRedisIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		client := s.client()
		defer client.Close()
		d := &redisstore.Document{Client: client}
		s.set(func() { s.gone = true })
		for range 3 {
			_, err := d.Read(t.Context())
			assert.ErrorContains(t, err, "connection refused")
		}
		s.set(func() { s.gone = false })
		_, err := d.Read(t.Context())
		assert.EqualError(t, err, `redisstore: heed:rules: unexpected reply "[]"`, "it was asked")
	})
}

// Each message counts, and so does the start of a subscription, before which messages were lost.
func TestFollowReportsPossibleChanges(t *testing.T) {
	mostlyWaits(t)
	server := redistest.Shared(t)
	for name, client := range map[string]redis.UniversalClient{"one": newClient(t, server), "cluster": newCluster(t)} {
		d := &redisstore.Document{Client: client, Interval: time.Hour}
		within, stop := context.WithCancel(ctx)
		changes, over := make(chan bool, 100), make(chan bool)
		go func() {
			defer close(over)
			d.Follow(within, func() { changes <- true })
		}()
		<-changes // now it is subscribed
		for range 3 {
			require.NoError(t, client.Publish(ctx, "heed:rules", "").Err())
			select {
			case <-changes:
			case <-time.After(hang):
				require.Fail(t, "nothing arrived", name)
			}
		}
		stop()
		<-over
		assert.Empty(t, changes)
	}
}

func TestFollowReportsEachIntervalEvenWithoutRedis(t *testing.T) {
	for interval, want := range map[time.Duration]int{ms: 36_000, 0: 360, 10 * time.Minute: 6} {
		synctest.Test(t, func(t *testing.T) {
			within, stop := context.WithTimeout(t.Context(), time.Hour+ms/2)
			defer stop()
			changes := 0
			(&redisstore.Document{Interval: interval}).Follow(within, func() { changes++ })
			assert.InDelta(t, want, changes, 1, "every %v, but at most every 100 ms", interval)
		})
	}
}
