package serverside_test

import (
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A bank is a careless login handler: it accepts the account from any place in the request.
type bank struct {
	guesses  atomic.Int64 // at the account "victim"
	failed   int          // status for a wrong password
	redirect bool         // answer 303 to the right password
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	account := accountOf(r, string(body))
	if strings.EqualFold(strings.TrimSpace(account), "victim") {
		b.guesses.Add(1)
	}
	if r.Context().Err() != nil {
		return
	}
	switch {
	case !strings.Contains(string(body), "right"):
		w.WriteHeader(b.failed)
	case b.redirect:
		w.WriteHeader(303)
	default:
		w.WriteHeader(200)
	}
}

// accountOf reads an account in all the ways in which handlers do.
func accountOf(r *http.Request, body string) string {
	if user := r.URL.Query().Get("user"); user != "" {
		return user
	}
	if text := strings.TrimSpace(body); strings.HasPrefix(text, "{") {
		if i := strings.LastIndex(text, `"user":"`); i >= 0 { // the last of several
			return text[i+8 : i+8+strings.IndexByte(text[i+8:], '"')]
		}
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	r.ParseMultipartForm(1 << 20)
	for _, values := range r.Form {
		for _, v := range values {
			if strings.EqualFold(strings.TrimSpace(v), "victim") {
				return v
			}
		}
	}
	return r.FormValue("user")
}

// A trick makes the nth request of an attack.
type trick func(n int) *http.Request

func post(target, kind, body string) *http.Request {
	r := httptest.NewRequest("POST", target, strings.NewReader(body))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

const urlencoded, asJSON = "application/x-www-form-urlencoded", "application/json"

var tricks = map[string]trick{
	"none": func(n int) *http.Request { return post("/login", urlencoded, "user=victim&password=x") },
	"case": func(n int) *http.Request { return post("/login", urlencoded, "password=x&user="+variant(n)) },
	"spaces": func(n int) *http.Request {
		return post("/login", urlencoded, "user="+strings.Repeat("+", n)+"victim%20%09")
	},
	"json":     func(n int) *http.Request { return post("/login", asJSON, `{"password":"x","user":"victim"}`) },
	"no type":  func(n int) *http.Request { return post("/login", "", `{"user":"victim"}`) },
	"any type": func(n int) *http.Request { return post("/login", "text/plain", `{"user":"victim"}`) },
	"twice in JSON": func(n int) *http.Request {
		return post("/login", asJSON, fmt.Sprintf(`{"user":"decoy%d","user":"victim"}`, n))
	},
	"in JSON by another case": func(n int) *http.Request {
		return post("/login", asJSON, fmt.Sprintf(`{"USER":"decoy%d","user":"victim"}`, n))
	},
	"JSON that is a form": func(n int) *http.Request {
		return post("/login", urlencoded, fmt.Sprintf(`{"x":"&user=decoy%d&","user":"victim"}`, n))
	},
	"JSON in front of a multipart form": func(n int) *http.Request {
		part := "--b\r\nContent-Disposition: form-data; name=\"user\"\r\n\r\ndecoy" + fmt.Sprint(n) + "\r\n--b--\r\n"
		return post("/login", "multipart/form-data; boundary=b", `{"user":"victim"}`+"\r\n"+part)
	},
	"twice": func(n int) *http.Request {
		return post("/login", urlencoded, fmt.Sprintf("user=decoy%d&user=victim", n))
	},
	"multipart": func(n int) *http.Request {
		var b strings.Builder
		form := multipart.NewWriter(&b)
		form.WriteField("user", "victim")
		form.Close()
		return post("/login", form.FormDataContentType(), b.String())
	},
	"twice in a multipart form": func(n int) *http.Request {
		var b strings.Builder
		form := multipart.NewWriter(&b)
		form.WriteField("user", fmt.Sprint("decoy", n))
		form.WriteField("user", "victim")
		form.Close()
		return post("/login", form.FormDataContentType(), b.String())
	},
	"query": func(n int) *http.Request { return post("/login?user=victim", urlencoded, "password=x") },
	"query and body": func(n int) *http.Request {
		return post("/login?user=victim", urlencoded, fmt.Sprintf("user=decoy%d", n))
	},
	"query and nothing": func(n int) *http.Request { return post("/login?user=victim", "", "") },
	"padding": func(n int) *http.Request {
		return post("/login", urlencoded, "x="+strings.Repeat("x", 64<<10)+"&user=victim")
	},
	"padding behind": func(n int) *http.Request {
		return post("/login", urlencoded, fmt.Sprintf("user=decoy%d&x=%s&user=victim", n, strings.Repeat("x", 64<<10)))
	},
	"another spelling of the path": func(n int) *http.Request {
		return post([]string{"//login", "/./login", "/x/../login", "/LOGIN", "/login/", "/%6cogin"}[n%6], urlencoded,
			"user=victim")
	},
	"pardons by redirects": func(n int) *http.Request {
		if n%2 == 1 {
			return post("//login", urlencoded, "user=victim")
		}
		return post("/login", urlencoded, "user=victim")
	},
	"a client that goes": func(n int) *http.Request {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return post("/login", urlencoded, "user=victim").WithContext(ctx)
	},
	"the form by GET": func(n int) *http.Request {
		if n%2 == 1 {
			return httptest.NewRequest("GET", "/login?user=victim", nil)
		}
		return post("/login", urlencoded, "user=victim")
	},
}

func variant(n int) string {
	name := []byte("victim")
	for i := range name {
		if n>>i&1 == 1 {
			name[i] -= 'a' - 'A'
		}
	}
	return string(name)
}

// logins returns rules for a login and a wide limit by address.
func logins(change ...func(*serverside.Rule)) []serverside.Rule {
	rule := serverside.Logins("login", "POST /login", serverside.FormValue("user"))
	for _, c := range change {
		c(&rule)
	}
	return []serverside.Rule{rule, perHour("ip", "", 100_000)}
}

// hourly makes a login's limit five an hour, so that nothing is refilled during a test in real time.
func hourly(rule *serverside.Rule) {
	rule.Policies = []quota.Policy{quota.PerHour(5)}
	rule.Penalty.Within, rule.Penalty.First, rule.Penalty.Max = time.Hour, time.Hour, time.Hour
}

func TestAtMostTenGuessesAMinuteByEveryTrick(t *testing.T) {
	for name, trick := range tricks {
		for _, failed := range []int{401, 303, 400, 422, 500} {
			synctest.Test(t, func(t *testing.T) {
				b := &bank{failed: failed}
				mux := http.NewServeMux()
				mux.Handle("POST /login", b)
				mux.HandleFunc("GET /login", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
				h := must(t, serverside.Config{Rules: logins(), Audit: silent}).Wrap(mux)
				for second := range 30 {
					for n := range 3 {
						r := trick(second*3 + n)
						r.RemoteAddr = fmt.Sprintf("10.%d.%d.7:1", second, n) // another network each time
						serve(h, r)
					}
					time.Sleep(2 * time.Second)
				}
				assert.LessOrEqual(t, b.guesses.Load(), int64(10), "%s, %d", name, failed)
				if slices.Contains([]string{"none", "case", "spaces", "json", "no type", "any type", "multipart"}, name) {
					assert.GreaterOrEqual(t, b.guesses.Load(), int64(5), "%s: what is a login reaches the handler", name)
				}
			})
		}
	}
}

func TestAtMostFiveGuessesOverRealConnections(t *testing.T) {
	b := &bank{failed: 401}
	srv := listen(t, must(t, serverside.Config{Rules: logins(hourly), Audit: silent}).Wrap(b))
	for range 60 {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 11\r\n\r\nuser=victim",
			urlencoded)
		conn.Close()
	}
	client := srv.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for n := range 60 {
		resp, err := client.Post(srv.URL+[]string{
			"/login", "//login", "/./login",
		}[n%3], urlencoded, strings.NewReader("user=victim"))
		require.NoError(t, err)
		resp.Body.Close()
	}
	assert.LessOrEqual(t, b.guesses.Load(), int64(5))
	assert.Positive(t, b.guesses.Load())
}

func TestLoginFailedDecidesWhatAFailureIs(t *testing.T) {
	failed := func(rule *serverside.Rule) {
		rule.Login.Failed = func(r serverside.Response) bool { return r.Status != 303 }
	}
	synctest.Test(t, func(t *testing.T) {
		b := &bank{failed: 200, redirect: true}
		h := must(t, serverside.Config{Rules: logins(failed), Audit: silent}).Wrap(b)
		for range 100 {
			require.Equal(t, 303, login(h, "192.0.2.1:1", "ann", "right").Code)
		}
		for range 5 {
			require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		assert.Equal(t, "12", login(h, "192.0.2.1:1", "ann", "right").Header().Get("Retry-After"))
	})
}

// An attacker can keep an account blocked for unknown networks, but not for one from which the owner
// has logged in before.
func TestOwnerGetsInFromAKnownNetwork(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		h := guarded(t, store, silent)
		require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
		attackerTries := time.Duration(0)
		for hour := range 7 * 24 {
			for at := time.Duration(0); at < time.Hour; at += 5 * time.Second {
				if now := time.Duration(hour)*time.Hour + at; now >= attackerTries {
					w := login(h, "198.51.100.1:1", "ann", "guess")
					wait, _ := time.ParseDuration(w.Header().Get("Retry-After") + "s")
					attackerTries = now + wait
				}
				if at == 30*time.Minute {
					require.Equal(t, 200, login(h, "192.0.2.77:1", "Ann ", "right").Code, "hour %d", hour)
				}
				time.Sleep(5 * time.Second)
			}
		}
		time.Sleep(31 * 24 * time.Hour)
		for range 5 {
			login(h, "198.51.100.1:1", "ann", "guess")
		}
		assert.Equal(t, 429, login(h, "192.0.2.1:1", "ann", "right").Code, "it is known for 30 days")
	})
}

func TestUnknownNetworkWaitsAtMostAMinute(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		h := guarded(t, store, silent)
		for i := range 200 {
			login(h, fmt.Sprintf("198.51.%d.1:1", i), "ann", "guess")
		}
		w := login(h, "192.0.2.1:1", "ann", "right")
		assert.Equal(t, 429, w.Code)
		assert.Equal(t, "12", w.Header().Get("Retry-After"))
		assert.Equal(t, []string{"login/account"}, problemOf(t, w).Violated)
		time.Sleep(12 * time.Second)
		require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
		assert.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code, "now it is known")
	})
}

