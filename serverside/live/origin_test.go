package live_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/serverside/live"
)

// asked returns the response to a request that came in on the server's address local.
func asked(p *live.Page, method, target, host, local string, fields ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, target, strings.NewReader(`{"text": "120"}`)), httptest.NewRecorder()
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	ctx, cancel := context.WithCancel(r.Context())
	cancel() // ends the stream of events
	if local != "" {
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local)))
	}
	p.ServeHTTP(w, r.WithContext(ctx))
	return w
}

// With DNS rebinding, a browser sends the name of the attacker's page.
func TestUnknownHostsAreRefused(t *testing.T) {
	page := &live.Page{Hosts: []string{"Admin.example:8081", "203.0.113.5", "[2001:db8::5]"}}
	for _, c := range []struct {
		host, local string
		known       bool
	}{
		{"localhost", "", true},
		{"LOCALHOST:8081", "", true},
		{"127.0.0.1:8081", "", true},
		{"127.9.9.9", "", true},
		{"[::1]:8081", "", true},
		{"[::1]", "", true},
		{"[::ffff:127.0.0.1]", "", true},
		{"192.0.2.7:8081", "192.0.2.7:8081", true},
		{"192.0.2.7", "[::ffff:192.0.2.7]:8081", true},
		{"[2001:db8::7]:8081", "[2001:db8:0::7]:8081", true},
		{"[fe80::7]:8081", "[fe80::7%eth0]:8081", true},
		{"admin.example", "", true},
		{"admin.EXAMPLE.:443", "", true},
		{"203.0.113.5:80", "192.0.2.7:8081", true},
		{"[2001:db8:0:0::5]", "", true},
		{"[2001:db8::5]", "", true},

		{"", "", false},
		{":8081", "", false},
		{"evil.example", "127.0.0.1:8081", false},
		{"evil.example:8081", "192.0.2.7:8081", false},
		{"localhost.evil.example", "", false},
		{"127.0.0.1.evil.example", "", false},
		{"notadmin.example", "", false},
		{"admin.example.evil.example", "", false},
		{"192.0.2.8:8081", "192.0.2.7:8081", false},
		{"192.0.2.7", "", false},
		{"0.0.0.0", "127.0.0.1:8081", false},
	} {
		for _, target := range []string{"GET /limits/", "GET /limits/events", "GET /limits/live.js", "POST /limits/explain",
			"PUT /limits/", "GET /none"} {
			method, path, _ := strings.Cut(target, " ")
			w := asked(page, method, path, c.host, c.local)
			assert.Equal(t, c.known, w.Code != http.StatusMisdirectedRequest, "%s %s", target, c.host)
			if !c.known {
				assert.Contains(t, w.Body.String(), "live.Page.Hosts")
			}
		}
	}
}

func TestZeroPageKnowsItsListenAddress(t *testing.T) {
	server := httptest.NewServer(new(live.Page))
	defer server.Close()
	for host, status := range map[string]int{"": 200, "localhost": 200, "evil.example": 421} {
		r, err := http.NewRequest("GET", server.URL, nil)
		assert.NoError(t, err)
		r.Host = host
		resp, err := server.Client().Do(r)
		if assert.NoError(t, err) {
			resp.Body.Close()
			assert.Equal(t, status, resp.StatusCode, host)
		}
	}
}

// Another site can only link to the page.
func TestOtherOriginsGetNoEventsOrExplanations(t *testing.T) {
	page := new(live.Page)
	for _, c := range []struct {
		name, value string
		same        bool
	}{
		{"Sec-Fetch-Site", "same-origin", true},
		{"Sec-Fetch-Site", "none", true},
		{"Sec-Fetch-Site", "same-site", false},
		{"Sec-Fetch-Site", "cross-site", false},
		{"Sec-Fetch-Site", "unheard-of", false},
		{"Origin", "http://localhost:8081", true},
		{"Origin", "https://localhost:8081", true}, // behind a proxy that terminates TLS
		{"Origin", "http://localhost:9999", false},
		{"Origin", "http://evil.example", false},
		{"Origin", "null", false},
		{"Origin", "http://%", false},
		{"Accept", "*/*", true}, // not a browser
	} {
		for _, target := range []string{"GET /limits/events", "POST /limits/explain"} {
			method, path, _ := strings.Cut(target, " ")
			w := asked(page, method, path, "localhost:8081", "", c.name, c.value)
			assert.Equal(t, map[bool]int{true: 200, false: 403}[c.same], w.Code, "%s %s: %s", target, c.name, c.value)
		}
		assert.Equal(t, 200, asked(page, "GET", "/limits/explain", "localhost:8081", "", c.name, c.value).Code)
	}
	both := asked(page, "POST", "/explain", "localhost:8081", "",
		"Sec-Fetch-Site", "cross-site", "Origin", "http://localhost:8081")
	assert.Equal(t, 403, both.Code)
}
