package profiles_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// Retry-After is the time until the next request fits, not until the window ends.
func TestUniversalHasItsNumbers(t *testing.T) {
	user := []string{"X-User", "usr_abc123"}
	meets(t, profiles.Universal, options(),
		line{"POST /api/auth/login", []string{"X-Account", "ann"}, []string{"5", "4", unix(60)}, 5, "60"},
		line{"POST /api/auth/register", nil, []string{"5", "4", unix(60)}, 5, "60"},
		line{"POST /api/auth/reset", nil, []string{"5", "4", unix(60)}, 5, "60"},
		line{"POST /api/auth/otp", nil, []string{"5", "4", unix(60)}, 5, "60"},
		line{"POST /api/contact", nil, []string{"5", "4", unix(720)}, 5, "720"},
		line{"POST /api/newsletter", nil, []string{"10", "9", unix(360)}, 10, "360"},
		line{"GET /api/public/x", nil, []string{"20", "19", unix(3)}, 20, "3"},
		line{"GET /api/search", nil, []string{"30", "29", unix(2)}, 30, "2"},
		line{"GET /api/data", user, []string{"100", "99", unix(1)}, 100, "1"},
		line{"POST /api/data", user, []string{"50", "49", unix(2)}, 50, "2"},
		line{"GET /api/export", user, []string{"10", "9", unix(360)}, 10, "360"},
		line{"POST /api/account/email", user, []string{"5", "4", unix(12)}, 5, "12"},
	)
}

// Five requests are admitted at once, and one more after exactly 12 s.
func TestUniversalPassesItsDescribedTests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Universal(options()))
		for left := 4; left >= 0; left-- {
			w := ask(h, "POST /api/account/email", "X-User", "ann")
			assert.Equal(t, []any{200, fmt.Sprint(left)}, []any{w.Code, numbers(w)[1]})
		}
		for range 100 {
			time.Sleep(119 * time.Millisecond)
			w := ask(h, "POST /api/account/email", "X-User", "ann")
			assert.Equal(t, []any{429, "0"}, []any{w.Code, numbers(w)[1]})
		}
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, 200, ask(h, "POST /api/account/email", "X-User", "ann").Code)
	})
	synctest.Test(t, func(t *testing.T) { // spoofed fields change nothing
		h := limited(t, profiles.Universal(options()))
		for i, spoofed := range []string{"1.1.1.1, 2.2.2.2, 3.3.3.3", "invalid-ip", "", ", 1.2.3.4", "1.2.3.4:80"} {
			w := ask(h, "POST /api/auth/otp", "X-Forwarded-For", spoofed)
			assert.Equal(t, fmt.Sprint(4-i), numbers(w)[1], spoofed)
		}
	})
}

// After a hundred requests in ten seconds, sixteen of a hundred a minute are left.
func TestUniversalRefillsWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Universal(options()))
		var left []string
		for i := range 101 {
			time.Sleep(time.Until(time.Unix(began, 0).Add(time.Duration(i) * 10 * time.Second / 99)))
			w := ask(h, "GET /api/data", "X-User", "ann")
			require.Equal(t, 200, w.Code)
			left = append(left, numbers(w)[1])
		}
		assert.Equal(t, []string{"99", "16", "15"}, []string{left[0], left[99], left[100]})
	})
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Universal(options()))
		for _, want := range []string{"99", "98", "98"} { // 99, 98.8 and 98.7
			assert.Equal(t, want, numbers(ask(h, "GET /api/data", "X-User", "ann"))[1])
			time.Sleep(500 * time.Millisecond)
		}
	})
}

// A user named like an address has another key than that address.
func TestUniversalKeysNameStrategyClientAndEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store witness
		o := options()
		o.Store = &store
		h := limited(t, fromFile(t, "universal_routes.json", o))
		ask(h, "OPTIONS /api/auth/login")
		ask(h, "GET /api/data", "X-User", "usr_abc123")
		ask(h, "GET /api/data", "X-User", "203.0.113.45")
		ask(h, "GET /api/data")
		assert.Equal(t, []string{
			"key:ip:203.0.113.45 /api/auth/login/1m", "key:user:usr_abc123 /api/data/1m",
			"key:user:203.0.113.45 /api/data/1m", "default:ip:203.0.113.45 /api/data/1m",
		}, store.charged)
		store.charged = nil
		ask(limited(t, profiles.Universal(o)), "GET /api/data", "X-User", "ann")
		assert.Equal(t, []string{"key:user:ann GET /api//1m", "key:* global:all/1m"}, store.chargedBeside("address"))
	})
}

func TestUniversalChargesAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		cfg := profiles.Universal(o)
		h := limited(t, cfg)
		spend(h, 100, "POST /api/public/x", "X-User", "ann") // 20 of the address
		time.Sleep(time.Minute)
		for range 5 {
			ask(h, "GET /api/public/x", "X-User", "bob")
		}
		exports, _ := spend(h, 20, "GET /api/export", "X-User", "bob")
		assert.Equal(t, 10, exports)
		for range 20 {
			ask(h, "GET /api/export", "X-User", "bob")
		}
		assert.Equal(t, "84", numbers(ask(h, "GET /api/data", "X-User", "bob"))[1], "of a hundred, fifteen were admitted")
	})
}

// The limit of all clients together is not charged for requests that another rule denies.
func TestUniversalGuardsTheServerAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Universal(options()))
		spend(h, 6, "POST /api/auth/otp")
		for range 100 {
			assert.Equal(t, 429, ask(h, "POST /api/auth/otp").Code)
		}
		var w *httptest.ResponseRecorder
		admitted := 5
		for i := range 20000 {
			if w = askFrom(fmt.Sprintf("198.51.%d.%d:1", i/250, i%250), h, "GET /x"); w.Code != 200 {
				break
			}
			admitted++
		}
		assert.Equal(t, 10000, admitted)
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.JSONEq(t, `{"detail":"Service temporarily unavailable. Please try again later."}`, w.Body.String())
	})
}

func TestUniversalFieldsShowTheClientsQuota(t *testing.T) {
	for _, o := range []profiles.Options{options(), withTiers(options())} {
		synctest.Test(t, func(t *testing.T) {
			h := limited(t, profiles.Universal(o))
			for i := range 2500 {
				require.Equal(t, 200, askFrom(fmt.Sprintf("198.51.100.%d:1", i%250), h, "GET /x").Code)
			}
			w := ask(h, "POST /api/auth/login", "X-Account", "ann", "X-Fails", "yes")
			assert.Equal(t, []string{"5", "4", unix(60)}, numbers(w))
			assert.Equal(t, []string{"6000", "5998"}, numbers(ask(h, "GET /x"))[:2])
		})
	}
}

// Passwords and one-time codes share a quota. A similar path has none.
func TestUniversalLimitsEverythingBelowAuth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Universal(options()))
		admitted := 0
		for range 20 {
			for _, path := range []string{
				"/api/auth/otp", "/api/auth/register", "/api/auth/reset", "/api/auth", "/api/auth/a/b",
			} {
				if ask(h, "POST "+path).Code == 200 {
					admitted++
				}
			}
		}
		assert.Equal(t, 5, admitted)
		n, _ := spend(h, 40, "POST /api/authors")
		assert.Equal(t, 40, n)
	})
}

func TestUniversalHasTiersForUsersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for request, want := range map[string]int{
			"GET /api/public/x": 20, "GET /api/search": 30, "GET /api/data": 100, "POST /api/data": 50,
		} {
			n, _ := spend(limited(t, profiles.Universal(withTiers(options()))), 200, request)
			assert.Equal(t, want, n, request)
		}
		n, _ := spend(limited(t, profiles.Universal(withTiers(options()))), 200, "GET /api/search", "X-User", "ann")
		assert.Equal(t, 10, n, "of a user who is free")
	})
}

