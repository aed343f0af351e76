package serverside_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// doors answers 200 to the right password and 401 to any other, whether the account exists
// or not.
func doors(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("password") != "right" || r.FormValue("user") == "nobody" {
		w.WriteHeader(401)
		io.WriteString(w, "wrong\n")
		return
	}
	io.WriteString(w, "welcome\n")
}

// login tries a password.
func login(h http.Handler, peer, user, password string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/login", strings.NewReader(url.Values{
		"user": {user}, "password": {password},
	}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = peer
	return serve(h, r)
}

// guarded returns doors behind Logins and a wide limit by address.
func guarded(t *testing.T, store quota.Store, audit func(serverside.Event)) http.Handler {
	return must(t, serverside.Config{Store: store, Audit: audit, Rules: []serverside.Rule{
		serverside.Logins("login", "POST /login", serverside.FormValue("user")), perHour("ip", "", 1000),
	}}).Wrap(http.HandlerFunc(doors))
}

// settling are Stores that settle: one in this process, and one called like a remote one.
var settling = map[string]func() quota.Store{
	"memory": func() quota.Store { return new(quota.Memory) },
	"remote": func() quota.Store { return &slowMemory{memory: new(quota.Memory)} },
}

// slowMemory is a Memory that answers late.
type slowMemory struct {
	memory *quota.Memory
	down   bool
}

func (e *slowMemory) Take(ctx context.Context, dst []quota.Decision,
	charges ...quota.Charge) ([]quota.Decision, error) {
	if e.down {
		return nil, errDown
	}
	time.Sleep(time.Microsecond)
	return e.memory.Take(ctx, dst, charges...)
}

func (e *slowMemory) Settle(ctx context.Context, charges ...quota.Charge) error {
	if e.down {
		return errDown
	}
	return e.memory.Settle(ctx, charges...)
}

func eachStore(t *testing.T, test func(t *testing.T, store quota.Store)) {
	for name, open := range settling {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, open()) })
		})
	}
}

func TestFiveFailedLoginsLockForLongerEachTime(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		var events eventLog
		h := guarded(t, store, events.add)
		for i := range 5 {
			w := login(h, fmt.Sprintf("198.51.100.%d:1", i), "ann", "guess") // one network
			require.Equal(t, 401, w.Code)
			require.Empty(t, w.Header().Get("Retry-After"))
		}
		for i, lasts := range []time.Duration{12, 24, 48, 96, 192} {
			lasts *= time.Second
			w := login(h, "198.51.100.9:1", "ann", "right")
			require.Equal(t, 429, w.Code, "the right password does not help either")
			assert.Equal(t, fmt.Sprint(int(lasts.Seconds())), w.Header().Get("Retry-After"))
			if i > 0 { // at first both policies deny as long
				assert.Equal(t, serverside.ProblemPenalty, problemOf(t, w).Type)
			}

			time.Sleep(lasts - 10*time.Microsecond)
			require.Equal(t, 429, login(h, "198.51.100.9:1", "ann", "guess").Code,
				"asking again changes nothing")
			time.Sleep(10 * time.Microsecond)
			require.Equal(t, 401, login(h, "198.51.100.9:1", "ann", "guess").Code, "guess %d", i)
			synctest.Wait()
		}
		assert.Equal(t, 200, login(h, "198.51.100.1:1", "bob", "right").Code, "others are not blocked")
		var waits []time.Duration
		for _, e := range events.of(serverside.Penalized) {
			waits = append(waits, e.Wait/time.Second)
		}
		assert.Equal(t, []time.Duration{12, 24, 48, 96, 192, 384}, waits)
	})
}

func TestSuccessfulLoginForgivesEarlierFailures(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		h := guarded(t, store, silent)
		for range 20 {
			for range 4 {
				require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
			}
			require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
			synctest.Wait()
		}
		for range 5 {
			require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		time.Sleep(12 * time.Second)
		require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
		synctest.Wait()
		for range 5 {
			require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		assert.Equal(t, "12", login(h, "192.0.2.1:1", "ann", "guess").Header().Get("Retry-After"), "it begins anew")
	})
}

