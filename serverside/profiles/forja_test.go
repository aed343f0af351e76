package profiles_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// The fields show the window with the smallest fraction left.
func TestForjaLimitsAddressesPerSecondAndMinute(t *testing.T) {
	meets(t, profiles.Forja, options(), line{"GET /x", nil, []string{"50", "49", "1"}, 50, "1"})
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forja(options()))
		time.Sleep(18 * time.Second)
		for range 10 {
			n, _ := spend(h, 50, "GET /x")
			assert.Equal(t, 50, n)
			time.Sleep(time.Second)
		}
		denied := ask(h, "GET /x")
		assert.Equal(t, []string{"500", "0", "32"}, numbers(denied), "0 of 500 is less than 50 of 50")
		assert.Equal(t, "32", denied.Header().Get("Retry-After"))
		assert.Contains(t, denied.Body.String(), "501 requests per minute exceeded (limit: 500)")
		time.Sleep(31 * time.Second)
		assert.Equal(t, 429, ask(h, "GET /x").Code)
		time.Sleep(time.Second)
		assert.Equal(t, 200, ask(h, "GET /x").Code)
	})
	synctest.Test(t, func(t *testing.T) { // 100 of 500 left are less than 40 of 50
		h := limited(t, profiles.Forja(options()))
		for range 9 {
			spend(h, 42, "GET /x")
			time.Sleep(time.Second)
		}
		spend(h, 21, "GET /x")
		time.Sleep(time.Second)
		n, last := spend(h, 1, "GET /x")
		assert.Equal(t, 1, n)
		assert.Equal(t, []string{"500", "100", "50"}, numbers(last))
	})
}

func TestForjaRetryAfterIsTheLongerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forja(options()))
		time.Sleep(8 * time.Second)
		for range 9 {
			spend(h, 50, "GET /x")
			time.Sleep(time.Second)
		}
		n, denied := spend(h, 51, "GET /x") // the last of the second and of the minute
		assert.Equal(t, 50, n)
		assert.Equal(t, []string{"500", "0", "43"}, numbers(denied))
		assert.Equal(t, "43", denied.Header().Get("Retry-After"))
	})
}

func TestForjaCountsByFixedWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Unix(1709136060+59, 0))) // the last second of minute 28485601
		var store witness
		o := options()
		o.Store, o.Limits = &store, serverside.LimitTable{"4f2b": {PerHour: 10, PerDay: 20}}
		h := limited(t, profiles.Forja(o))
		w := askFrom("192.168.1.100:1", h, "GET /x", "X-Api-Key", "4f2b")
		assert.Equal(t, 200, w.Code)
		assert.Equal(t, []string{
			"key:ip:192.168.1.100 ip/s", "key:ip:192.168.1.100 ip/m", "key:key:4f2b key/h", "key:key:4f2b key/d",
		}, store.charged)
		spend(h, 49, "GET /x")
		time.Sleep(time.Second)
		n, _ := spend(h, 51, "GET /x")
		assert.Equal(t, 50, n, "twice its quota around a boundary")
	})
}

func TestForjaServesTwentyRequestsOfAnAddressAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		h := must(t, profiles.Forja(options())).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-release
		}))
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { ask(h, "GET /x") })
		}
		synctest.Wait()
		denied := ask(h, "GET /x")
		assert.Equal(t, 429, denied.Code)
		assert.Equal(t, "1", denied.Header().Get("Retry-After"))
		release <- true
		synctest.Wait()
		all.Go(func() { assert.Equal(t, 200, ask(h, "GET /x").Code) })
		synctest.Wait()
		close(release)
		all.Wait()
	})
}

// Missing limits and zero are not enforced.
func TestForjaLimitsKeysByItsTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Limits = serverside.LimitTable{
			"second": {PerSecond: 2}, "minute": {PerMinute: 2}, "hour": {PerHour: 2}, "day": {PerDay: 2}, "none": {},
		}
		h := limited(t, profiles.Forja(o))
		time.Sleep(1800 * time.Millisecond)
		for key, wait := range map[string]string{"second": "1", "minute": "59", "hour": "3599", "day": "86399"} {
			n, denied := spend(h, 3, "GET /x", "X-Api-Key", key)
			assert.Equal(t, 2, n, key)
			assert.Equal(t, wait, denied.Header().Get("Retry-After"))
			assert.Contains(t, denied.Body.String(), "3 requests per "+key+" exceeded (limit: 2)")
		}
		time.Sleep(time.Second)
		for _, key := range []string{"none", "unknown", ""} {
			n, _ := spend(h, 10, "GET /x", "X-Api-Key", key)
			assert.Equal(t, 10, n, "%q is limited by its address alone", key)
		}
		o.Limits = serverside.LimitTable{"key": {PerMinute: -1}}
		_, err := serverside.New(profiles.Forja(o))
		assert.ErrorContains(t, err, "must not be negative")
	})
}

