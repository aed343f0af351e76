package profiles_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// Guesses at passwords and tokens, for all profiles.

// withLogin are the profiles with a login, and its path.
var withLogin = []struct {
	profile
	path string
}{
	{all[0], "/login"}, {all[2], "/api/auth/login"}, {all[3], "/api/auth/login"}, {all[4], "/login"},
	{profile{name: "Universal's routes", config: func(o profiles.Options) serverside.Config {
		cfg, err := parseNamed("universal_routes.json", string(profiles.File("universal_routes.json")), o)
		if err != nil {
			panic(err)
		}
		return cfg
	}}, "/api/auth/login"},
}

// of returns the Config of p.
func (p profile) of(o profiles.Options) serverside.Config {
	if p.tiers {
		o = withTiers(o)
	}
	return p.config(o)
}

func TestGuessesAtAnAccountAreTenAMinute(t *testing.T) {
	for _, p := range withLogin {
		synctest.Test(t, func(t *testing.T) {
			var reached []time.Time
			h := must(t, p.of(options())).Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				reached = append(reached, time.Now())
				w.WriteHeader(http.StatusUnauthorized)
			}))
			for i := range 300 { // each from another network
				w := askFrom(fmt.Sprintf("198.%d.%d.7:1", i/250, i%250), h, "POST "+p.path, "X-Account", "ann")
				require.Contains(t, []int{401, 429}, w.Code)
				time.Sleep(time.Second)
			}
			assert.NotEmpty(t, reached)
			for i := 10; i < len(reached); i++ {
				assert.GreaterOrEqual(t, reached[i].Sub(reached[i-10]), time.Minute, "%s: guess %d", p.name, i)
			}
			assert.Equal(t, 401, askFrom("203.0.113.45:1", h, "POST "+p.path, "X-Account", "bob").Code, "another account")
		})
	}
}

func TestALoginWithoutAnAccountIsRefused(t *testing.T) {
	for _, p := range withLogin {
		w := ask(limited(t, p.of(options())), "POST "+p.path)
		assert.Equal(t, http.StatusBadRequest, w.Code, p.name)
		assert.Equal(t, "false", w.Header().Get("X-Should-Retry"), p.name)
	}
}

// After a hundred wrong tokens an address waits for ten seconds, and then for longer.
func TestWrongTokensAreLimitedByAddress(t *testing.T) {
	for _, p := range all {
		if p.name == "Forja" || p.name == "Patterns" {
			continue // they limit all requests of an address, as other tests show
		}
		synctest.Test(t, func(t *testing.T) {
			l := must(t, p.of(options()))
			h := l.WrapEarly(authenticated(l.Wrap(handler)))
			codes := map[int]int{}
			var denied *httptest.ResponseRecorder
			for i := range 700 {
				w := ask(h, "GET /api/items", "Authorization", fmt.Sprint("made up ", i))
				codes[w.Code]++
				assert.Len(t, numbers(w), 3, p.name)
				if w.Code == 429 {
					denied = w
				}
			}
			assert.Equal(t, map[int]int{401: 100, 429: 600}, codes, p.name)
			assert.Equal(t, "10", denied.Header().Get("Retry-After"), p.name)
			assert.Equal(t, 200, askFrom("198.51.100.7:1", h, "GET /api/items", "Authorization", "of ann").Code,
				"another address")
			time.Sleep(10 * time.Second)
			assert.Equal(t, 200, ask(h, "GET /api/items", "Authorization", "of ann").Code, p.name)

			admitted := 0
			for range 3600 {
				if ask(h, "GET /api/items", "Authorization", "made up").Code == 401 {
					admitted++
				}
				time.Sleep(100 * time.Millisecond)
			}
			assert.LessOrEqual(t, admitted, 6*100, "%s: a hundred a minute", p.name)
		})
	}
}

// A user's requests from one address meet only the user's limit.
func TestAddressesAndUsersAreLimitedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Universal(withTiers(options())))
		for i := range 1000 {
			w := ask(h, "GET /api/data", "X-User", "ann", "X-Tier", "enterprise")
			require.Equal(t, 200, w.Code)
			require.Equal(t, []string{"1000", fmt.Sprint(999 - i)}, numbers(w)[:2])
		}
	})
}
