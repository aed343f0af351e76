package serverside_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

func TestKeyAlgorithmAndStoreCombineFreely(t *testing.T) {
	keys := map[string]serverside.Key{"peer": nil, "address": serverside.ClientIP(), "user": user}
	stores := map[string]func() quota.Store{
		"own":    func() quota.Store { return nil },
		"remote": func() quota.Store { return &slowMemory{memory: new(quota.Memory)} },
	}
	algorithms := []quota.Algorithm{0, quota.TokenBucket, quota.FixedWindow, quota.SlidingWindow, quota.SlidingLog}
	for keyName, key := range keys {
		for storeName, open := range stores {
			for _, algorithm := range algorithms {
				synctest.Test(t, func(t *testing.T) {
					rule := serverside.Rule{
						Name: "api", Key: key, Policies: []quota.Policy{{Quota: 5, Window: time.Minute, Algorithm: algorithm}},
					}
					h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Store: open(), Audit: silent}).Wrap(new(ok))
					for _, left := range []string{"4", "3", "2", "1", "0"} {
						w := ask(h, "GET", "/", "X-User", "ann")
						require.Equal(t, 200, w.Code)
						require.Equal(t, left, w.Header().Get("X-RateLimit-Remaining"))
					}
					w := ask(h, "GET", "/", "X-User", "ann")
					require.Equal(t, 429, w.Code, "%s %s %v", keyName, storeName, algorithm)
					require.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
					require.NotEmpty(t, w.Header().Get("Retry-After"))
				})
			}
		}
	}
}

// For every algorithm, a client that waits exactly as long as Retry-After says is admitted, and one
// that comes a microsecond earlier is not.
func TestRequestIsAdmittedExactlyAfterRetryAfter(t *testing.T) {
	for _, algorithm := range []quota.Algorithm{
		quota.TokenBucket, quota.FixedWindow, quota.SlidingWindow, quota.SlidingLog,
	} {
		synctest.Test(t, func(t *testing.T) {
			decided := make(chan serverside.Denial, 1)
			h := must(t, serverside.Config{Audit: silent, Rules: oneRule(quota.Policy{
				Quota: 5, Window: time.Minute, Algorithm: algorithm,
			}),
				Deny: func(_ http.ResponseWriter, _ *http.Request, d serverside.Denial) { decided <- d }}).Wrap(new(ok))
			time.Sleep(17 * time.Second)
			spend(t, h, 5)
			time.Sleep(1234567 * time.Microsecond)
			for range 20 {
				require.Equal(t, 429, ask(h, "GET", "/").Code)
				wait := (<-decided).RetryAfter
				require.Positive(t, wait)
				time.Sleep(wait - time.Microsecond)
				require.Equal(t, 429, ask(h, "GET", "/").Code, algorithm)
				require.Equal(t, time.Microsecond, (<-decided).RetryAfter)
				time.Sleep(time.Microsecond)
				require.Equal(t, 200, ask(h, "GET", "/").Code, algorithm)
				for ask(h, "GET", "/").Code == 200 {
				}
				<-decided
			}
		})
	}
}

func TestBurstIsAdmittedAtOnceThenTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{Rules: oneRule(quota.PerMinute(60)), Audit: silent}).Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 60, 429: 1}, codes(61, h, "GET", "/"))
		time.Sleep(time.Second)
		assert.Equal(t, map[int]int{200: 1, 429: 1}, codes(2, h, "GET", "/"))
	})
	synctest.Test(t, func(t *testing.T) {
		second, minute := quota.PerSecond(50), quota.PerMinute(500)
		second.Algorithm, minute.Algorithm = quota.FixedWindow, quota.FixedWindow
		h := must(t, serverside.Config{Rules: oneRule(second, minute), Audit: silent}).Wrap(new(ok))
		for range 10 {
			assert.Equal(t, map[int]int{200: 50, 429: 1}, codes(51, h, "GET", "/"))
			time.Sleep(time.Second)
		}
		w := ask(h, "GET", "/")
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, []string{"api/1m"}, problemOf(t, w).Violated)
		assert.Equal(t, "50", w.Header().Get("Retry-After"))
	})
}

