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

// A lookup is one moment of a timeline: a request for limits, ahead of which something happens.
type lookup struct {
	happens func(*limitsFake)
	key     string
	want    []quota.Policy
	fault   string // in the error; "" if there is none
	asked   int    // how often Redis was asked for limits since the last moment, in the background too
}

// play plays a timeline of one Limits.
func play(t *testing.T, l *redisstore.Limits, moments ...lookup) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		s.limits(t, l)
		for i, m := range moments {
			if m.happens != nil {
				m.happens(s)
			}
			policies, err := l.Limits(t.Context(), m.key)
			if m.fault == "" {
				require.NoError(t, err, "moment %d", i)
			} else {
				require.ErrorContains(t, err, m.fault, "moment %d", i)
			}
			require.Equal(t, m.want, policies, "moment %d", i)
			time.Sleep(10 * ms) // for reads in the background
			require.Equal(t, m.asked, s.took(), "moment %d", i)
		}
	})
}

func hset(key string, fields ...any) func(*limitsFake) {
	return func(s *limitsFake) { s.put(key, fields...) }
}

func publish(message string) func(*limitsFake) { return func(s *limitsFake) { s.publish(message) } }

func after(d time.Duration) func(*limitsFake) { return func(*limitsFake) { time.Sleep(d) } }

func gone(is bool) func(*limitsFake) { return func(s *limitsFake) { s.set(func() { s.gone = is }) } }