func TestForjaLimitsKeysAlsoWhileTheirTableFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Limits = noTable{}
		l := must(t, profiles.Forja(o))
		h := l.Wrap(handler)
		admitted := 0
		for i := range 100 {
			if askFrom(fmt.Sprintf("198.51.100.%d:1", i), h, "GET /x", "X-Api-Key", "k").Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, 50, admitted)
	})
}

type noTable struct{}

func (noTable) Limits(context.Context, string) ([]quota.Policy, error) {
	return nil, io.ErrUnexpectedEOF
}

func TestForjaChargesBothOrNeither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Limits = serverside.LimitTable{"k": {PerMinute: 3}, "other": {PerMinute: 100}}
		h := limited(t, profiles.Forja(o))
		for range 10 {
			spend(h, 500, "GET /x", "X-Api-Key", "k")
			time.Sleep(time.Second)
		}
		n, denied := spend(h, 60, "GET /x", "X-Api-Key", "other")
		assert.Equal(t, 50, n, "of the minute only 3 are gone")
		assert.Equal(t, "50", numbers(denied)[0])
		time.Sleep(time.Second)
		_, last := spend(h, 1, "GET /x", "X-Api-Key", "other")
		assert.Equal(t, []string{"100", "49"}, numbers(last)[:2], "ten that the address denied were not charged")
	})
}

func TestForjaLimitsWrongKeysInFrontOfAuthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, profiles.Forja(options()))
		authenticated := 0
		h := l.WrapEarly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			authenticated++
			w.WriteHeader(http.StatusUnauthorized)
		}))
		denied := 0
		for i := range 1000 {
			if ask(h, "GET /x", "X-Api-Key", fmt.Sprint(i)).Code == 429 {
				denied++
			}
		}
		assert.Equal(t, []int{50, 950}, []int{authenticated, denied})
	})
}

// No field makes a client local. Local clients are limited unless the program trusts them.
func TestForjaTrustsNoForwardedLoopback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forja(options()))
		n, _ := spend(h, 100, "GET /x", "X-Forwarded-For", "127.0.0.1")
		assert.Equal(t, 50, n)
		n = 0
		for range 100 {
			if askFrom("127.0.0.1:1", h, "GET /x").Code == 200 {
				n++
			}
		}
		assert.Equal(t, 50, n)

		o := options()
		o.Trusted = serverside.Peers(serverside.Loopback()...)
		h = limited(t, profiles.Forja(o))
		for _, peer := range []string{"127.0.0.1:1", "127.0.0.2:1", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
			for range 100 {
				assert.Equal(t, 200, askFrom(peer, h, "GET /x").Code, peer)
			}
		}
		n, _ = spend(h, 100, "GET /x", "X-Forwarded-For", "127.0.0.1")
		assert.Equal(t, 50, n)
		admitted := 0
		for range 100 { // an untrusted local proxy makes no client local
			if askFrom("127.0.0.1:1", h, "GET /x", "X-Forwarded-For", "198.51.100.1").Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, 50, admitted)
	})
}

func TestForjaTakesNoKeyFromAHeaderField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("TRUST_PROXY_HEADERS", "true")
		t.Setenv("TRUSTED_PROXIES", "203.0.113.0/24")
		var store witness
		o := options()
		o.Store = &store
		cfg, err := profiles.ForjaFromEnv(o)
		require.NoError(t, err)
		h := limited(t, cfg)
		ask(h, "GET /x", "X-Forwarded-For", "1.2.3.4:m:28485601")
		ask(h, "GET /x", "X-Forwarded-For", "2001:db8::1:m:28485601")
		t.Setenv("PROXY_HEADER", "X-Real-IP")
		cfg, err = profiles.ForjaFromEnv(o)
		require.NoError(t, err)
		ask(limited(t, cfg), "GET /x", "X-Real-IP", "198.51.100.7")
		assert.Equal(t, []string{
			"key:ip:203.0.113.45 ip/s", "key:ip:203.0.113.45 ip/m", "key:ip:203.0.113.45 ip/s", "key:ip:203.0.113.45 ip/m",
			"key:ip:198.51.100.7 ip/s", "key:ip:198.51.100.7 ip/m",
		}, store.charged)
	})
}