func TestSuccessfulLoginsAreNotCharged(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		h := guarded(t, store, silent)
		for range 100 {
			require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
			synctest.Wait()
		}
	})
}

func TestAtMostFiveConcurrentGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrived := make(chan struct{})
		h := must(t, serverside.Config{Audit: silent, Rules: []serverside.Rule{
			serverside.Logins("login", "POST /login", serverside.FormValue("user")), perHour("ip", "", 1000),
		}}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-arrived
			doors(w, r)
		}))
		var group sync.WaitGroup
		var mu sync.Mutex
		count := make(map[int]int)
		for range 200 {
			group.Go(func() {
				code := login(h, "192.0.2.1:1", "ann", "guess").Code
				mu.Lock()
				defer mu.Unlock()
				count[code]++
			})
		}
		synctest.Wait()
		close(arrived)
		group.Wait()
		assert.Equal(t, map[int]int{401: 5, 429: 195}, count)
	})
}

func TestDenialDoesNotRevealWhetherAnAccountExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guarded(t, nil, silent)
		var answers []*httptest.ResponseRecorder
		for _, user := range []string{"ann", "nobody"} {
			var last *httptest.ResponseRecorder
			for i := range 6 {
				last = login(h, "192.0.2.1:1", user, "guess")
				if i < 5 {
					require.Equal(t, 401, last.Code)
				}
			}
			require.Equal(t, 429, last.Code)
			last.Header().Del("RateLimit") // it shows the address's quota too
			answers = append(answers, last)
		}
		assert.Equal(t, answers[0].Header(), answers[1].Header())
		assert.Equal(t, answers[0].Body.String(), answers[1].Body.String())
	})
}

func TestPenaltyGrowsWithDenialsAndIsForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		rule := serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerMinute(60)}, Penalty: &serverside.Penalty{
			After: 10, Within: time.Minute, First: time.Minute, Max: 4 * time.Minute, Forget: time.Hour}}
		h := must(t, serverside.Config{Store: store, Rules: []serverside.Rule{rule}, Audit: silent}).Wrap(new(ok))
		flood := func() time.Duration {
			for range 300 {
				if w := ask(h, "GET", "/"); w.Code == 429 && problemOf(t, w).Type == serverside.ProblemPenalty {
					return time.Duration(*problemOf(t, w).RetryAfterMS) * time.Millisecond
				}
			}
			return 0
		}
		for _, want := range []time.Duration{1, 2, 4, 4} {
			wait := flood()
			require.InDelta(t, float64(want*time.Minute), float64(wait), float64(2*time.Millisecond))
			time.Sleep(wait)
			w := ask(h, "GET", "/")
			require.Equal(t, 200, w.Code, w.Body.String())
			time.Sleep(time.Millisecond)
		}
		time.Sleep(24 * time.Hour)
		assert.InDelta(t, float64(time.Minute), float64(flood()), float64(2*time.Millisecond),
			"old penalties are forgotten")
	})
}

func TestPenaltyIsNotShownInFields(t *testing.T) {
	rule := serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(60)}, Penalty: &serverside.Penalty{
		After: 1, Within: time.Minute, First: time.Minute}}
	h := must(t, serverside.Config{Rules: []serverside.Rule{rule, perHour("ip", "", 600)}, Audit: silent}).Wrap(new(ok))
	w := ask(h, "GET", "/")
	assert.Equal(t, `"api";q=60;w=3600;heed-algorithm=token-bucket, "ip";q=600;w=3600;heed-algorithm=token-bucket`,
		w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, `"api";r=59;t=60, "ip";r=599;t=6`, w.Header().Get("RateLimit"))
	assert.Equal(t, "60", w.Header().Get("X-RateLimit-Limit"))
}

func TestDryRunOfAPenaltyBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := serverside.Logins("login", "POST /login", serverside.FormValue("user"))
		rule.DryRun = true
		var events eventLog
		h := must(t, serverside.Config{
			Audit: events.add, Rules: []serverside.Rule{rule, perHour("ip", "", 1000)},
		}).Wrap(http.HandlerFunc(doors))
		for range 20 {
			require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		assert.NotEmpty(t, events.of(serverside.WouldDeny))
		assert.Empty(t, events.of(serverside.Denied))
	})
}

