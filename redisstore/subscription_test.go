package redisstore_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
)

// subscribeError returns the error for a channel that the user may not subscribe to.
func subscribeError(channel string) string {
	return "redisstore: changes arrive late: cannot subscribe to " + channel + ": NOPERM"
}

// firstError returns the first error of l.
func firstError(t *testing.T, l *redisstore.Limits) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err = l.Limits(ctx, "ann")
		return err != nil && strings.Contains(err.Error(), "subscribe")
	}, hang, ms)
	return err
}

func TestADocumentReportsAForbiddenChannel(t *testing.T) {
	server := redistest.Shared(t)
	must(t, server, "ACL", "SETUSER", "muted", "on", "nopass", "~*", "resetchannels", "+@all")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "muted", Password: "x"})
	defer client.Close()
	within, stop := context.WithCancel(ctx)
	defer stop()
	d := &redisstore.Document{Client: client, Degraded: func(err error) {
		assert.ErrorContains(t, err, subscribeError("heed:rules"))
		stop()
	}}
	d.Follow(within, func() {})
}

func TestAnInvalidReplyToASubscriptionIsReported(t *testing.T) {
	for name, reply := range map[string]string{
		"a text": "+OK\r\n", "a number": ":1\r\n", "an empty list": "*0\r\n", "numbers": "*2\r\n:1\r\n:1\r\n",
		"another list": "*1\r\n$2\r\nxy\r\n", "garbage": redistest.Garbage, "nothing": redistest.HangUp,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{Addr: redistest.NewFake(t, reply).Addr, MaxRetries: -1})
			defer client.Close()
			l := &redisstore.Limits{Client: client}
			defer l.Close()
			assert.ErrorContains(t, firstError(t, l), "cannot subscribe to heed:limits:changed: ")
		})
	}
}

// complaints returns what l reports about its subscription in a time.
func (s *limitsFake) complaints(t *testing.T, l *redisstore.Limits, in time.Duration) (all []string) {
	for end := time.Now().Add(in); time.Now().Before(end); time.Sleep(50 * ms) {
		if _, err := l.Limits(t.Context(), "ann"); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}

func TestEachReasonForALostSubscriptionIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		l := s.limits(t, &redisstore.Limits{})
		for range 2 { // a second time, after messages worked in between
			s.set(func() { s.noSubscriptions = true })
			s.restart()
			reported := s.complaints(t, l, stated(time.Hour, 5*time.Minute))
			require.Len(t, reported, 1)
			assert.Contains(t, reported[0], subscribeError("heed:limits:changed"))
			s.set(func() { s.noSubscriptions = false })
			assert.Empty(t, s.complaints(t, l, time.Minute))
		}
		s.set(func() { s.noSubscriptions = true })
		s.restart()
		time.Sleep(time.Minute) // nobody asks
		s.set(func() { s.noSubscriptions = false })
		time.Sleep(time.Minute)
		assert.Empty(t, s.complaints(t, l, time.Minute), "it is over")
	})
}

func TestADocumentLogsOrReportsWhyItGetsNoMessages(t *testing.T) {
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		s.set(func() { s.noSubscriptions = true })
		within, stop := context.WithTimeout(t.Context(), stated(time.Hour, 10*time.Minute))
		defer stop()
		client := s.client()
		defer client.Close()
		(&redisstore.Document{Client: client}).Follow(within, func() {})
	})
	assert.Equal(t, 1, strings.Count(text.String(), "\n"), text.String())
	assert.Contains(t, text.String(), "level=WARN msg=rate_limit.rules_unheard")
	assert.Contains(t, text.String(), subscribeError("heed:rules"))
}

// Processes that lost Redis at the same time try to subscribe again less and less often, each at random
// times.
func TestAFleetSubscribesAgainAtDifferentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes := stated(100, 40)
		s := newLimitsStand(t)
		var mu sync.Mutex // guards dials
		dials := make([][]time.Duration, processes)
		start := time.Now()
		var all sync.WaitGroup
		within, stop := context.WithCancel(t.Context())
		s.set(func() { s.gone = true })
		for i := range processes {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: 1000, DialerRetries: 1,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					mu.Lock()
					defer mu.Unlock()
					dials[i] = append(dials[i], time.Since(start))
					return s.dial(ctx, network, addr)
				}})
			defer client.Close()
			d := redisstore.Document{Client: client, Degraded: func(error) {}}
			all.Go(func() { d.Follow(within, func() {}) })
		}
		time.Sleep(10 * time.Minute)
		s.set(func() { s.gone = false })
		time.Sleep(time.Minute)
		var back []time.Duration
		s.set(func() { assert.Len(t, s.subs, processes) })
		for _, at := range dials {
			tried := at[:len(at)-1]
			assert.InDelta(t, 600/5, len(tried), 50, "on average every five seconds each")
			for i := 1; i < len(at); i++ {
				assert.LessOrEqual(t, at[i]-at[i-1], 10*time.Second)
			}
			back = append(back, at[len(at)-1]-10*time.Minute)
		}
		slices.Sort(back)
		assert.Less(t, back[processes-1], 10*time.Second)
		for i := range processes - 30 {
			assert.Greater(t, back[i+30]-back[i], time.Second, "%v", back)
		}
		stop()
		all.Wait()
	})
}
