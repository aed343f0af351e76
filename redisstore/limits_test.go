package redisstore_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

var _ serverside.Limits = (*redisstore.Limits)(nil)

// A limitsFake is a Redis for Limits inside a synctest bubble.
type limitsFake struct {
	*boardFake
	hashes map[string][]any // guarded by mu
}

func newLimitsStand(t *testing.T) *limitsFake {
	return &limitsFake{newBoardFake(t), make(map[string][]any)}
}

// limits returns a Limits of another process, which gets messages.
func (s *limitsFake) limits(t *testing.T, l *redisstore.Limits) *redisstore.Limits {
	client := s.client()
	l.Client = client
	t.Cleanup(func() {
		s.set(func() { s.silent = false })
		time.Sleep(10 * time.Second)
		l.Close()
		client.Close()
	})
	l.Limits(t.Context(), "the first")
	time.Sleep(10 * ms)
	s.took()
	return l
}

func (s *limitsFake) client() *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: s.dial, DialerRetries: 1})
	client.AddHook(s)
	return client
}

func (s *limitsFake) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		isProbe := len(args) == 3
		if cmd.Name() != "evalsha" || len(args) != 4 && !isProbe {
			return next(ctx, cmd)
		}
		delay, silent, gone := s.state()
		if !isProbe {
			s.set(func() { s.calls = append(s.calls, time.Now()) })
		}
		switch {
		case gone:
			return errGone
		case silent:
			<-ctx.Done()
			return ctx.Err()
		}
		if isProbe {
			return nil
		}
		time.Sleep(delay)
		var hash []any
		s.set(func() { hash = append(hash, s.hashes[args[3].(string)]...) })
		time.Sleep(delay)
		cmd.(interface{ SetVal(any) }).SetVal(hash)
		return nil
	}
}

// put executes HSET.
func (s *limitsFake) put(key string, fields ...any) {
	s.set(func() { s.hashes["heed:limits:"+key] = fields })
}

// publish executes PUBLISH, and waits until the message has arrived.
func (s *limitsFake) publish(message string) {
	s.set(func() {
		for _, sub := range s.subs {
			sub <- fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%d\r\n%s\r\n", len(message), message)
		}
	})
	time.Sleep(10 * ms)
}

// limitsOf returns a key's limits, and how often Redis was asked for them.
func (s *limitsFake) limitsOf(t *testing.T, l *redisstore.Limits, key string) (policies []quota.Policy, asked int) {
	t.Helper()
	policies, err := l.Limits(t.Context(), key)
	require.NoError(t, err)
	time.Sleep(10 * ms) // for reads in the background
	return policies, s.took()
}

func perMinute(n int64) []quota.Policy { return []quota.Policy{quota.PerMinute(n)} }

func newLimits(t testing.TB, server *redistest.Server) *redisstore.Limits {
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	l := &redisstore.Limits{Client: client, Timeout: hang}
	t.Cleanup(func() { l.Close(); client.Close() })
	return l
}

func must(t testing.TB, server *redistest.Server, command ...string) {
	t.Helper()
	_, err := server.Do(command...)
	require.NoError(t, err)
}

func TestLimitsOfAKeyAreReadFromAHash(t *testing.T) {
	server := redistest.Shared(t)
	must(t, server, "HSET", "heed:limits:all", "per_day", "4", "per_hour", "3", "per_minute", "2", "per_second", "1")
	must(t, server, "HSET", "heed:limits:some", "per_minute", "120", "per_day", "0")
	must(t, server, "HSET", "heed:limits:blocked", "per_minute", "120", "blocked", "1")
	must(t, server, "HSET", "heed:limits:unblocked", "per_minute", "120", "blocked", "0")
	must(t, server, "HSET", "heed:limits:as others", "blocked", "0")
	must(t, server, "SET", "heed:limits:text", "120")
	l := newLimits(t, server)
	for key, want := range map[string][]quota.Policy{
		"all":  {quota.PerSecond(1), quota.PerMinute(2), quota.PerHour(3), quota.PerDay(4)},
		"some": {quota.PerMinute(120), quota.PerDay(0)},
		"none": nil,

		"blocked":   {{Quota: quota.Blocked}, quota.PerMinute(120)},
		"unblocked": {quota.PerMinute(120)}, "as others": nil,
	} {
		got, err := l.Limits(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, want, got, key)
	}
	_, err := l.Limits(t.Context(), "text")
	assert.EqualError(t, err, `redisstore: the limits of "text": must be a hash`)
	assert.EqualValues(t, 1, l.Corrupt())
}