func all(events ...func(*limitsFake)) func(*limitsFake) {
	return func(s *limitsFake) {
		for _, event := range events {
			event(s)
		}
	}
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

// Of an invalid hash only the start is read, because anybody may have written it.
func TestLimitsOfAKeyAreReadFromAHash(t *testing.T) {
	server := redistest.Shared(t)
	large, many := strings.Repeat("9", 1<<20), []string{}
	for i := range 100 {
		many = append(many, fmt.Sprint(i), "1")
	}
	const unknown = "is unknown: must be per_second, per_minute, per_hour, per_day or blocked"
	const tooMany = "must have no fields but per_second, per_minute, per_hour, per_day and blocked: has 100"
	policies := func(all ...quota.Policy) []quota.Policy { return all }
	blocked := policies(quota.Policy{Quota: quota.Blocked})
	l := newLimits(t, server)
	var corrupt int64
	for i, c := range []struct {
		hash   []string
		want   []quota.Policy
		faults []string // after "redisstore: the limits of "key": "
	}{
		{nil, nil, nil},
		{[]string{"per_day", "4", "per_hour", "3", "per_minute", "2", "per_second", "1"},
			policies(quota.PerSecond(1), quota.PerMinute(2), quota.PerHour(3), quota.PerDay(4)), nil},
		{[]string{"per_minute", "120", "per_day", "0"}, policies(quota.PerMinute(120), quota.PerDay(0)), nil},
		{[]string{"per_minute", "120", "blocked", "1"}, append(blocked, perMinute(120)...), nil},
		{[]string{"per_minute", "120", "blocked", "0"}, perMinute(120), nil},
		{[]string{"blocked", "0"}, nil, nil},
		{[]string{"per_minute", "-5"}, nil, []string{"per_minute: is -5: must not be negative"}},
		{[]string{"per_hour", "many"}, nil, []string{`per_hour: is "many": must be a whole number`}},
		{[]string{"per_day", ""}, nil, []string{`per_day: is "": must be a whole number`}},
		{[]string{"blocked", "yes"}, nil, []string{`blocked: is "yes": must be 0 or 1`}},
		{[]string{"per_minuet", "5"}, nil, []string{"per_minuet: " + unknown}},
		{[]string{"one\nlevel=INFO", "1"}, nil, []string{`"one\nlevel=INFO": ` + unknown}},
		{[]string{"per_minute", "x", "per_hour", "y"}, nil, []string{
			`per_minute: is "x": must be a whole number`, `per_hour: is "y": must be a whole number`}},
		{[]string{"per_minute", large}, nil, []string{`per_minute: is "1048576 bytes long": must be a whole number`}},
		{[]string{large, "1"}, nil, []string{large[:64] + ": " + unknown}},
		{many, nil, []string{tooMany}},
	} {
		key := fmt.Sprint(i)
		if c.hash != nil {
			must(t, server, append([]string{"HSET", "heed:limits:" + key}, c.hash...)...)
		}
		got, err := l.Limits(t.Context(), key)
		assert.Equal(t, c.want, got)
		var want []string
		for _, fault := range c.faults {
			want = append(want, fmt.Sprintf("redisstore: the limits of %q: %s", key, fault))
		}
		if want == nil {
			assert.NoError(t, err)
			continue
		}
		assert.EqualError(t, err, strings.Join(want, "\n"))
		assert.ErrorAs(t, err, new(*redisstore.LimitsError))
		corrupt++
		assert.Equal(t, corrupt, l.Corrupt())
	}
	must(t, server, "SET", "heed:limits:text", "120")
	_, err := l.Limits(t.Context(), "text")
	assert.EqualError(t, err, `redisstore: the limits of "text": must be a hash`)

	read, err := server.Do("INFO", "stats")
	require.NoError(t, err)
	var sent int
	_, err = fmt.Sscanf(read[strings.Index(read, "total_net_output_bytes:"):], "total_net_output_bytes:%d", &sent)
	require.NoError(t, err)
	assert.Less(t, sent, 1<<19)
}

// What a process has read holds through an outage, for any time. A process that starts in one does
// without the Store what its rules say, until it can read.
func TestLimitsOfRulesFollowRedis(t *testing.T) {
	server := redistest.Shared(t)
	must(t, server, "HSET", "heed:limits:eve", "blocked", "1")
	must(t, server, "HSET", "heed:limits:ann", "per_day", "600")
	process := func(ttl time.Duration) func(mode, user string) string { // which returns the limit or else the status
		l, h := newLimits(t, server), map[string]http.Handler{}
		l.TTL = ttl
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
	told, running := process(time.Hour), process(ms) // what running has read expires at once
	known := func(what string) {
		for _, mode := range []string{"open", "closed", "local"} {
			assert.Equal(t, "403", running(mode, "eve"), "%s, %s", mode, what)
			assert.Equal(t, "600", running(mode, "ann"), "%s, %s", mode, what)
			assert.Equal(t, "60", running(mode, "bob"), "%s, %s", mode, what)
		}
	}
	known("before")
	require.Equal(t, "600", told("open", "ann"))
	must(t, server, "DEL", "heed:limits:ann")
	assert.Eventually(t, func() bool {
		_, err := server.Do("PUBLISH", "heed:limits:changed", "ann") // repeated until messages arrive
		return err == nil && told("open", "ann") == "60"
	}, hang, 5*ms)
	must(t, server, "HSET", "heed:limits:ann", "per_day", "600")
	require.Eventually(t, func() bool { return running("open", "ann") == "600" }, hang, 5*ms)

	server.Kill()
	known("in the outage")
	started := process(ms)
	for _, user := range []string{"eve", "ann", "bob"} {
		assert.Equal(t, "404", started("open", user), user)
		assert.Equal(t, "503", started("closed", user), user)
		assert.Equal(t, "60", started("local", user), user)
	}
	server.Restart()
	must(t, server, "HSET", "heed:limits:eve", "blocked", "1")
	must(t, server, "HSET", "heed:limits:ann", "per_day", "6")
	for name, ask := range map[string]func(mode, user string) string{"told": told, "running": running, "started": started} {
		assert.Eventually(t, func() bool {
			return ask("open", "eve") == "403" && ask("closed", "ann") == "6" && ask("closed", "bob") == "60"
		}, hang, 5*ms, name)
	}
}

func TestLimitsAreRefreshedAfterHalfOfTTL(t *testing.T) {
	play(t, &redisstore.Limits{},
		lookup{hset("ann", "per_minute", "600"), "ann", perMinute(600), "", 1},
		lookup{hset("ann", "per_minute", "60"), "ann", perMinute(600), "", 0},
		lookup{after(5*time.Second - 22*ms), "ann", perMinute(600), "", 0},
		lookup{nil, "ann", perMinute(600), "", 1}, // in the background
		lookup{nil, "ann", perMinute(60), "", 0},
		lookup{all(hset("ann", "per_minute", "6"), after(10*time.Second-21*ms)), "ann", perMinute(60), "", 1},
		// Now it has expired.
		lookup{all(hset("ann", "per_minute", "5"), after(10*time.Second-10*ms)), "ann", perMinute(5), "", 1})
}

func TestAMessageMakesLimitsStale(t *testing.T) {
	play(t, &redisstore.Limits{},
		lookup{nil, "ann", nil, "", 1},
		lookup{nil, "bob", nil, "", 1},
		lookup{all(hset("ann", "per_minute", "7"), publish("ann")), "ann", perMinute(7), "", 1},
		lookup{hset("bob", "per_minute", "7"), "bob", nil, "", 0},
		lookup{publish(""), "bob", perMinute(7), "", 1})
}

// A key without an answer is asked for again after a second. After a message Redis is asked at once, even if it
// did not answer a moment ago. Limits that were out of date stay out of date.
func TestTheLastLimitsHoldWhileRedisIsGone(t *testing.T) {
	const refused = "connection refused"
	blocked := []quota.Policy{{Quota: quota.Blocked}}
	for _, message := range []string{"ann", ""} {
		play(t, &redisstore.Limits{TTL: time.Hour},
			lookup{hset("ann", "per_minute", "600"), "ann", perMinute(600), "", 1},
			lookup{gone(true), "ann", perMinute(600), "", 0},
			lookup{after(2 * time.Hour), "ann", perMinute(600), refused, 1},
			lookup{nil, "bob", nil, "unknown", 0},
			lookup{all(hset("ann", "per_minute", "60"), gone(false), publish(message)), "ann", perMinute(60), "", 1},
			lookup{all(hset("ann", "blocked", "1"), publish(message)), "ann", blocked, "", 1},
			lookup{all(hset("ann"), gone(true), publish(message)), "ann", blocked, refused, 1},
			lookup{after(500 * ms), "ann", blocked, refused, 0},
			lookup{gone(false), "ann", blocked, refused, 0},
			lookup{publish(message), "ann", nil, "", 1}, // without waiting for the second
			lookup{all(hset("ann", "per_minute", "6"), gone(true), publish(message)), "ann", nil, refused, 1},
			lookup{all(gone(false), after(200*ms)), "eve", nil, "unavailable", 0}, // which closes the breaker
			lookup{after(770 * ms), "ann", nil, refused, 0},
			lookup{after(10 * ms), "ann", perMinute(6), "", 1})
	}
}

// A slip in one field neither changes the limits in force nor lets anybody in who is blocked.
func TestAnInvalidHashChangesNothingButABlock(t *testing.T) {
	const word, zero = `is "x": must be a whole number`, "must be 0 or 1"
	blocked := []quota.Policy{{Quota: quota.Blocked}}
	writes := func(fields ...any) func(*limitsFake) { return all(hset("ann", fields...), publish("ann")) }
	play(t, &redisstore.Limits{},
		lookup{hset("new", "per_minute", "x"), "new", nil, word, 1},
		lookup{hset("worse", "reason", "abuse", "blocked", "1"), "worse", blocked, "is unknown", 1},
		lookup{hset("ann", "per_minute", "600"), "ann", perMinute(600), "", 1},
		lookup{writes("per_second", "1", "per_minute", "x"), "ann", perMinute(600), word, 1},
		lookup{nil, "ann", perMinute(600), word, 0},
		lookup{writes("per_second", "9223372036854775807"), "ann", perMinute(600), "quota: policy", 1},
		lookup{writes("per_minute", "x", "blocked", "yes"), "ann", perMinute(600), zero, 1},
		lookup{writes("per_minute", "x", "blocked", "0"), "ann", perMinute(600), word, 1},
		lookup{writes("per_minute", "x", "blocked", "1"), "ann", blocked, word, 1},
		lookup{writes("per_minute", "x", "blocked", "0"), "ann", blocked, word, 1}, // as before: it changes nothing else
		lookup{writes("per_minute", "x"), "ann", blocked, word, 1},
		lookup{writes("x", "1", "blocked", "1", "per_day", "5"), "ann", append(blocked, quota.PerDay(5)), "is unknown", 1},
		lookup{writes("per_minute", "600", "blocked", "0"), "ann", perMinute(600), "", 1})
}

// Nor does the request after the message wait for it.
func TestAnAnswerFromBeforeAMessageIsNotKept(t *testing.T) {
	for _, message := range []string{"ann", ""} {
		synctest.Test(t, func(t *testing.T) {
			s := newLimitsStand(t)
			s.put("ann", "per_minute", "600")
			l := s.limits(t, &redisstore.Limits{Timeout: time.Second})
			s.set(func() { s.delay = 50 * ms })
			go l.Limits(t.Context(), "ann")
			time.Sleep(75 * ms) // the answer of Redis is on its way
			s.put("ann", "per_minute", "60")
			s.set(func() { s.delay = 0 })
			s.publish(message)
			for range 2 {
				policies, err := l.Limits(t.Context(), "ann")
				require.NoError(t, err)
				assert.Equal(t, perMinute(60), policies)
				time.Sleep(time.Second)
			}
			assert.Equal(t, 2, s.took())
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
		assert.ErrorIs(t, err, quota.ErrUnknownLimits)
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

func TestManyKeysAreBoundedAndKeepThoseInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLimitsStand(t)
		l := s.limits(t, &redisstore.Limits{MaxKeys: 100, TTL: time.Hour})
		l.Limits(t.Context(), "ann")
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
