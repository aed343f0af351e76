package profiles_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/profiles"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// A line is a sequence of equal requests until the first denial.
type line struct {
	what     string   // "POST /login"
	fields   []string // of the request
	first    []string // limit, remaining and reset in the first response
	admitted int      // requests before the denial
	wait     string   // Retry-After of the denial
}

// meets checks lines, each with its own limiter.
func meets(t *testing.T, config func(profiles.Options) serverside.Config, o profiles.Options, lines ...line) {
	for _, l := range lines {
		synctest.Test(t, func(t *testing.T) {
			h := limited(t, config(o))
			assert.Equal(t, l.first, numbers(ask(h, l.what, l.fields...)), l.what)
			admitted, denied := spend(h, 20000, l.what, l.fields...)
			assert.Equal(t, l.admitted, 1+admitted, "%s %v", l.what, l.fields)
			assert.Equal(t, l.wait, denied.Header().Get("Retry-After"), "%s %v", l.what, l.fields)
			assert.Equal(t, "0", numbers(denied)[1], l.what)
		})
	}
}

// began is the Unix time at which a bubble starts.
const began = 946684800

func unix(seconds int) string { return fmt.Sprint(began + seconds) }

func TestForgeHasItsNumbers(t *testing.T) {
	token := []string{"X-Token", "t1"}
	meets(t, profiles.Forge, options(),
		// The limit of GET /login is below that of an address's reads.
		line{"GET /login", nil, []string{"5", "4", unix(60)}, 5, "60"},
		line{"POST /signup", nil, []string{"5", "4", unix(60)}, 5, "60"},
		line{"POST /reset", nil, []string{"5", "4", unix(60)}, 5, "60"},
		line{"GET /", nil, []string{"60", "59", unix(1)}, 60, "1"},
		line{"GET /search", nil, []string{"60", "59", unix(1)}, 60, "1"},
		line{"GET /api/items", token, []string{"60", "59", unix(1)}, 60, "1"},
		line{"GET /search", token, []string{"60", "59", unix(1)}, 60, "1"},
		line{"PUT /api/items", token, []string{"60", "59", unix(1)}, 60, "1"},
		line{"POST /webhooks/github", token, []string{"100", "99", unix(1)}, 100, "1"},
	)
	synctest.Test(t, func(t *testing.T) { // 600 a minute of reads, 60 of writes, 100 of webhooks
		h := limited(t, profiles.Forge(options()))
		for what, perMinute := range map[string]int{
			"GET /api/items": 600, "POST /api/items": 60, "POST /webhooks/github": 100,
		} {
			spend(h, 1000, what, token...)
			admitted := 0
			for range 600 {
				time.Sleep(100 * time.Millisecond)
				n, _ := spend(h, 1000, what, token...)
				admitted += n
			}
			assert.Equal(t, perMinute, admitted, what)
		}
	})
}

func TestForgeLimitsLoginsMoreThanFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		for range 5 {
			assert.Equal(t, 200, ask(h, "GET /login").Code)
			time.Sleep(2 * time.Second)
		}
		assert.Equal(t, 429, ask(h, "GET /login").Code)
		for range 50 {
			assert.Equal(t, 200, ask(h, "GET /static/x").Code)
		}
	})
}

func TestForgeAdmitsFiveLoginsInAnyMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		var admitted []time.Time
		for range 600 {
			if ask(h, "GET /login").Code == 200 {
				admitted = append(admitted, time.Now())
			}
			time.Sleep(time.Second)
		}
		require.Len(t, admitted, 5*10)
		for i := 5; i < len(admitted); i++ {
			assert.GreaterOrEqual(t, admitted[i].Sub(admitted[i-5]), time.Minute)
		}
	})
}

// After five failures the waits are 12 s, 24 s, 48 s. A success costs nothing.
func TestForgeLocksAnAccountAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		peer := 0
		login := func(fields ...string) (status int, wait string) {
			peer++
			w := askFrom(fmt.Sprintf("198.51.100.%d:1", peer), h, "POST /login", append(fields, "X-Account", "ann")...)
			return w.Code, w.Header().Get("Retry-After")
		}
		for range 20 {
			status, _ := login()
			require.Equal(t, 200, status, "a login that succeeds is free")
		}
		for range 5 {
			status, _ := login("X-Fails", "yes")
			require.Equal(t, 401, status)
		}
		for _, wait := range []int{12, 24, 48} {
			status, told := login("X-Fails", "yes")
			require.Equal(t, []any{429, fmt.Sprint(wait)}, []any{status, told})
			time.Sleep(time.Duration(wait) * time.Second)
			status, _ = login("X-Fails", "yes")
			require.Equal(t, 401, status)
		}
		status, _ := login()
		assert.Equal(t, 429, status)
		assert.Equal(t, 200, ask(h, "POST /login", "X-Account", "bob").Code)
	})
}

func TestForgeKeysNameTheBucketAndItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store witness
		o := options()
		o.Store = &store
		h := limited(t, profiles.Forge(o))
		ask(h, "OPTIONS /login")
		ask(h, "POST /signup")
		ask(h, "GET /api/items", "X-Token", "t1")
		ask(h, "POST /webhooks/a", "X-Token", "t1", "X-Tenant", "acme")
		assert.Equal(t, []string{
			"key:login_ip:203.0.113.45 login_ip/1m",
			"key:signup_ip:203.0.113.45 signup_ip/1m",
			"key:api_token:1:t1 api_token/requests",
			"key:webhook_sender:6:0:acme2:/a webhook_sender/1m", "key:webhook_sender_all:0:acme webhook_sender_all/1m",
		}, store.chargedBeside("address"))
		cfg := profiles.Forge(o)
		cfg.Rules[2].Name = "login_ip"
		_, err := serverside.New(cfg)
		assert.ErrorContains(t, err, `"login_ip" is already the name of Rules[1]`)
	})
}