func TestOnlyTheStartOfAnInvalidHashIsRead(t *testing.T) {
	server := redistest.Shared(t)
	large := strings.Repeat("9", 1<<20)
	must(t, server, "HSET", "heed:limits:value", "per_minute", large)
	must(t, server, "HSET", "heed:limits:field", large, "1")
	for i := range 100 {
		must(t, server, "HSET", "heed:limits:many", fmt.Sprint(i), "1")
	}
	must(t, server, "HSET", "heed:limits:line", "one\nlevel=INFO", "1")
	l := newLimits(t, server)
	const unknown = ": is unknown: must be per_second, per_minute, per_hour, per_day or blocked"
	for key, want := range map[string]string{
		"line":  `redisstore: the limits of "line": "one\nlevel=INFO"` + unknown,
		"value": `redisstore: the limits of "value": per_minute: is "1048576 bytes long": must be a whole number`,
		"field": `redisstore: the limits of "field": ` + large[:64] + unknown,
		"many": `redisstore: the limits of "many": ` +
			`must have no fields but per_second, per_minute, per_hour, per_day and blocked: has 100`,
	} {
		policies, err := l.Limits(t.Context(), key)
		assert.EqualError(t, err, want)
		assert.Empty(t, policies)
	}
	read, err := server.Do("INFO", "stats")
	require.NoError(t, err)
	var sent int
	_, err = fmt.Sscanf(read[strings.Index(read, "total_net_output_bytes:"):], "total_net_output_bytes:%d", &sent)
	require.NoError(t, err)
	assert.Less(t, sent, 1<<19)
}

func TestChangedLimitsHoldForTheNextRequest(t *testing.T) {
	server := redistest.Shared(t)
	must(t, server, "HSET", "heed:limits:ann", "per_day", "600")
	l := newLimits(t, server)
	l.TTL = time.Hour
	limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{
		Name: "key", Stage: serverside.AfterAuth, Limits: l, Policies: []quota.Policy{quota.PerDay(1)},
		Key: serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") }),
	}}, StoreTimeout: hang, Audit: func(serverside.Event) {}})
	require.NoError(t, err)
	limit := func() string {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", "ann")
		limiter.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
		return w.Header().Get("X-RateLimit-Limit")
	}
	require.Equal(t, "600", limit())
	for _, c := range []struct {
		limit   string
		command []string
	}{
		{"60", []string{"HSET", "heed:limits:ann", "per_day", "60"}},
		{"1", []string{"DEL", "heed:limits:ann"}},
	} {
		must(t, server, c.command...)
		assert.Eventually(t, func() bool {
			_, err := server.Do("PUBLISH", "heed:limits:changed", "ann") // repeated until messages arrive
			return err == nil && limit() == c.limit
		}, hang, 5*ms)
	}
}

func TestLimitsAreReadAgainAfterARestartOfRedis(t *testing.T) {
	server := redistest.Shared(t)
	must(t, server, "HSET", "heed:limits:ann", "per_minute", "600")
	l := newLimits(t, server)
	l.TTL, l.Timeout = time.Hour, 0
	require.Eventually(t, func() bool { p, _ := l.Limits(t.Context(), "ann"); return len(p) == 1 }, hang, 5*ms)
	server.Restart()
	must(t, server, "HSET", "heed:limits:ann", "per_minute", "60")
	assert.Eventually(t, func() bool {
		p, err := l.Limits(t.Context(), "ann")
		return err == nil && assert.ObjectsAreEqual(perMinute(60), p)
	}, hang, 10*ms)
}

