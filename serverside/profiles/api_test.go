package profiles_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside/profiles"
)

func TestAPIHasItsNumbers(t *testing.T) {
	user, account := []string{"X-User", "7"}, []string{"X-Account", "ann"}
	meets(t, profiles.API, options(),
		line{"POST /login", account, []string{"5", "4", unix(900)}, 5, "900"},
		line{"POST /register", nil, []string{"5", "4", unix(900)}, 5, "900"},
		line{"GET /api/items", user, []string{"100", "99", unix(60)}, 100, "60"},
		line{"POST /api/items", user, []string{"30", "29", unix(1)}, 30, "1"},
		line{"POST /upload", user, []string{"10", "9", unix(60)}, 10, "60"},
	)
}

// A client that never waits gets five logins in any quarter of an hour, a hundred reads in any
// minute, and after the burst five writes a second and one upload a minute.
func TestAPIAdmitsItsLimit(t *testing.T) {
	for what, c := range map[string]struct {
		window        time.Duration
		first, second int // admitted in the first window and in the second
	}{
		"POST /login": {15 * time.Minute, 5, 5}, "GET /api/items": {time.Minute, 100, 100},
		"POST /api/items": {time.Minute, 30 + 5*60 - 1, 300}, "POST /upload": {time.Minute, 10, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := limited(t, profiles.API(options()))
			for i, want := range []int{c.first, c.second} {
				admitted := 0
				for range 5 * int(c.window/time.Second) {
					n, _ := spend(h, 1000, what, "X-User", "7", "X-Account", "ann")
					admitted += n
					time.Sleep(200 * time.Millisecond)
				}
				assert.Equal(t, want, admitted, "%s, window %d", what, i)
			}
		})
	}
}

// Any minute has at most a hundred queries. Denials are not counted.
func TestAPICountsQueriesByASlidingWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.API(options()))
		var admitted []time.Time
		for range 5000 {
			if ask(h, "GET /api/items", "X-User", "7").Code == 200 {
				admitted = append(admitted, time.Now())
			}
			time.Sleep(70 * time.Millisecond)
		}
		require.Greater(t, len(admitted), 500)
		for i := 100; i < len(admitted); i++ {
			gap := admitted[i].Sub(admitted[i-100])
			require.GreaterOrEqual(t, gap, time.Minute)
			require.Less(t, gap, time.Minute+70*time.Millisecond, "what was denied was not counted")
		}
	})
}

// A user named like an address has another key than that address.
func TestAPIKeysNameTheKindAndTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store witness
		o := options()
		o.Store = &store
		h := limited(t, profiles.API(o))
		ask(h, "OPTIONS /login", "X-User", "7")
		ask(h, "GET /api/items", "X-User", "7")
		ask(h, "GET /api/items", "X-User", "203.0.113.45")
		ask(h, "GET /api/items")
		assert.Equal(t, []string{
			"key:login:203.0.113.45 login/15m", "key:query:0:7 query/1m",
			"key:query:0:203.0.113.45 query/1m", "key:query:1:203.0.113.45 query/1m",
		}, store.chargedBeside("address"))
	})
}

// Behind authentication, two users on one address have a count each. In front of it the address counts.
func TestAPICountsAuthenticatedUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, profiles.API(options()))
		h := l.WrapEarly(authenticated(l.Wrap(handler)))
		for _, credentials := range []string{"of ann", "of bob"} {
			n, _ := spend(h, 200, "GET /api/items", "Authorization", credentials)
			assert.Equal(t, 100, n, credentials)
		}
		for range 5 {
			assert.Equal(t, 401, ask(h, "POST /login", "X-Account", "ann").Code)
		}
		assert.Equal(t, 429, ask(h, "POST /login", "X-Account", "ann").Code, "wrong credentials are counted too")
	})
}

// The body is a problem document with the header's wait.
func TestAPIBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.API(options()))
		for i := range 30 {
			assert.Equal(t, unix(i/5+1), numbers(ask(h, "POST /api/items", "X-User", "7"))[2])
		}
		time.Sleep(13 * time.Second)
		_, denied := spend(h, 101, "GET /api/items", "X-User", "7")
		assert.Equal(t, "application/problem+json", denied.Header().Get("Content-Type"))
		assert.JSONEq(t, `{"type":"https://api.example.com/problems/rate-limited","title":"Too Many Requests","status":429,
			"detail":"API rate limit exceeded. Limit: 100 requests per minute.","retryAfter":60}`, denied.Body.String())
		assert.Equal(t, "60", denied.Header().Get("Retry-After"))
		assert.Equal(t, []string{"100", "0", unix(73)}, numbers(denied))
	})
}