// A sender has a hundred a minute for each endpoint, in any spelling, and a thousand for all.
func TestForgeCountsWebhooksBySenderAndEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		admitted := map[string]int{}
		for range 30 {
			for _, path := range []string{
				"/webhooks/gh", "/webhooks/GH/", "/webhooks//gh/push", "/webhooks/x/../gh", "/webhooks/%67h", "/webhooks/other",
			} {
				if ask(h, "POST "+path, "X-Token", "t1").Code == 200 {
					admitted[path]++
				}
			}
		}
		assert.Equal(t, 30, admitted["/webhooks/other"])
		delete(admitted, "/webhooks/other")
		sum := 0
		for _, n := range admitted {
			sum += n
		}
		assert.Equal(t, 100, sum)
		n, _ := spend(h, 200, "POST /webhooks/gh", "X-Token", "another")
		assert.Equal(t, 100, n)
	})
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		admitted := 0
		for i := range 2000 {
			if i == 500 {
				time.Sleep(time.Millisecond) // a rule with a penalty admits at most a thousand requests in a microsecond
			}
			if ask(h, fmt.Sprintf("POST /webhooks/%d", i), "X-Token", "t1").Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, 1000, admitted)
	})
}

func TestForgeCountsATenantsTokensTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		admitted := 0
		for i := range 100 {
			if ask(h, "GET /api/items", "X-Tenant", "acme", "X-Token", fmt.Sprint(i)).Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, 60, admitted)
		assert.Equal(t, 200, ask(h, "GET /api/items", "X-Token", "of another").Code)
	})
}

// Logins have no token, and are counted as logins. Other requests without a token are counted by
// address.
func TestForgeCountsAnonymousClientsByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		assert.Equal(t, []string{"5", "4", unix(60)}, numbers(ask(h, "POST /login", "X-Account", "ann")),
			"not the sixty of another rule")
		n, _ := spend(h, 1000, "PATCH /api/items")
		assert.Equal(t, 60, n)
		assert.Equal(t, 200, askFrom("203.0.113.46:1", h, "PATCH /api/items").Code)
	})
}

func TestForgeTrustsNoHeaderField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		admitted := 0
		for i := range 50 {
			address := fmt.Sprintf("198.51.100.%d", i)
			if ask(h, "GET /login", "CF-Connecting-IP", address, "X-Forwarded-For", address+", 192.0.2.1").Code == 200 {
				admitted++
			}
		}
		assert.Equal(t, 5, admitted)
		for i := range 20 {
			assert.Equal(t, 200, askFrom(fmt.Sprintf("203.0.113.%d:1", i), h, "GET /login", "X-Forwarded-For", "").Code)
		}
	})
}

func TestForgeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, profiles.Forge(options()))
		time.Sleep(900 * time.Millisecond) // reset is rounded up
		_, denied := spend(h, 100, "GET /", "X-Request-Id", "01HXY")
		assert.Equal(t, []string{"60", "0", unix(61)}, numbers(denied))
		assert.Equal(t, "application/json", denied.Header().Get("Content-Type"))
		assert.JSONEq(t, `{"error":{"code":"rate_limited","message":"Too many requests. Retry after 1 second.",
			"request_id":"01HXY"}}`, denied.Body.String())
		for name := range denied.Header() {
			assert.Contains(t, []string{
				"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After", "Cache-Control", "Content-Type",
			}, name)
		}
	})
}

func TestForgeTrustsNobodyWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		bypassed := 0
		o.Trusted = func(r *http.Request) bool { return r.Header.Get("X-Cron") != "" }
		o.Audit = func(e serverside.Event) {
			if e.Kind == serverside.Bypassed {
				bypassed++
			}
		}
		h := limited(t, profiles.Forge(o))
		n, denied := spend(h, 10000, "GET /login", "X-Cron", "yes")
		assert.Equal(t, []any{6000, 6000}, []any{n, bypassed})
		assert.Equal(t, "1", denied.Header().Get("Retry-After"))
	})
}

func TestForgeCountsLocallyWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		o.Store = new(down)
		h := limited(t, profiles.Forge(o))
		n, _ := spend(h, 10, "GET /login")
		assert.Equal(t, 5, n)
		n, last := spend(h, 200, "GET /api/items", "X-Token", "t1")
		assert.Equal(t, 60, n)
		assert.Equal(t, []string{"60", "0"}, numbers(last)[:2])
	})
}

func TestForgeFileCanBeTightened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options()
		before := string(profiles.File("forge.yaml"))
		after := strings.Replace(before, "window: 6s", "window: 1m", 1)
		require.NotEqual(t, before, after)
		var configs []serverside.Config
		for _, text := range []string{before, after} {
			cfg, err := rulefile.Parse("forge.yaml", []byte(text), o.Env())
			require.NoError(t, err)
			configs = append(configs, cfg)
		}
		l := must(t, configs[0])
		h := l.Wrap(handler)
		spend(h, 100, "GET /api/items", "X-Token", "t1")
		require.NoError(t, l.Reconfigure(configs[1]))
		assert.Equal(t, 429, ask(h, "GET /api/items", "X-Token", "t1").Code)
		time.Sleep(time.Second) // refilled ten before the change
		n, _ := spend(h, 100, "GET /api/items", "X-Token", "t1")
		assert.Equal(t, 10, n)
		for range 60 {
			time.Sleep(time.Second)
			n, _ := spend(h, 100, "GET /api/items", "X-Token", "t1")
			assert.Equal(t, 1, n, "one a second from now on")
		}
	})
}