func TestLoginsMayHaveLowerLimitsThanFiles(t *testing.T) {
	rules := []serverside.Rule{perHour("login", "POST /login", 5), perHour("static", "/static/", 1000)}
	h := must(t, serverside.Config{Rules: rules, Audit: silent}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 5, 429: 1}, codes(6, h, "POST", "/login"))
	assert.Equal(t, map[int]int{200: 50}, codes(50, h, "GET", "/static/x"))
	assert.Equal(t, 200, askFrom("192.0.2.2:1", h, "POST", "/login").Code, "another address has its own")
}

func TestReconfigureLowersALimitAtRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, serverside.Config{Rules: []serverside.Rule{perHour("api", "/api/", 600)}, Audit: silent})
		h := l.Wrap(new(ok))
		assert.Equal(t, map[int]int{200: 50}, codes(50, h, "GET", "/api/x"))
		require.NoError(t,
			l.Reconfigure(serverside.Config{Rules: []serverside.Rule{perHour("api", "/api/", 60)}, Audit: silent}))
		assert.Equal(t, map[int]int{200: 10, 429: 1}, codes(11, h, "GET", "/api/x"), "what was spent stays spent")
		require.Error(t, l.Reconfigure(serverside.Config{Rules: []serverside.Rule{perHour("api", "/api/", -1)}}))
		assert.Equal(t, map[int]int{429: 3}, codes(3, h, "GET", "/api/x"))
	})
}

func TestDryRunReportsButAdmits(t *testing.T) {
	rule := perHour("api", "", 1)
	rule.DryRun = true
	var events eventLog
	h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: events.add}).Wrap(new(ok))
	assert.Equal(t, map[int]int{200: 2}, codes(2, h, "GET", "/"))
	assert.Equal(t, []serverside.EventKind{serverside.WouldDeny}, events.kinds())
}

func TestEveryRequestIsAnswered(t *testing.T) {
	srv := listen(t, must(t, serverside.Config{Rules: oneRule(quota.PerDay(5)), Audit: silent}).Wrap(new(http.ServeMux)))
	client := srv.Client()
	client.Transport.(*http.Transport).MaxConnsPerHost = 10
	var group sync.WaitGroup
	var admitted, denied atomic.Int64
	for range 10 {
		group.Go(func() {
			for range 100 {
				resp, err := client.Get(srv.URL)
				if !assert.NoError(t, err) {
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == 429 {
					denied.Add(1)
				} else {
					admitted.Add(1)
				}
			}
		})
	}
	group.Wait()
	assert.Equal(t, int64(5), admitted.Load())
	assert.Equal(t, int64(995), denied.Load())
}

func TestLoadTenTimesOverIsCutToTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{
			Rules: oneRule(quota.Policy{Quota: 100, Window: time.Second, Burst: 20}), Audit: silent,
		}).Wrap(new(ok))
		admitted := 0
		for range 2000 { // 1,000 a second for 2 s
			if ask(h, "GET", "/").Code == 200 {
				admitted++
			}
			time.Sleep(time.Millisecond)
		}
		assert.InDelta(t, 20+100*2, admitted, 1)
	})
}

func TestEveryResponseHasTheFields(t *testing.T) {
	for _, status := range []int{200, 201, 204, 304, 404, 500} {
		for _, method := range []string{"GET", "HEAD"} {
			h := limit(t, quota.PerHour(10)).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
			}))
			w := ask(h, method, "/")
			assert.Equal(t, status, w.Code)
			for name, want := range map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9"} {
				assert.Equal(t, []string{want}, w.Header()[http.CanonicalHeaderKey(name)])
			}
			assert.Len(t, w.Header()["X-Ratelimit-Reset"], 1)
			assert.Empty(t, w.Header()["Retry-After"], "only denials say it")
		}
	}
	h := limit(t, quota.PerHour(10)).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault") }))
	assert.Len(t, limitFields(ask(recovering(h), "GET", "/").Header()), 5)
}