func TestUniversalTiersHaveTwoWindows(t *testing.T) {
	for tier, c := range map[string]struct{ minute, hour int }{
		"free": {10, 100}, "pro": {100, 10000}, "enterprise": {1000, 100000}, "gold": {10, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := limited(t, profiles.Universal(withTiers(options())))
			n, denied := spend(h, 2000, "GET /api/data", "X-User", "ann", "X-Tier", tier)
			assert.Equal(t, c.minute, n)
			assert.Equal(t, fmt.Sprint(c.minute), numbers(denied)[0])
		})
	}
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Universal(withTiers(options())))
		n := 0
		for ; ask(h, "GET /api/data", "X-User", "ann", "X-Tier", "gold").Code == 200; n++ {
			time.Sleep(7 * time.Second)
		}
		assert.Equal(t, 100, n, "although no minute had ten")
		assert.Equal(t, "100", numbers(ask(h, "GET /api/data", "X-User", "ann", "X-Tier", "free"))[0])
	})
}

// Other spellings get no bucket of their own.
func TestUniversalLimitsEverySpellingOfAPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store witness
		o := options()
		o.Store = &store
		h := limited(t, profiles.Universal(o))
		admitted := 0
		for _, path := range []string{
			"/api/auth/login", "/api/auth/login/", "/api//auth/login", "/API/Auth/LOGIN",
			"/api/x/../auth/login", "/api/auth/%6cogin", "/api/./auth/login",
		} {
			if ask(h, "POST "+path, "X-Account", "ann").Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, 5, admitted)
		n, _ := spend(h, 10, "GET /api/authors")
		assert.Equal(t, 10, n)
		for _, path := range []string{"/health/", "/healthz"} {
			assert.Equal(t, 200, ask(h, "GET "+path).Code)
		}
		for i := range 200 {
			ask(h, fmt.Sprintf("POST /api/auth/login/%%7E%d", i))
		}
		keys := map[string]bool{}
		for _, charge := range store.charged {
			keys[charge] = true
		}
		assert.LessOrEqual(t, len(keys), 10, "%v", keys)
	})
}

func TestUniversalBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := profiles.Universal(options())
		_, denied := spend(limited(t, cfg), 10, "POST /api/contact")
		assert.JSONEq(t, `{"detail":"Rate limit exceeded. Please try again later."}`, denied.Body.String())
		assert.Equal(t, []string{"5", "0", unix(3600)}, numbers(denied))
		cfg.Deny = serverside.FlatBody
		_, denied = spend(limited(t, cfg), 10, "POST /api/contact")
		assert.JSONEq(t, `{"error":"Rate limit exceeded","message":"Please try again later","retryAfter":720}`,
			denied.Body.String())
	})
}

// While the store fails, requests are admitted uncounted, but logins are counted.
func TestUniversalAnswersWhateverTheStoreDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Store = new(down)
		h := limited(t, profiles.Universal(o))
		for _, what := range []string{"GET /health", "GET /api/data", "POST /api/contact", "GET /api/export", "GET /"} {
			for range 30 {
				w := ask(h, what, "X-User", "ann")
				require.Equal(t, 200, w.Code, what)
				assert.Equal(t, "ok", w.Body.String())
				assert.Empty(t, numbers(w))
			}
		}
		n, _ := spend(h, 10, "POST /api/auth/login", "X-Account", "ann")
		assert.Equal(t, 5, n, "but passwords cannot be guessed meanwhile")

		h = limited(t, profiles.Universal(options()))
		for _, what := range []string{"GET /api/data", "GET /api/endpoint", "GET /", "POST /api/contact"} {
			assert.Len(t, numbers(ask(h, what)), 3, what)
		}
		assert.Empty(t, numbers(ask(h, "GET /health")))
	})
}

func TestFileWithoutAWindowOrALimitIsRefused(t *testing.T) {
	text := string(profiles.File("universal.yaml"))
	for _, wrong := range []string{"5/0s", "0/1h", "-1/1h"} {
		_, err := parse(strings.Replace(text, "policies: 5/1h", "policies: "+wrong, 1))
		assert.ErrorContains(t, err, "must be", wrong)
	}
	cfg := profiles.Universal(options())
	cfg.Rules[0].Policies = []quota.Policy{{Quota: 5}}
	_, err := serverside.New(cfg)
	assert.ErrorContains(t, err, "Rules[0].Policies[0].Window")
}