func TestForjaNumbersAreConsistent(t *testing.T) {
	h := limited(t, profiles.Forja(options()))
	assert.Empty(t, numbers(ask(h, "GET /health")))
	var all sync.WaitGroup
	for client := range 4 {
		all.Go(func() {
			for i := range 40 {
				w := askFrom(fmt.Sprintf("198.51.100.%d:1", client), h, "GET /x")
				if numbers := numbers(w); assert.Len(t, numbers, 3) && numbers[0] == "50" {
					assert.Contains(t, []string{"0", "1"}, numbers[2], "a second's rest, not a minute's: request %d", i)
				}
			}
		})
	}
	all.Wait()
}

func TestForjaBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forja(options()))
		_, denied := spend(h, 51, "GET /x")
		assert.Equal(t, "application/problem+json", denied.Header().Get("Content-Type"))
		assert.JSONEq(t, `{"type":"https://forja.dev/errors/rate_limited","title":"Rate Limited","status":429,
			"detail":"Rate limit exceeded: 51 requests per second exceeded (limit: 50)","code":"RATE_LIMITED"}`,
			denied.Body.String())
	})
}

func TestForjaReadsTheEnvironment(t *testing.T) {
	t.Setenv("APP__SECURITY__RATE_LIMIT_PER_SECOND", "2")
	t.Setenv("APP__SECURITY__RATE_LIMIT_PER_MINUTE", "0")
	t.Setenv("APP__SECURITY__RATE_LIMIT_BURST", "7")
	synctest.Test(t, func(t *testing.T) {
		cfg, err := profiles.ForjaFromEnv(options())
		require.NoError(t, err)
		n, denied := spend(limited(t, cfg), 10, "GET /x")
		assert.Equal(t, 2, n)
		assert.Equal(t, []string{"2", "0", "1"}, numbers(denied))
		assert.Equal(t, int64(7), cfg.Rules[0].MaxInFlight)
	})
	t.Setenv("RATE_LIMIT_FAIL_MODE", "Open ")
	_, err := profiles.ForjaFromEnv(options())
	assert.EqualError(t, err, `profiles: RATE_LIMIT_FAIL_MODE: is "Open ": must be open, closed or local`)

	t.Setenv("REDIS_URL", "")
	store, err := redisstore.FromEnvOr(profiles.ForjaRedis)
	require.NoError(t, err)
	assert.Contains(t, fmt.Sprint(store.Client), "127.0.0.1:6379")
	require.NoError(t, store.Client.Close())
}

// Health checks pass. Once the store is back, requests are counted.
func TestForjaFailsClosedWith429AndRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("RATE_LIMIT_FAIL_MODE", "closed")
		store := &flaky{}
		o := options()
		o.Store = store
		cfg, err := profiles.ForjaFromEnv(o)
		require.NoError(t, err)
		h := limited(t, cfg)
		for range 100 {
			w := ask(h, "GET /x")
			require.Equal(t, 429, w.Code)
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
			assert.Contains(t, w.Body.String(), `"SERVICE_UNAVAILABLE"`)
			assert.Empty(t, numbers(w))
			assert.Equal(t, 200, askFrom("127.0.0.1:1", h, "GET /health").Code)
		}
		store.back = true
		assert.Equal(t, 200, ask(h, "GET /x").Code)
		assert.NotEmpty(t, numbers(ask(h, "GET /x")))
	})
}

func TestForjaFailsOpenByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Store = new(down)
		h := limited(t, profiles.Forja(o))
		for range 100 {
			w := ask(h, "GET /x")
			require.Equal(t, 200, w.Code)
			assert.Empty(t, numbers(w))
		}
	})
}

// A flaky is a store that fails until back is set.
type flaky struct {
	quota.Memory
	back bool
}

func (f *flaky) Take(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
	if !f.back {
		return nil, io.ErrUnexpectedEOF
	}
	return f.Memory.Take(ctx, dst, charges...)
}