func TestLoginWithoutAnAccountIsDenied(t *testing.T) {
	b := new(bank)
	h := must(t, serverside.Config{Rules: logins(), Audit: silent, Deny: nil}).Wrap(b)
	for name, c := range map[string]struct {
		request *http.Request
		want    int
	}{
		"nothing":      {post("/login", "", ""), 400},
		"no account":   {post("/login", urlencoded, "password=x"), 400},
		"an empty one": {post("/login", urlencoded, "user=+"), 400},
		"a list":       {post("/login", asJSON, `["victim"]`), 400},
		"no text":      {post("/login", asJSON, `{"user":{"$ne":""}}`), 400},
		"binary":       {post("/login", asJSON, "\x1f\x8b\x00"), 400},
		"two":          {post("/login", urlencoded, "user=a&user=b"), 400},
		"too long":     {post("/login", urlencoded, "user=a&x="+strings.Repeat("x", 64<<10)), 413},
		"a file, too long": {
			post("/login", "multipart/form-data; boundary=b", "--b\r\n\r\n"+strings.Repeat("x", 64<<10)), 413,
		},
	} {
		w := serve(h, c.request)
		assert.Equal(t, c.want, w.Code, name)
		assert.Equal(t, serverside.ProblemUnread, problemOf(t, w).Type, name)
		assert.Empty(t, w.Header().Get("Retry-After"), name)
		assert.Equal(t, "false", w.Header().Get("X-Should-Retry"), name)
	}
	narrow := append(logins(), perHour("narrow", "", 3))
	h = must(t, serverside.Config{Rules: narrow, Audit: silent}).Wrap(b)
	for _, want := range []int{400, 400, 400, 429} {
		assert.Equal(t, want, serve(h, post("/login", urlencoded, "")).Code, "it is charged by address")
	}
	h = must(t, serverside.Config{Rules: logins(), Audit: silent}).Wrap(b)
	bounded := http.MaxBytesHandler(h, 10)
	assert.Equal(t, 413, serve(bounded, post("/login", urlencoded, "password=xxxxxxxxx&user=victim")).Code)
	assert.Zero(t, b.guesses.Load())
}

