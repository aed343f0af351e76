package export_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/gatewaytest"
)

// service starts a server that answers with the request's path, and denies requests to /own.
func service(t *testing.T) (addr string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" {
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		io.WriteString(w, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestNginxDirectives(t *testing.T) {
	out := exported(t, "nginx", "ipv6_bits: 128\nrules: [{name: api, policies: 10/1s burst 21}]")
	assert.Empty(t, out.Gaps)
	for _, directive := range []string{
		"limit_req_zone $binary_remote_addr zone=api:10m rate=10r/s;",
		"limit_req zone=api burst=20 nodelay;", // 21 at once, with the one that the rate admits
		"limit_req_status 429;",
		"add_header Retry-After $heed_retry_after always;",
		"set_real_ip_from stands here",
	} {
		assert.Contains(t, out.Text, directive)
	}
	out = exported(t, "nginx", "trusted_proxies: 10.0.0.0/8\nproxy_fields: X-Real-IP\nrules: [{policies: 10/1s}]")
	assert.Contains(t, out.Text, "set_real_ip_from 10.0.0.0/8;\nreal_ip_header \"X-Real-IP\";\n")
}

func TestNginxAcceptsTheOutput(t *testing.T) {
	files, err := filepath.Glob("testdata/*.nginx.golden")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		gatewaytest.CheckNginx(t, string(text))
	}
}

// Names of variables have room for 46 characters in the hash that nginx has by default.
func TestNginxAcceptsLongNames(t *testing.T) {
	name := strings.Repeat("n", 999)
	out := exported(t, "nginx",
		"rules: [{name: "+name+", pattern: /a, policies: 3/1s}, {name: "+name+"2, pattern: /b, policies: [3/1s, 90/90s]}]")
	gatewaytest.CheckNginx(t, out.Text)
}

// A flood is a series of requests without pauses.
type flood struct {
	admitted    int
	least, most time.Duration // between the first request admitted and the last denied, within these
}

// drive sends requests for a while, and then until one is denied.
func drive(t *testing.T, url string, during time.Duration) (f flood) {
	var began, answered time.Time
	start := time.Now()
	for {
		sent := time.Now()
		require.Less(t, time.Since(start), during+time.Minute, "nothing is denied")
		status := get(t, url).StatusCode
		if began.IsZero() {
			began, answered = sent, time.Now()
		}
		if status == http.StatusOK {
			f.admitted++
		} else if require.Equal(t, http.StatusTooManyRequests, status); time.Since(began) > during {
			f.least, f.most = sent.Sub(answered), time.Since(began)
			return f
		}
	}
}

// get sends a request, with header fields given in pairs, and reads the answer.
func get(t *testing.T, url string, fields ...string) *http.Response {
	t.Helper()
	return send(t, "GET", url, fields...)
}

func send(t *testing.T, method, url string, fields ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	resp.Body.Close()
	return resp
}

// nginx admits exactly as many requests as the rule.
func TestNginxAdmitsWhatTheRuleAdmits(t *testing.T) {
	t.Parallel()
	out := exported(t, "nginx", "rules: [{name: api, pattern: /v1/, policies: 20/1s burst 21}]")
	assert.Empty(t, out.Gaps)
	url := gatewaytest.NginxWith(t, service(t), out.Text)
	f := drive(t, url+"/v1/users", 1500*time.Millisecond)
	t.Logf("%d admitted in %v to %v", f.admitted, f.least, f.most)
	assert.LessOrEqual(t, float64(f.admitted), 21+20*f.most.Seconds()+1)
	assert.Greater(t, float64(f.admitted), 20+20*f.least.Seconds()-1)
	assert.Equal(t, http.StatusOK, get(t, url+"/v2").StatusCode, "another path")
}

// A rate that nginx rounds is a gap.
func TestNginxRoundingIsReported(t *testing.T) {
	for policy, want := range map[string]struct{ rate, gap string }{
		"60/1m":          {"1r/s", ""},
		"30/1m":          {"30r/m", ""},
		"6/1m":           {"6r/m", ""},
		"1/100ms":        {"10r/s", ""},
		"7/1m":           {"7r/m", "7 in 1m is 116 in 1000s"},
		"1/1m":           {"1r/m", "1 in 1m is 16 in 1000s"},
		"1999/1000m":     {"2r/m", "1999 in 16h40m is 33 in 1000s"},
		"13/2m":          {"7r/m", "13 in 2m is 116 in 1000s"},
		"1000003/24h":    {"695r/m", "1000003 in 24h is 11583 in 1000s"},
		"1/24h":          {"1r/m", "1 in 24h is 16 in 1000s"},
		"1_000_000/1s":   {"1000000r/s", ""},
		"60_000_000/1m":  {"1000000r/s", ""},
		"999_999_999/1d": {"694445r/m", "999999999 in 24h is 11574083 in 1000s"},
	} {
		out := exported(t, "nginx", "rules: [{name: api, policies: "+policy+"}]")
		assert.Contains(t, out.Text, " rate="+want.rate+";\n", policy)
		var reasons []string
		if want.gap != "" {
			reasons = []string{`rule "api": nginx rounds rates: ` + want.gap + " here"}
		}
		assert.Equal(t, reasons, gaps(out), policy)
	}
	for _, policy := range []string{"1_000_001/1s", "1_000_000_001/1d"} {
		out := exported(t, "nginx", "rules: [{name: api, policies: "+policy+"}]")
		assert.NotContains(t, out.Text, "limit_req_zone", policy)
		assert.Regexp(t, "more than nginx can count", gaps(out), policy)
	}
}

func TestNginxAppliesAllMatchingRules(t *testing.T) {
	t.Parallel()
	out := exported(t, "nginx", several+`
- {name: items, pattern: "/items/{id}/{$}", policies: 1/2s leaky burst 1}`)
	url := gatewaytest.NginxWith(t, service(t), out.Text)
	applyAll(t, url)
	resp := send(t, "POST", url+"/x/..//LOGIN/", "X-Forwarded-For", "192.0.2.1")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "the same path in another spelling")
	assert.Equal(t, "31", resp.Header.Get("Retry-After"), "nginx counts 33 thousandths a second")
	for range 41 {
		resp = get(t, url+"/a", "X-Forwarded-For", "192.0.2.5")
	}
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "2", resp.Header.Get("Retry-After"), "of the rule for all")
}

