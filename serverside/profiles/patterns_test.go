package profiles_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
)

// Requests from many addresses meet the limit of their user or key.
func TestPatternsHasItsNumbers(t *testing.T) {
	for who, c := range map[string]struct {
		what   string
		fields []string
		limit  int
	}{
		"address":  {"GET /x", nil, 100},
		"user":     {"GET /x", []string{"X-User", "ann"}, 1000},
		"API key":  {"GET /x", []string{"X-Api-Key", "k"}, 5000},
		"endpoint": {"GET /search", []string{"X-User", "ann"}, 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := limited(t, profiles.Patterns(options()))
			admitted := 0
			for i := range 6000 {
				peer := fmt.Sprintf("198.51.%d.%d:1", i/250, i%250)
				if who == "address" {
					peer = "198.51.100.1:1"
				}
				w := askFrom(peer, h, c.what, c.fields...)
				if w.Code != 200 {
					assert.Equal(t, []string{fmt.Sprint(c.limit), "0"}, numbers(w)[:2], who)
					break
				}
				admitted++
			}
			assert.Equal(t, c.limit, admitted, who)
		})
	}
}

func TestPatternsChecksTheMostSpecificFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rules []string
		o := options()
		o.Audit = func(e serverside.Event) {
			if e.Kind == serverside.Denied {
				rules = append(rules, e.Rule)
			}
		}
		cfg := profiles.Patterns(o)
		for i := range cfg.Rules {
			cfg.Rules[i].Policies[0].Quota = 1
		}
		l := must(t, cfg)
		both := []string{"X-User", "ann", "X-Api-Key", "k"}
		behind := func(h int) string { return fmt.Sprintf("198.51.100.%d:1", h) }
		h := l.WrapEarly(l.Wrap(handler))
		assert.Equal(t, 200, askFrom(behind(1), h, "GET /search", both...).Code)
		assert.Equal(t, 429, askFrom(behind(1), h, "GET /search", both...).Code)
		assert.Equal(t, 429, askFrom(behind(2), h, "GET /search", both...).Code)
		assert.Equal(t, 429, askFrom(behind(3), h, "GET /x", both...).Code)
		assert.Equal(t, 429, askFrom(behind(4), h, "GET /x", "X-Api-Key", "k").Code)
		assert.Equal(t, []string{"ip", "search", "user", "api_key"}, rules)
	})
}

// One address can use a whole plan. The burst is less than the quota of an hour.
func TestPatternsHasTiersWithABurst(t *testing.T) {
	for tier, c := range map[string]struct {
		burst, hour int
		wait        string
	}{"free": {10, 100, "36"}, "pro": {100, 5000, "1"}, "enterprise": {2000, 100000, "1"}, "gold": {10, 100, "36"}} {
		synctest.Test(t, func(t *testing.T) {
			h := limited(t, profiles.Patterns(withTiers(options())))
			n, denied := 0, (*httptest.ResponseRecorder)(nil)
			for range 3 { // a rule with a penalty admits at most a thousand requests in a microsecond
				admitted, last := spend(h, 900, "GET /x", "X-User", "ann", "X-Tier", tier)
				n, denied = n+admitted, last
				time.Sleep(time.Millisecond)
			}
			assert.Equal(t, c.burst, n, tier)
			assert.Equal(t, []string{fmt.Sprint(c.hour), "0"}, numbers(denied)[:2])
			assert.Equal(t, c.wait, denied.Header().Get("Retry-After"))
		})
	}
}

func TestPatternsKeysNameTheClientAndTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store witness
		o := options()
		o.Store = &store
		ask(limited(t, profiles.Patterns(o)), "GET /search", "X-User", "ann", "X-Api-Key", "k")
		assert.Equal(t, []string{
			"key:ip:203.0.113.45 ip/1m", "key:0:ann search/1m", "key:user:ann user/1h", "key:api_key:k api_key/1h",
		}, store.charged)
	})
}

// The body has the numbers of the three fields.
func TestPatternsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		h := limited(t, profiles.Patterns(o))
		time.Sleep(12 * time.Second)
		_, denied := spend(h, 61, "GET /search", "X-User", "ann")
		assert.Equal(t, "application/json", denied.Header().Get("Content-Type"))
		var body struct {
			Error struct {
				Code, Message string
				RetryAfter    int64 `json:"retry_after"`
				Limit         int64
				ResetAt       time.Time `json:"reset_at"`
			}
		}
		require.NoError(t, json.Unmarshal(denied.Body.Bytes(), &body))
		e := body.Error
		assert.Equal(t, []any{"rate_limit_exceeded", "Rate limit exceeded. Maximum 60 requests per minute.", int64(60)},
			[]any{e.Code, e.Message, e.Limit})
		assert.Equal(t, denied.Header().Get("Retry-After"), fmt.Sprint(e.RetryAfter))
		reset, err := strconv.Atoi(denied.Header().Get("Ratelimit-Reset"))
		require.NoError(t, err)
		assert.Equal(t, time.Now().UTC().Add(time.Duration(reset)*time.Second), e.ResetAt)
		for name := range denied.Header() {
			assert.Contains(t, []string{
				"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Retry-After", "Cache-Control", "Content-Type",
			}, name)
		}
	})
}

func TestPatternsNeverAnswers503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Store = new(down)
		n, last := spend(limited(t, profiles.Patterns(o)), 200, "GET /search", "X-User", "ann")
		assert.Equal(t, 60, n)
		assert.Equal(t, 429, last.Code)
		for _, rule := range profiles.Patterns(withTiers(o)).Rules {
			assert.Zero(t, rule.Status, rule.Name)
			assert.Zero(t, rule.OnStoreError, rule.Name)
		}
	})
}

func TestPatternsLimitsClientsThatMakeUpUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, profiles.Patterns(options()))
		h := l.WrapEarly(authenticated(l.Wrap(handler)))
		admitted := 0
		for i := range 500 {
			if ask(h, "GET /x", "Authorization", fmt.Sprint("made up ", i), "X-Api-Key", fmt.Sprint(i)).Code == 401 {
				admitted++
			}
		}
		assert.Equal(t, 100, admitted)
	})
}