func TestOnViolationsIsCalledFromTheNthStrike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := serverside.Logins("login", "POST /login", serverside.FormValue("user"))
		rule.Penalty = &serverside.Penalty{Strike: serverside.Unauthorized, After: 3, Within: time.Hour,
			OnViolations: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Challenge-Required", "true") }}
		h := must(t, serverside.Config{
			Audit: silent, Rules: []serverside.Rule{rule, perHour("ip", "", 1000)},
		}).Wrap(http.HandlerFunc(doors))
		for _, want := range []string{"", "", "true", "true"} {
			w := login(h, "192.0.2.1:1", "ann", "guess")
			require.Equal(t, 401, w.Code)
			assert.Equal(t, want, w.Header().Get("Challenge-Required"))
		}
		assert.Empty(t, login(h, "192.0.2.1:1", "ann", "right").Header().Get("Challenge-Required"))
	})
}

// Others at the address of a blocked client have done nothing.
func TestALaterDenialIsNoStrike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		early := perHour("ip", "", 1000)
		early.Penalty = &serverside.Penalty{
			Strike: func(r serverside.Response) bool { return r.Status >= 400 }, After: 3, Within: time.Hour, First: time.Hour,
		}
		late := limitedBy(serverside.LimitTable{"eve": {Blocked: true}, "ann": {PerHour: 1}})
		l := must(t, serverside.Config{Audit: silent, Rules: append(late, early)})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/missing" {
				w.WriteHeader(404)
			}
		})
		h := l.WrapEarly(l.Wrap(handler))
		assert.Equal(t, map[int]int{403: 9}, codes(9, h, "GET", "/", "X-User", "eve"))
		assert.Equal(t, map[int]int{200: 1, 429: 8}, codes(9, h, "GET", "/", "X-User", "ann"))
		assert.Equal(t, map[int]int{404: 3, 429: 1}, codes(4, h, "GET", "/missing", "X-User", "bob"), "the handler's are")
	})
}

func TestPenaltyInThisProcessLastsWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowMemory{memory: new(quota.Memory), down: true}
		h := guarded(t, store, silent)
		for range 5 {
			require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		assert.Equal(t, "12", login(h, "192.0.2.1:1", "ann", "guess").Header().Get("Retry-After"), "Logins counts locally")
	})
}

func TestFaultsOfAPenalty(t *testing.T) {
	per := []quota.Policy{quota.PerMinute(1)}
	hook := func(http.ResponseWriter, *http.Request) {}
	rules := []serverside.Rule{}
	for i, p := range []serverside.Penalty{
		{Within: 1, First: 1}, {After: 1, First: time.Second}, {After: 1, Within: time.Minute},
		{After: 1, Within: time.Minute, First: -1, OnViolations: hook},
		{After: 1, Within: time.Minute, First: 5, Max: 4}, {After: 1, Within: time.Minute, First: 5, Forget: -1},
	} {
		rules = append(rules, serverside.Rule{Name: fmt.Sprint(i), Policies: per, Penalty: &p})
	}
	_, err := serverside.New(serverside.Config{Rules: rules})
	assert.ElementsMatch(t,
		[]string{"Rules[0].Penalty.After", "Rules[1].Penalty.Within", "Rules[2].Penalty.First", "Rules[3].Penalty.First",
			"Rules[4].Penalty.Max", "Rules[5].Penalty.Forget"}, faults(t, err))

	_, err = serverside.New(serverside.Config{
		Store: store(down),
		Rules: []serverside.Rule{{Policies: per, Settle: serverside.RefundIf(serverside.FromCache)}},
	})
	assert.Equal(t, []string{"Store"}, faults(t, err), "it cannot settle")
	_, err = serverside.New(serverside.Config{Rules: []serverside.Rule{
		{
			Name: "a", Policies: []quota.Policy{{Name: "strikes", Quota: 1, Window: time.Minute}},
			Penalty: &serverside.Penalty{After: 1, Within: time.Minute, First: 1},
		},
	}})
	assert.Equal(t, []string{"Rules[0].Policies"}, faults(t, err), "they would be counted together")
}