// What a process has read holds through an outage, for any time. A process that starts in one does
// without the Store what its rules say, until it can read.
func TestLimitsInAnOutageOfRedis(t *testing.T) {
	server := redistest.Shared(t)
	must(t, server, "HSET", "heed:limits:eve", "blocked", "1")
	must(t, server, "HSET", "heed:limits:ann", "per_day", "600")
	process := func() func(mode, user string) string { // which returns the limit or else the status of an answer
		l, h := newLimits(t, server), map[string]http.Handler{}
		l.TTL = ms // what was read expires at once
		for _, mode := range []serverside.FailureMode{serverside.FailOpen, serverside.FailClosed, serverside.FailLocal} {
			limiter, err := serverside.New(serverside.Config{Rules: []serverside.Rule{{
				Name: "key", Stage: serverside.AfterAuth, Limits: l, Policies: []quota.Policy{quota.PerDay(60)},
				Key: serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") }),
			}}, OnStoreError: mode, StoreTimeout: hang, Audit: func(serverside.Event) {}})
			require.NoError(t, err)
			h[mode.String()] = limiter.Wrap(http.NotFoundHandler())
		}
		return func(mode, user string) string {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-User", user)
			h[mode].ServeHTTP(w, r)
			return cmp.Or(w.Header().Get("X-RateLimit-Limit"), fmt.Sprint(w.Code))
		}
	}
	running := process()
	known := func(what string) {
		for _, mode := range []string{"open", "closed", "local"} {
			assert.Equal(t, "403", running(mode, "eve"), "%s, %s", mode, what)
			assert.Equal(t, "600", running(mode, "ann"), "%s, %s", mode, what)
			assert.Equal(t, "60", running(mode, "bob"), "%s, %s", mode, what)
		}
	}
	known("before")
	server.Kill()
	known("in the outage")
	started := process()
	for _, user := range []string{"eve", "ann", "bob"} {
		assert.Equal(t, "404", started("open", user), user)
		assert.Equal(t, "503", started("closed", user), user)
		assert.Equal(t, "60", started("local", user), user)
	}
	server.Restart()
	must(t, server, "HSET", "heed:limits:eve", "blocked", "1")
	must(t, server, "HSET", "heed:limits:ann", "per_day", "6")
	for name, ask := range map[string]func(mode, user string) string{"running": running, "started": started} {
		assert.Eventually(t, func() bool {
			return ask("open", "eve") == "403" && ask("closed", "ann") == "6" && ask("closed", "bob") == "60"
		}, hang, 5*ms, name)
	}
}

func TestLimitsAreCachedForTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		s.put("ann", "per_minute", "600")
		l := s.limits(t, &redisstore.Limits{})
		expect := func(limit int64, asked int) {
			t.Helper()
			policies, times := s.limitsOf(t, l, "ann")
			assert.Equal(t, perMinute(limit), policies)
			assert.Equal(t, asked, times)
		}
		expect(600, 1)
		s.put("ann", "per_minute", "60")
		expect(600, 0)
		time.Sleep(5*time.Second - 30*ms)
		expect(600, 0)
		time.Sleep(20 * ms)
		expect(600, 1) // in the background
		expect(60, 0)
		s.put("ann", "per_minute", "6")
		time.Sleep(10 * time.Second)
		expect(6, 1) // the cached limits have expired
	})
}

func TestAMessageMakesLimitsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		l := s.limits(t, &redisstore.Limits{})
		for _, key := range []string{"ann", "bob"} {
			_, asked := s.limitsOf(t, l, key)
			assert.Equal(t, 1, asked)
			s.put(key, "per_minute", "7")
		}
		s.publish("ann")
		policies, asked := s.limitsOf(t, l, "ann")
		assert.Equal(t, perMinute(7), policies)
		assert.Equal(t, 1, asked)
		policies, asked = s.limitsOf(t, l, "bob")
		assert.Empty(t, policies)
		assert.Zero(t, asked)
		s.publish("")
		policies, asked = s.limitsOf(t, l, "bob")
		assert.Equal(t, perMinute(7), policies)
		assert.Equal(t, 1, asked)
	})
}

func TestAnAnswerFromBeforeAMessageIsNotKept(t *testing.T) {
	for _, message := range []string{"ann", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := newLimitsStand(t)
			s.put("ann", "per_minute", "600")
			l := s.limits(t, &redisstore.Limits{})
			s.set(func() { s.delay = 20 * ms })
			go l.Limits(t.Context(), "ann")
			time.Sleep(30 * ms) // the answer of Redis is on its way
			s.put("ann", "per_minute", "60")
			s.set(func() { s.delay = 0 })
			s.publish(message)
			time.Sleep(time.Second)
			policies, _ := s.limitsOf(t, l, "ann")
			assert.Equal(t, perMinute(60), policies)
		})
	}
}

func TestConcurrentRequestsOfOneKeyShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		s.put("ann", "per_minute", "600")
		l := s.limits(t, &redisstore.Limits{})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				policies, err := l.Limits(t.Context(), "ann")
				assert.NoError(t, err)
				assert.Equal(t, perMinute(600), policies)
			})
		}
		all.Wait()
		assert.Equal(t, 1, s.took())
	})
}