const several = `
trusted_proxies: loopback
exempt: [GET /login/help]
rules:
- {name: login, pattern: POST /login, policies: 2/1m}
- {name: all, policies: 40/1m}
- {name: odd, pattern: '/od"d;$x/', policies: 1/1m}
- {name: host, pattern: "Example.com/", policies: 3/1m}`

// applyAll checks a gateway with several rules.
func applyAll(t *testing.T, url string) {
	from := func(client, method, path string, fields ...string) (codes []int) {
		for range 3 {
			resp := send(t, method, url+path, append(fields, "X-Forwarded-For", client)...)
			codes = append(codes, resp.StatusCode)
			denied := resp.StatusCode == http.StatusTooManyRequests
			assert.Equal(t, denied, resp.Header.Get("Retry-After") != "", "%s %s", method, path)
		}
		return codes
	}
	all, two, one, none := []int{200, 200, 200}, []int{200, 200, 429}, []int{200, 429, 429}, []int{429, 429, 429}
	assert.Equal(t, two, from("192.0.2.1", "POST", "/login"))
	assert.Equal(t, none, from("192.0.2.1", "POST", "//L%6FGIN/"), "the same path in another spelling")
	assert.Equal(t, all, from("192.0.2.1", "GET", "/login"), "another method")
	assert.Equal(t, all, from("192.0.2.1", "POST", "/login/x"), "another path")
	assert.Equal(t, two, from("192.0.2.2", "POST", "/login"), "another client")
	assert.Equal(t, none, from("192.0.2.66, 192.0.2.2", "POST", "/login"), "the same, whatever it says itself")
	assert.Equal(t, none, from("192.0.2.2, 127.0.0.2", "POST", "/login"), "the same behind another proxy")
	assert.Equal(t, two, from("2001:db8::1", "POST", "/login"))
	assert.Equal(t, none, from("2001:db8::2", "POST", "/login"), "the same network")
	assert.Equal(t, two, from("2001:db8:0:1::1", "POST", "/login"), "another network")
	assert.Equal(t, one, from("192.0.2.3", "GET", "/od%22d;$x/y"))
	assert.Equal(t, all, from("192.0.2.3", "GET", "/od%22d/y"))
	assert.Equal(t, all, from("192.0.2.4", "GET", "/a", "Host", "EXAMPLE.com."))
	assert.Equal(t, none, from("192.0.2.4", "GET", "/b", "Host", "example.com:80"))
	for range 50 {
		assert.Equal(t, http.StatusOK, get(t, url+"/login/help").StatusCode, "exempt")
	}
	assert.Equal(t, []string{"77"}, get(t, url+"/own").Header["Retry-After"], "the application's own")
}

func TestNginxDoesNotLimitTheAllowList(t *testing.T) {
	t.Parallel()
	for peers, want := range map[string]int{"127.0.0.1": http.StatusOK, "192.0.2.1": http.StatusTooManyRequests} {
		out := exported(t, "nginx", `
trusted_proxies: loopback
exempt: /health
allow: [{name: probe, peers: `+peers+`, policies: 9/1s}]
rules: [{name: api, pattern: /v1/, policies: 1/1h}, {name: all, policies: 2/1h}]`)
		url := gatewaytest.NginxWith(t, service(t), out.Text)
		for range 3 {
			get(t, url+"/v1/users", "X-Forwarded-For", "192.0.2.1")
		}
		assert.Equal(t, want, get(t, url+"/v1/users", "X-Forwarded-For", "192.0.2.1").StatusCode, peers)
		assert.Equal(t, http.StatusOK, get(t, url+"/health", "X-Forwarded-For", "192.0.2.1").StatusCode, "exempt")
	}
}

func TestNginxAdmitsAfterItsRetryAfter(t *testing.T) {
	t.Parallel()
	out := exported(t, "nginx", "rules: [{name: api, policies: 1/1s burst 2}]")
	url := gatewaytest.NginxWith(t, service(t), out.Text)
	drive(t, url, 0)
	assert.Equal(t, "1", get(t, url).Header.Get("Retry-After"))
	time.Sleep(time.Second) // nginx has its own clock
	assert.Equal(t, http.StatusOK, get(t, url).StatusCode)
}