func TestHandlerReadsTheBodyThatWasSent(t *testing.T) {
	sent := "user=ann&password=" + strings.Repeat("x", 60<<10)
	var got string
	h := must(t, serverside.Config{Rules: logins()}).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.NoError(t, r.Body.Close())
		got = string(b)
	}))
	serve(h, post("/login", urlencoded, sent))
	assert.Equal(t, sent, got)
	serve(h, post("/login", asJSON, `{"user": 4711}`))
	assert.Equal(t, `{"user": 4711}`, got, "a number is an account too")
}

func TestFaultsOfALogin(t *testing.T) {
	account, ip := serverside.FormValue("user"), perHour("ip", "", 10)
	for name, c := range map[string]struct {
		rule serverside.Rule
		want string
	}{
		"no method":   {serverside.Logins("l", "/login", account), "Rules[0].Pattern"},
		"a host only": {serverside.Logins("l", "example.com/login", account), "Rules[0].Pattern"},
		"no pattern":  {serverside.Logins("l", "", account), "Rules[0].Pattern"},
		"no account":  {serverside.Logins("l", "POST /login", nil), "Rules[0].Key"},
		"a cost": {func() serverside.Rule {
			r := serverside.Logins("l", "POST /login", account)
			r.Cost = func(*http.Request) int64 { return 2 }
			return r
		}(), "Rules[0].Cost"},
	} {
		_, err := serverside.New(serverside.Config{Rules: []serverside.Rule{c.rule, ip}})
		assert.Equal(t, []string{c.want}, faults(t, err), name)
	}
	_, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{serverside.Logins("l", "POST /login", account), perHour("ip", "/other", 1)},
	})
	assert.Equal(t, []string{"Rules[0].Key"}, faults(t, err), "there is no limit by address")
}