func TestResetIsWhenTheQuotaIsFull(t *testing.T) {
	for style, c := range map[ratelimit.Style]struct{ field, want string }{
		ratelimit.XRateLimit:      {"X-Ratelimit-Reset", "946684861"}, // 60 s after 0.9 s past the hour
		ratelimit.XRateLimitDelta: {"X-Ratelimit-Reset", "60"},
		ratelimit.Draft06:         {"Ratelimit-Reset", "60"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := must(t, serverside.Config{Rules: oneRule(quota.PerMinute(60)), Style: style, Audit: silent}).Wrap(new(ok))
			time.Sleep(900 * time.Millisecond)
			spend(t, h, 59)
			w := ask(h, "GET", "/")
			assert.Equal(t, []string{c.want}, w.Header()[c.field])
			assert.Len(t, limitFields(w.Header()), 3, "and no other family")
			assert.Equal(t, []string{c.want}, ask(h, "GET", "/").Header()[c.field])
		})
	}
}

func TestXRateLimitShowsTheTightestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{
			Rules: oneRule(quota.PerSecond(50), quota.PerMinute(500)), Audit: silent,
		}).Wrap(new(ok))
		for range 8 {
			spend(t, h, 50)
			time.Sleep(time.Second)
		}
		w := ask(h, "GET", "/")
		assert.Equal(t, "500", w.Header().Get("X-RateLimit-Limit"), "500 less 400 is less than 50 less 1")
		for range 50 {
			w = ask(h, "GET", "/")
		}
		require.Equal(t, 429, w.Code)
		assert.Equal(t, "50", w.Header().Get("X-RateLimit-Limit"), "what denies comes first")
	})
}

func FuzzEveryDenialHasOneRetryAfter(f *testing.F) {
	for i := range uint8(8) {
		f.Add(i, int64(i)*7, int64(1)<<(i*8), i%2 == 0)
	}
	seconds := regexp.MustCompile(`^[1-9][0-9]*$`)
	f.Fuzz(func(t *testing.T, kind uint8, n, window int64, head bool) {
		policy := quota.Policy{Quota: max(1, n), Window: time.Duration(window), Algorithm: quota.Algorithm(kind % 5)}
		if policy.Algorithm == quota.LeakyBucket { // it delays requests instead of denying them
			policy.Algorithm = quota.TokenBucket
		}
		cfg := serverside.Config{
			Audit: silent, Style: ratelimit.Style(n & 63),
			Rules: []serverside.Rule{{Name: "api", Policies: []quota.Policy{policy}}},
		}
		switch kind % 4 {
		case 0:
			cfg.Store, cfg.OnStoreError = store(down), serverside.FailClosed
		case 1:
			cfg.Rules = append(cfg.Rules, serverside.Rule{
				Name: "all", Stage: serverside.Overload, Status: 503,
				Policies: []quota.Policy{{Quota: 1, Window: time.Hour}},
			})
		case 2:
			cfg.Rules = append(cfg.Rules, serverside.Rule{Name: "slots", MaxInFlight: 1})
		}
		for _, cfg.Deny = range bodies {
			l, err := serverside.New(cfg)
			if err != nil {
				return
			}
			method := map[bool]string{true: "HEAD", false: "GET"}[head]
			answers := []*httptest.ResponseRecorder{}
			h := l.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if len(answers) == 0 && kind%4 == 2 {
					answers = append(answers, ask(l.Wrap(new(ok)), method, "/"))
				}
			}))
			for range 3 {
				answers = append(answers, ask(h, method, "/"))
			}
			for _, w := range answers {
				switch after := w.Header()["Retry-After"]; {
				case w.Code == 200 && len(after) > 0:
					t.Fatal("an admission says when to come back")
				case w.Code == 200:
				case w.Code != 429 && w.Code != 503:
					t.Fatalf("a denial is %d", w.Code)
				case len(after) != 1 || !seconds.MatchString(after[0]):
					t.Fatalf("a denial says Retry-After: %q", after)
				case w.Header().Get("Cache-Control") != "no-store":
					t.Fatal("a denial may be stored")
				case !head && !strings.Contains(w.Body.String(), "{"):
					t.Fatal("a denial has no body")
				}
			}
		}
	})
}

func TestManyKeysUseBoundedMemory(t *testing.T) {
	cfg, most := serverside.Config{Rules: oneRule(quota.PerSecond(1)), Audit: silent}, 150_000
	if !testenv.Long() {
		cfg.Store, most = &quota.Memory{MaxKeys: 6500}, 15_000
	}
	h := must(t, cfg).Wrap(http.HandlerFunc(bare))
	w := null{make(http.Header)}
	r := request("GET", "/", "")
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range most {
		r.RemoteAddr = netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}).String() + ":1"
		clear(w.header)
		h.ServeHTTP(w, r)
	}
	assert.Less(t, heap()-before, int64(most)*200) // bytes
	runtime.KeepAlive(h)
}

