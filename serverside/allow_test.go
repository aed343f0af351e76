package serverside_test

import (
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func TestTrustedClientHasItsOwnLargerLimit(t *testing.T) {
	monitoring := serverside.Allow{Name: "monitoring", Match: serverside.KeyIs(user, "monitor"), Key: user,
		Policies: []quota.Policy{quota.PerHour(50)}}
	var events eventLog
	l := must(t, serverside.Config{
		Rules: []serverside.Rule{perHour("ip", "", 5), at(serverside.AfterAuth, by(user, perHour("user", "", 5)))},
		Allow: []serverside.Allow{monitoring}, Audit: events.add,
	})
	h := l.WrapEarly(l.Wrap(new(ok)))
	assert.Equal(t, map[int]int{200: 50, 429: 1}, codes(51, h, "GET", "/", "X-User", "monitor"))
	assert.Len(t, events.of(serverside.Bypassed), 50)
	assert.Equal(t, "monitoring", events.events[0].Rule)
	denied := events.of(serverside.Denied)
	require.Len(t, denied, 1)
	assert.Equal(t, "monitoring", denied[0].Rule)
	assert.Equal(t, map[int]int{200: 5, 429: 1}, codes(6, h, "GET", "/", "X-User", "ann"),
		"the entry's requests charged no rule")
	assert.Equal(t, `"monitoring";q=50;w=3600;heed-algorithm=token-bucket`,
		ask(h, "GET", "/", "X-User", "monitor").Header().Get("RateLimit-Policy"))
}

func TestLoopbackIsTrustedOnlyIfAllowed(t *testing.T) {
	loopback := serverside.Allow{
		Name: "loopback", Match: serverside.Peers(serverside.Loopback()...),
		Policies: []quota.Policy{quota.PerMinute(6000)},
	}
	for _, peer := range []string{"127.0.0.1:1", "127.0.0.2:1", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
		count := func(cfg serverside.Config, fields ...string) map[int]int {
			cfg.Rules, cfg.Audit = oneRule(quota.PerHour(5)), silent
			h, n := must(t, cfg).Wrap(new(ok)), make(map[int]int)
			for range 200 {
				n[askFrom(peer, h, "GET", "/", fields...).Code]++
			}
			return n
		}
		assert.Equal(t, map[int]int{200: 5, 429: 195}, count(serverside.Config{}), "off by default")
		trusting := serverside.Config{Allow: []serverside.Allow{loopback}}
		assert.Equal(t, map[int]int{200: 200}, count(trusting))
		for _, field := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP"} {
			assert.Equal(t, map[int]int{200: 5, 429: 195}, count(trusting, field, "127.0.0.1"),
				"%s was forwarded by a proxy", field)
		}
	}
	h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(5)), Allow: []serverside.Allow{loopback}, Audit: silent,
		Key: serverside.ClientIP(proxies...)}).Wrap(new(ok))
	n := make(map[int]int)
	for range 10 { // no header makes a client local
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-Forwarded-For", "127.0.0.1")
		n[serve(h, r).Code]++
	}
	assert.Equal(t, map[int]int{200: 5, 429: 5}, n)
}

func TestTrustedRequestsAreLimitedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(5)), Audit: silent, Allow: []serverside.Allow{{
			Name: "loopback", Match: serverside.Peers(serverside.Loopback()...),
			Policies: []quota.Policy{quota.PerDay(6000)},
		}}}).Wrap(new(ok))
		n := make(map[int]int)
		for range 6001 {
			n[askFrom("127.0.0.1:1", h, "GET", "/").Code]++
		}
		assert.Equal(t, map[int]int{200: 6000, 429: 1}, n)
	})
}

func TestUntrustedLocalProxyIsReported(t *testing.T) {
	var events eventLog
	h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(100)), Audit: events.add, Allow: []serverside.Allow{{
		Name: "loopback", Match: serverside.Peers(serverside.Loopback()...),
		Policies: []quota.Policy{quota.PerDay(6000)},
	}}}).Wrap(new(ok))
	for range 3 {
		askFrom("127.0.0.1:1", h, "GET", "/", "X-Forwarded-For", "198.51.100.7")
	}
	assert.Equal(t, []serverside.EventKind{serverside.ForwardingIgnored}, events.kinds())
}

func TestPeersMatchesTheConnectionsPeer(t *testing.T) {
	office := serverside.Peers(netip.MustParsePrefix("::ffff:192.0.2.0/120"), netip.MustParsePrefix("2001:db8::/32"))
	for peer, want := range map[string]bool{
		"192.0.2.7:1": true, "[::ffff:192.0.2.7]:1": true, "[2001:db8::1%eth0]:1": true, "192.0.3.1:1": false,
		"@": false, "": false,
	} {
		assert.Equal(t, want, office(request("GET", "/", peer)), peer)
	}
}

func TestKeyIsComparesHashesOfHashedKeys(t *testing.T) {
	match := serverside.KeyIs(serverside.Header("X-Api-Key"), serverside.HashKey("X-Api-Key", "s3cr3t"), "")
	r := request("GET", "/", "192.0.2.1:1")
	assert.False(t, match(r), "a request without a key does not match")
	r.Header.Set("X-Api-Key", "guess")
	assert.False(t, match(r))
	r.Header.Set("X-Api-Key", "s3cr3t")
	assert.True(t, match(r))
}

func TestAllowEntryHasTheConfigsFailureMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allow := []serverside.Allow{
			{Name: "ops", Match: serverside.KeyIs(user, "ops"), Policies: []quota.Policy{quota.PerHour(1)}},
		}
		for mode, want := range map[serverside.FailureMode]int{serverside.FailOpen: 200, serverside.FailClosed: 503} {
			var events eventLog
			h := must(t, serverside.Config{
				Rules: oneRule(quota.PerHour(1)), Allow: allow, Store: store(down), OnStoreError: mode, Audit: events.add,
			}).Wrap(new(ok))
			assert.Equal(t, want, ask(h, "GET", "/", "X-User", "ops").Code)
			assert.Equal(t, []serverside.EventKind{serverside.StoreFailed}, events.kinds(),
				"the entry bypassed nothing")
		}
	})
}