func TestDryRunOfALoginEnforcesNothingLater(t *testing.T) {
	eachStore(t, func(t *testing.T, store quota.Store) {
		dry := func(rule *serverside.Rule) { rule.DryRun = true }
		var events eventLog
		cfg := serverside.Config{Rules: logins(dry), Store: store, Audit: events.add}
		l := must(t, cfg)
		h := l.Wrap(http.HandlerFunc(doors))
		for range 8 {
			for range 3 {
				require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
			}
			require.Equal(t, 200, login(h, "192.0.2.1:1", "ann", "right").Code)
		}
		assert.Empty(t, events.of(serverside.WouldDeny), "an honest user would not have been denied")
		for range 20 {
			require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		assert.NotEmpty(t, events.of(serverside.WouldDeny))
		cfg.Rules = logins()
		require.NoError(t, l.Reconfigure(cfg))
		for range 5 {
			require.Equal(t, 401, login(h, "192.0.2.1:1", "ann", "guess").Code)
		}
		assert.Equal(t, "12", login(h, "192.0.2.1:1", "ann", "guess").Header().Get("Retry-After"))
	})
}

func TestLoginUsesTheNetworkOfTheProxysClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{
			Rules: logins(), Audit: silent, Key: serverside.ClientIP(proxies...),
		}).Wrap(http.HandlerFunc(doors))
		from := func(client, password string) int {
			r := post("/login", urlencoded, url.Values{"user": {"ann"}, "password": {password}}.Encode())
			r.RemoteAddr = "10.0.0.1:1"
			r.Header.Set("X-Forwarded-For", client)
			return serve(h, r).Code
		}
		require.Equal(t, 200, from("192.0.2.1", "right"))
		for range 10 {
			from("198.51.100.1", "guess")
		}
		assert.Equal(t, 429, from("198.51.100.2", "right"))
		assert.Equal(t, 200, from("192.0.2.200", "right"))
	})
}