func TestDescribe(t *testing.T) {
	login := serverside.Logins("login", "POST /login", serverside.FormValue("user"))
	guard := at(serverside.Overload, perHour("all", "", 1000))
	guard.Status = 503
	dryRun := by(user, serverside.Rule{Name: "slots", MaxInFlight: 20, DryRun: true})
	burst := serverside.Rule{
		Policies: []quota.Policy{
			{Quota: 10, Window: time.Second, Burst: 50},
			{Quota: 1000, Algorithm: quota.FixedWindow, Calendar: quota.Month},
		},
	}
	for rule, want := range map[*serverside.Rule]string{
		&login: "At most 5 in 1m of requests to POST /login, counted for each account and network, and each account. " +
			"Others get 429 Too Many Requests with Retry-After, and after 5 strikes are blocked for 12s or longer.",
		&guard: "At most 1000 in 1h of all requests, counted for all clients together. " +
			"Others get 503 Service Unavailable with Retry-After.",
		&dryRun: "At most 20 at the same time of all requests, counted for each value of a function of the program. " +
			"Others are counted, but still served.",
		&burst: "At most 10 in 1s (50 at once) and 1000 in month of all requests, " +
			"counted for each address, or each key of Config.Key. " +
			"Others get 429 Too Many Requests with Retry-After.",
		&tiered()[0]: "At most 10 in 1m and 100 in 1h for free, 100 in 1m and 10000 in 1h for pro, " +
			"1000 in 1m and 100000 in 1h for enterprise " +
			"of all requests, counted for each value of a function of the program. " +
			"Others get 429 Too Many Requests with Retry-After.",
	} {
		assert.Equal(t, want, rule.Describe())
	}
}

func TestStoreIsAskedOncePerStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		memory := new(quota.Memory)
		counting := store(func(
			ctx context.Context, dst []quota.Decision, charges ...quota.Charge,
		) ([]quota.Decision, error) {
			asked++
			return memory.Take(ctx, dst, charges...)
		})
		var rules []serverside.Rule
		for i := range 5 {
			rules = append(rules, perHour(fmt.Sprint("ip", i), "", 10),
				at(serverside.AfterAuth, by(user, perHour(fmt.Sprint("user", i), "", 10))),
				at(serverside.Overload, perHour(fmt.Sprint("all", i), "", 10)))
		}
		l := must(t, serverside.Config{Rules: rules, Store: counting, Audit: silent})
		assert.Equal(t, 200, ask(l.Wrap(new(ok)), "GET", "/", "X-User", "ann").Code)
		assert.Equal(t, 1, asked)
		assert.Equal(t, 200, ask(l.WrapEarly(l.Wrap(new(ok))), "GET", "/", "X-User", "ann").Code)
		assert.Equal(t, 3, asked)
	})
}

func TestConcurrentRequestsThroughAllFeaturesAreCountedExactly(t *testing.T) {
	rules := []serverside.Rule{
		{Name: "ip", Policies: []quota.Policy{quota.PerDay(1000)}, MaxInFlight: 1000},
		{Name: "user", Stage: serverside.AfterAuth, Key: user, Tier: tierOf, Tiers: []serverside.Tier{
			{Name: "free", Policies: []quota.Policy{quota.PerDay(50)}},
		},
			Settle:  serverside.RefundIf(serverside.FromCache),
			Penalty: &serverside.Penalty{After: 1 << 20, Within: time.Hour, First: time.Second}},
		at(serverside.Overload, perHour("all", "", 5000)),
	}
	l := must(t, serverside.Config{
		Rules: rules, InContext: true, ExposeFields: true, Audit: silent, Exempt: []string{"/health"},
	})
	h := l.WrapEarly(l.Wrap(http.HandlerFunc(bare)))
	for round := range 5 {
		var admitted atomic.Int64
		var group sync.WaitGroup
		for range 200 {
			group.Go(func() {
				if ask(h, "GET", "/", "X-User", "free-"+strconv.Itoa(round)).Code == 204 {
					admitted.Add(1)
				}
			})
		}
		group.Wait()
		assert.Equal(t, int64(50), admitted.Load())
	}
}
