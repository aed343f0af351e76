package serverside_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
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

func burn(d time.Duration) {
	for t := time.Now(); time.Since(t) < d; {
	}
}

// As many guesses at once as can be, over Redis: no more than 5 reach the handler, and one
// success among them does not let more through than the pardon says.
func TestAttackGuessesAtOnceOverRedis(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClient(slowly(srv.Addr))
	defer rdb.Close()
	var guesses atomic.Int64
	h := must(t, serverside.Config{Store: &redisstore.Store{Client: rdb, Timeout: time.Minute}, StoreTimeout: time.Minute, Audit: silent, Rules: logins()}).
		Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guesses.Add(1); w.WriteHeader(401) }))
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() { login(h, fmt.Sprintf("10.%d.%d.1:1", i/200, i%200), "victim", "x") })
	}
	all.Wait()
	assert.LessOrEqual(t, guesses.Load(), int64(6))
}

// What the fields say of policies and of their states is about the same policies, whatever rules apply.
func TestAttackFieldsOfRandomRules(t *testing.T) {
	names := func(line string) (all string) {
		for item := range strings.SplitSeq(line, ", ") {
			all += strings.SplitN(item, ";", 2)[0] + " "
		}
		return all
	}
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var rules []serverside.Rule
		rules = append(rules, perHour("ip", "", 50))
		for i := range rnd.IntN(5) {
			r := perHour(fmt.Sprint("r", i), []string{"", "/a/", "/a/b", "GET /a/", "POST /a/b"}[rnd.IntN(5)], int64(1+rnd.IntN(30)))
			r.Stage = serverside.Stage(rnd.IntN(3))
			r.DryRun = rnd.IntN(4) == 0
			if rnd.IntN(3) == 0 {
				r.Policies = append(r.Policies, quota.PerMinute(int64(1+rnd.IntN(20))))
			}
			if rnd.IntN(5) == 0 {
				r.Key = serverside.KeyFunc(func(*http.Request) string { return "ann" })
				r.Limits = serverside.LimitTable{"ann": {PerMinute: 7, PerDay: 9}}
			}
			rules = append(rules, r)
		}
		if rnd.IntN(2) == 0 {
			r := perHour("form", "POST /a/", 9)
			r.Key = serverside.FormValue("user")
			rules = append(rules, r)
		}
		var allow []serverside.Allow
		if rnd.IntN(3) == 0 {
			allow = append(allow, serverside.Allow{Name: "in", Match: func(r *http.Request) bool { return r.Header.Get("In") != "" },
				Policies: []quota.Policy{quota.PerHour(3), quota.PerMinute(2)}})
		}
		l, err := serverside.New(serverside.Config{Rules: rules, Allow: allow, Audit: silent})
		require.NoError(t, err)
		h := l.Wrap(new(ok))
		if rnd.IntN(2) == 0 {
			h = l.WrapEarly(h)
		}
		for range 25 {
			r := post([]string{"/", "/a/", "/a/b"}[rnd.IntN(3)], urlencoded, "user=ann")
			if rnd.IntN(2) == 0 {
				r.Method = "GET"
			}
			if rnd.IntN(4) == 0 {
				r.Header.Set("In", "1")
			}
			w := serve(h, r)
			p, s := names(w.Header().Get("Ratelimit-Policy")), names(w.Header().Get("Ratelimit"))
			if len(strings.Fields(p)) != len(strings.Fields(s)) || !sameWords(p, s) {
				t.Fatalf("seed %d: %d: %q %q\n%v", seed, w.Code, w.Header().Get("Ratelimit-Policy"), w.Header().Get("Ratelimit"), rules)
			}
			if w.Code == 429 && w.Header().Get("Retry-After") == "" {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func sameWords(a, b string) bool {
	in := make(map[string]bool)
	for w := range strings.FieldsSeq(a) {
		in[w] = true
	}
	for w := range strings.FieldsSeq(b) {
		if !in[w] {
			return false
		}
	}
	return true
}

// Requests of many kinds at once: nobody gets another's numbers, and nothing is lost.
func TestAttackThePoolAtOnce(t *testing.T) {
	rules := []serverside.Rule{perHour("ip", "", 1000), {Name: "form", Pattern: "POST /", Key: serverside.FormValue("user"), Policies: []quota.Policy{quota.PerHour(3)}},
		{Name: "panics", Pattern: "/panics", Policies: []quota.Policy{quota.PerHour(1000)}, MaxInFlight: 4, Cost: func(*http.Request) int64 { panic("cost") }}}
	h := recovering(must(t, serverside.Config{Rules: rules, Audit: silent, InContext: true}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := serverside.FromContext(r.Context()); !ok || d.Rule != "ip" && d.Rule != "form" {
			t.Error(d)
		}
		w.WriteHeader(200)
	})))
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for n := range 6 {
				r := post("/", urlencoded, fmt.Sprint("user=u", i))
				r.RemoteAddr = fmt.Sprintf("10.0.%d.1:1", i)
				want := 200
				if n >= 3 {
					want = 429
				}
				w := serve(h, r)
				if w.Code != want {
					t.Errorf("%d of %d: %d", n, i, w.Code)
				}
				p := post("/panics", "", "")
				p.RemoteAddr = r.RemoteAddr
				serve(h, p)
			}
		})
	}
	all.Wait()
}

// Two goroutines of one request, as an errgroup has them, go through the same Limiter once more.
func TestAttackGoroutinesOfOneRequest(t *testing.T) {
	l := limit(t, quota.PerHour(1000))
	h := l.WrapEarly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { l.Wrap(new(ok)).ServeHTTP(httptest.NewRecorder(), r) })
		}
		all.Wait()
	}))
	for range 20 {
		ask(h, "GET", "/")
	}
}

// Late, with FailOpen or FailClosed: the count of this process begins with nothing, again.
func TestAttackLateIsAnotherQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m quota.Memory
		var slow atomic.Bool
		s := store(func(ctx context.Context, dst []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			if slow.Load() && strings.HasSuffix(charges[0].Key, "192.0.2.1") {
				time.Sleep(80 * time.Millisecond)
			}
			return m.Take(ctx, dst, charges...)
		})
		rule := perHour("api", "", 10)
		rule.OnStoreError = serverside.FailOpen
		served := 0
		h := must(t, serverside.Config{Rules: []serverside.Rule{rule}, Audit: silent, Store: s}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.RemoteAddr == "192.0.2.1:1" {
				served++
			}
		}))
		for range 20 {
			askFrom("192.0.2.1:1", h, "GET", "/")
		}
		slow.Store(true)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					askFrom("192.0.2.2:1", h, "GET", "/")
					time.Sleep(time.Millisecond)
				}
			}
		}()
		for range 50 {
			askFrom("192.0.2.1:1", h, "GET", "/")
		}
		close(stop)
		time.Sleep(time.Second)
		assert.LessOrEqual(t, served, 10)
	})
}