func TestReadingLimitsEndsWithTimeoutOrContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		l := s.limits(t, &redisstore.Limits{})
		s.set(func() { s.silent = true })
		ctx, cancel := context.WithTimeout(t.Context(), 5*ms)
		defer cancel()
		start := time.Now()
		_, err := l.Limits(ctx, "ann")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5*ms, time.Since(start))
		_, err = l.Limits(t.Context(), "ann")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 50*ms, time.Since(start))
		for _, key := range []string{"ann", "bob"} {
			_, err = l.Limits(t.Context(), key)
			assert.ErrorContains(t, err, "redisstore: ")
			assert.Equal(t, 50*ms, time.Since(start), "the breaker is open")
		}
	})
}

func TestTheLastLimitsHoldWhileRedisIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		s.put("ann", "per_minute", "600")
		l := s.limits(t, &redisstore.Limits{})
		s.limitsOf(t, l, "ann")
		s.set(func() { s.gone = true })
		time.Sleep(time.Hour)
		s.took()
		for range 1000 { // calls in ten seconds
			policies, err := l.Limits(t.Context(), "ann")
			assert.ErrorContains(t, err, "connection refused")
			assert.Equal(t, perMinute(600), policies)
			policies, err = l.Limits(t.Context(), "bob")
			assert.ErrorContains(t, err, "connection refused")
			assert.Empty(t, policies)
			time.Sleep(10 * ms)
		}
		assert.LessOrEqual(t, s.took(), 20, "two keys")
		s.put("ann", "per_minute", "60")
		s.set(func() { s.gone = false })
		time.Sleep(1100 * ms)
		l.Limits(t.Context(), "ann") // closes the breaker
		time.Sleep(1100 * ms)
		policies, _ := s.limitsOf(t, l, "ann")
		assert.Equal(t, perMinute(60), policies)
	})
}

// After a message Redis is asked at once, even if it did not answer a moment ago. Limits that were out of
// date stay out of date.
func TestAMessageStartsANewReadOfLimits(t *testing.T) {
	for _, message := range []string{"ann", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := newLimitsStand(t)
			s.put("ann", "per_minute", "600")
			l := s.limits(t, &redisstore.Limits{TTL: time.Hour})
			s.limitsOf(t, l, "ann")
			s.put("ann", "per_minute", "60")
			s.set(func() { s.gone = true })
			s.publish(message)
			policies, err := l.Limits(t.Context(), "ann")
			assert.Error(t, err)
			assert.Equal(t, perMinute(600), policies)
			time.Sleep(500 * ms) // a probe has failed
			s.set(func() { s.gone = false })
			policies, err = l.Limits(t.Context(), "ann")
			assert.Error(t, err, "without waiting for a second")
			assert.Equal(t, perMinute(600), policies)
			s.publish(message)
			policies, _ = s.limitsOf(t, l, "ann")
			assert.Equal(t, perMinute(60), policies)
		})
		synctest.Test(t, func(t *testing.T) {
			s := newLimitsStand(t)
			s.put("ann", "per_minute", "600")
			l := s.limits(t, &redisstore.Limits{TTL: time.Hour})
			s.limitsOf(t, l, "ann")
			s.put("ann", "per_minute", "60")
			s.set(func() { s.gone = true })
			s.publish(message)
			l.Limits(t.Context(), "ann")
			s.set(func() { s.gone = false })
			time.Sleep(200 * ms)
			l.Limits(t.Context(), "bob") // closes the breaker
			time.Sleep(1100 * ms)
			policies, _ := s.limitsOf(t, l, "ann")
			assert.Equal(t, perMinute(60), policies)
		})
	}
}

func TestAnInvalidHashLeavesTheLastLimitsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		s.put("ann", "per_minute", "600")
		l := s.limits(t, &redisstore.Limits{})
		s.limitsOf(t, l, "ann")
		for field, c := range map[string]struct{ value, reason string }{
			"per_minute": {"-5", "is -5: must not be negative"},
			"per_hour":   {"many", `is "many": must be a whole number`},
			"per_day":    {"", `is "": must be a whole number`},
			"blocked":    {"yes", `is "yes": must be 0 or 1`},
			"per_second": {"9223372036854775807", "quota: policy"},
			"per_minuet": {"5", "is unknown: must be per_second, per_minute, per_hour, per_day or blocked"},
		} {
			before := l.Corrupt()
			s.put("ann", "per_second", "1", field, c.value)
			s.publish("ann")
			for range 2 {
				policies, err := l.Limits(t.Context(), "ann")
				var fault *redisstore.LimitsError
				require.ErrorAs(t, err, &fault)
				assert.Equal(t, "ann", fault.Key)
				assert.Equal(t, field, fault.Field)
				assert.ErrorContains(t, err, c.reason)
				assert.Equal(t, perMinute(600), policies)
			}
			assert.Equal(t, before+1, l.Corrupt())
		}
		s.put("ann", "per_minute", "x", "per_hour", "y")
		s.publish("ann")
		_, err := l.Limits(t.Context(), "ann")
		assert.EqualError(t, err, "redisstore: the limits of \"ann\": per_minute: is \"x\": must be a whole number\n"+
			"redisstore: the limits of \"ann\": per_hour: is \"y\": must be a whole number")

		s.put("new", "per_minute", "x")
		policies, err := l.Limits(t.Context(), "new")
		assert.Error(t, err)
		assert.Empty(t, policies, "the rule's hold")
	})
}

func TestAnInvalidHashCanBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		l := s.limits(t, &redisstore.Limits{})
		s.put("ann", "per_minute", "600")
		s.limitsOf(t, l, "ann")
		blocked := []quota.Policy{{Quota: quota.Blocked}}
		for _, c := range []struct {
			hash []any
			want []quota.Policy
		}{
			{[]any{"per_minute", "x", "blocked", "yes"}, perMinute(600)},
			{[]any{"per_minute", "x", "blocked", "0"}, perMinute(600)},
			{[]any{"per_minute", "x", "blocked", "1"}, blocked},
			{[]any{"per_minute", "x", "blocked", "0"}, blocked}, // as before: it changes nothing else
			{[]any{"per_minute", "x"}, blocked},
			{[]any{"reason", "abuse", "blocked", "1", "per_day", "5"}, append(blocked, quota.PerDay(5))},
		} {
			s.put("ann", c.hash...)
			s.publish("ann")
			for range 2 {
				policies, err := l.Limits(t.Context(), "ann")
				assert.Error(t, err)
				assert.Equal(t, c.want, policies, c.hash)
			}
		}
		s.put("ann", "per_minute", "600", "blocked", "0")
		s.publish("ann")
		policies, _ := s.limitsOf(t, l, "ann")
		assert.Equal(t, perMinute(600), policies)

		s.put("new", "reason", "abuse", "blocked", "1")
		policies, err := l.Limits(t.Context(), "new")
		assert.Error(t, err)
		assert.Equal(t, blocked, policies, "a process that has not read it before")
	})
}

// An outage does not let a blocked key in, and a message that comes in it does not either.
func TestABlockHoldsWhileRedisIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		s.put("eve", "blocked", "1")
		l := s.limits(t, &redisstore.Limits{})
		s.limitsOf(t, l, "eve")
		s.put("eve")
		s.set(func() { s.gone = true })
		blocked := []quota.Policy{{Quota: quota.Blocked}}
		for range 100 {
			s.publish("")
			policies, _ := l.Limits(t.Context(), "eve")
			assert.Equal(t, blocked, policies)
			time.Sleep(time.Minute)
		}
		s.set(func() { s.gone = false })
		s.publish("eve")
		l.Limits(t.Context(), "eve")
		time.Sleep(time.Minute)
		policies, _ := s.limitsOf(t, l, "eve")
		assert.Empty(t, policies)
	})
}

func TestManyKeysAreBoundedAndKeepThoseInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		l := s.limits(t, &redisstore.Limits{MaxKeys: 100, TTL: time.Hour})
		s.limitsOf(t, l, "ann")
		asked := 0
		for i := range stated(10_000, 2000) {
			l.Limits(t.Context(), fmt.Sprint(i))
			s.took()
			l.Limits(t.Context(), "ann")
			asked += s.took()
		}
		assert.Equal(t, 100, redisstore.KnownKeys(l))
		assert.Zero(t, asked)
	})
}

func TestLimitsWithoutAClientFail(t *testing.T) {
	var l redisstore.Limits
	_, err := l.Limits(t.Context(), "ann")
	assert.ErrorIs(t, err, quota.ErrUnknownLimits)
	assert.ErrorContains(t, err, "redisstore: Client is nil")
	assert.NoError(t, l.Close())
}

func TestLimitsAreSafeForConcurrentUse(t *testing.T) {
	server := redistest.Shared(t)
	l := newLimits(t, server)
	l.TTL, l.MaxKeys = ms, 8
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 200 {
				if _, err := l.Limits(t.Context(), fmt.Sprint(i%16)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		must(t, server, "PUBLISH", "heed:limits:changed", "")
	}
	all.Wait()
}
