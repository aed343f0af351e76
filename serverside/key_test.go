package serverside_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}

// forwarded returns a request from peer with lines of X-Forwarded-For.
func forwarded(peer string, lines ...string) *http.Request {
	r := request("GET", "http://example.com/", peer)
	for _, line := range lines {
		r.Header.Add("X-Forwarded-For", line)
	}
	return r
}

func TestClientIP(t *testing.T) {
	const trusted, stranger = "10.0.0.1:1234", "203.0.113.9:1234"
	for _, c := range []struct {
		name  string
		peer  string
		lines []string
		want  string
	}{
		{"a stranger is the client", stranger, nil, "203.0.113.9"},
		{"a stranger is not believed", stranger, []string{"1.2.3.4"}, "203.0.113.9"},
		{"a proxy is not the client", trusted, []string{"1.2.3.4"}, "1.2.3.4"},
		{"a proxy on its own is", trusted, nil, "10.0.0.1"},
		{"the left end is anybody's", trusted, []string{"6.6.6.6, 1.2.3.4"}, "1.2.3.4"},
		{"over several proxies", trusted, []string{"6.6.6.6, 1.2.3.4, 10.9.9.9, 10.0.0.2"}, "1.2.3.4"},
		{"over several lines", trusted, []string{"6.6.6.6", "1.2.3.4,10.9.9.9", "10.0.0.2"}, "1.2.3.4"},
		{"only proxies", trusted, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"spaces and tabs", trusted, []string{" \t1.2.3.4\t "}, "1.2.3.4"},
		{"empty elements", trusted, []string{"", ", 1.2.3.4,, ", ""}, "1.2.3.4"},
		{"a port", trusted, []string{"1.2.3.4:80"}, "1.2.3.4"},
		{"brackets and a port", trusted, []string{"[2001:db8:1:2:3::4]:80"}, "2001:db8:1:2::"},
		{"brackets", trusted, []string{"[2001:db8:1:2:3::4]"}, "2001:db8:1:2::"},
		{"neither", trusted, []string{"2001:db8:1:2:3::4"}, "2001:db8:1:2::"},
		{"the end of a /64", trusted, []string{"2001:db8:1:2:ffff:ffff:ffff:ffff"}, "2001:db8:1:2::"},
		{"the /64 before", trusted, []string{"2001:db8:1:1:ffff::"}, "2001:db8:1:1::"},
		{"a zone", trusted, []string{"fe80::1%eth0"}, "fe80::"},
		{"IPv4 in IPv6", trusted, []string{"::ffff:1.2.3.4"}, "1.2.3.4"},
		{"a proxy as IPv4 in IPv6", "[::ffff:10.0.0.1]:1234", []string{"1.2.3.4, ::ffff:a00:2"}, "1.2.3.4"},
		{"a proxy with IPv6", "[2001:db8:ffff::1%eth0]:1234", []string{"1.2.3.4"}, "1.2.3.4"},
		{"the peer's IPv6 is cut too", "[2001:db8:1:2:3::4]:1234", nil, "2001:db8:1:2::"},
		{"no address", trusted, []string{"invalid-ip"}, "10.0.0.1"},
		{"unknown", trusted, []string{"1.2.3.4, unknown"}, "10.0.0.1"},
		{"no address behind a proxy", trusted, []string{"invalid-ip, 10.0.0.2"}, "10.0.0.1"},
		{"a port that is none", trusted, []string{"1.2.3.4:99999"}, "10.0.0.1"},
		{"an open bracket", trusted, []string{"[::1"}, "10.0.0.1"},
		{"a key of the Store", trusted, []string{"1.2.3.4:m:28485601"}, "10.0.0.1"},
		{"5 kB", trusted, []string{strings.Repeat("6.6.6.6,", 640) + "1.2.3.4"}, "1.2.3.4"},
		{"5 kB of commas", trusted, []string{strings.Repeat(",", 5000)}, "10.0.0.1"},
		{"a peer without port", "203.0.113.9", nil, "203.0.113.9"},
		{"a Unix socket", "@", []string{"1.2.3.4"}, ""},
	} {
		assert.Equal(t, c.want, serverside.ClientIP(proxies...).Of(forwarded(c.peer, c.lines...)), c.name)
	}
}

func TestClientIPWithoutProxiesIsThePeer(t *testing.T) {
	assert.Equal(t, "10.0.0.1", serverside.ClientIP().Of(forwarded("10.0.0.1:1", "1.2.3.4")))
	assert.Equal(t, "10.0.0.1", serverside.ClientIP(netip.Prefix{}).Of(forwarded("10.0.0.1:1", "1.2.3.4")))
}

func TestMappedIPv4PrefixIsIPv4(t *testing.T) {
	key := serverside.ClientIP(netip.MustParsePrefix("::ffff:10.0.0.0/104"))
	assert.Equal(t, "1.2.3.4", key.Of(forwarded("10.0.0.1:1", "1.2.3.4")))
	assert.Equal(t, "11.0.0.1", key.Of(forwarded("11.0.0.1:1", "1.2.3.4")))
}

func TestOtherForwardingHeadersAreNotRead(t *testing.T) {
	r := forwarded("10.0.0.1:1")
	r.Header.Set("CF-Connecting-IP", "1.2.3.4")
	r.Header.Set("X-Real-IP", "1.2.3.4")
	r.Header.Set("Forwarded", "for=1.2.3.4")
	assert.Equal(t, "10.0.0.1", serverside.ClientIP(proxies...).Of(r))
}

func TestProxiesReadTheNamedFields(t *testing.T) {
	const trusted, stranger = "10.0.0.1:1", "203.0.113.9:1"
	real, cloudflare, both := []string{"x-real-ip"}, []string{"CF-Connecting-IP"},
		[]string{"X-Forwarded-For", "X-Real-IP"}
	standard := []string{"Forwarded"}
	for _, c := range []struct {
		name   string
		fields []string
		peer   string
		header http.Header
		want   string
	}{
		{"X-Real-IP", real, trusted, http.Header{"X-Real-Ip": {" 9.9.9.9 "}}, "9.9.9.9"},
		{"of a stranger", real, stranger, http.Header{"X-Real-Ip": {"9.9.9.9"}}, "203.0.113.9"},
		{"a list is not one address", real, trusted, http.Header{"X-Real-Ip": {"9.9.9.9, 8.8.8.8"}}, "10.0.0.1"},
		{"the last of two lines", real, trusted, http.Header{"X-Real-Ip": {"6.6.6.6", "9.9.9.9"}}, "9.9.9.9"},
		{"another field", real, trusted, http.Header{"X-Forwarded-For": {"9.9.9.9"}}, "10.0.0.1"},
		{"Cloudflare", cloudflare, trusted,
			http.Header{"Cf-Connecting-Ip": {"2001:db8:1:2:3::4"}, "X-Forwarded-For": {"6.6.6.6"}}, "2001:db8:1:2::"},
		{"not Cloudflare", cloudflare, stranger, http.Header{"Cf-Connecting-Ip": {"9.9.9.9"}}, "203.0.113.9"},
		{"two that say the same", both, trusted,
			http.Header{"X-Real-Ip": {"9.9.9.9"}, "X-Forwarded-For": {"6.6.6.6, 9.9.9.9"}}, "9.9.9.9"},
		{"two that disagree", both, trusted, http.Header{"X-Real-Ip": {"9.9.9.9"}, "X-Forwarded-For": {"8.8.8.8"}},
			"10.0.0.1"},
		{"one that says a trusted address", both, trusted,
			http.Header{"X-Real-Ip": {"10.0.0.2"}, "X-Forwarded-For": {"8.8.8.8, 10.0.0.2"}}, "8.8.8.8"},
		{"no field named, contradicted", nil, trusted,
			http.Header{"X-Real-Ip": {"9.9.9.9"}, "X-Forwarded-For": {"8.8.8.8"}}, "10.0.0.1"},
		{"no field named, not contradicted", nil, trusted,
			http.Header{"X-Real-Ip": {"8.8.8.8"}, "X-Forwarded-For": {"8.8.8.8"}}, "8.8.8.8"},
		{"no field named, nothing to contradict", nil, trusted, http.Header{"X-Real-Ip": {"8.8.8.8"}}, "10.0.0.1"},
		{"the second if not", both, trusted, http.Header{"X-Real-Ip": {"9.9.9.9"}}, "9.9.9.9"},
		{"not the second if the first is wrong", both, trusted,
			http.Header{"X-Real-Ip": {"9.9.9.9"}, "X-Forwarded-For": {"x"}}, "10.0.0.1"},

		{"RFC 7239", standard, trusted, http.Header{"Forwarded": {"for=192.0.2.60;proto=http;by=203.0.113.43"}},
			"192.0.2.60"},
		{"in any case, in any order", standard, trusted, http.Header{"Forwarded": {"proto=http; FOR=192.0.2.60 ;by=_x"}},
			"192.0.2.60"},
		{"IPv6", standard, trusted, http.Header{"Forwarded": {`For="[2001:db8:cafe::17]:4711"`}}, "2001:db8:cafe::"},
		{"a port", standard, trusted, http.Header{"Forwarded": {`for="192.0.2.60:80"`}}, "192.0.2.60"},
		{"over several proxies", standard, trusted,
			http.Header{"Forwarded": {"for=6.6.6.6, for=1.2.3.4", `for=10.0.0.3, for="10.0.0.2:1"`}}, "1.2.3.4"},
		{"a quote that the client opened", standard, trusted, http.Header{"Forwarded": {`for="6.6.6.6, for=1.2.3.4`}},
			"10.0.0.1"},
		{"a quote that the client closed", standard, trusted, http.Header{"Forwarded": {`for=6.6.6.6", for=1.2.3.4`}},
			"10.0.0.1"},
		{"a quote that the proxy would close", standard, trusted,
			http.Header{"Forwarded": {`for=6.6.6.6;x=", for="[2001:db8::1]"`}}, "10.0.0.1"},
		{"a quoted pair", standard, trusted, http.Header{"Forwarded": {`for=203.0.113.9;host="x\",for=6.6.6.6;y=\""`}},
			"203.0.113.9"},
		{"a quoted pair in another line", standard, trusted, http.Header{"Forwarded": {`for="\`, `for=1.2.3.4;host="a\\"`}},
			"1.2.3.4"},
		{"a comma in quotes", standard, trusted, http.Header{"Forwarded": {`for=1.2.3.4;host="a,for=6.6.6.6"`}}, "1.2.3.4"},
		{"twice", standard, trusted, http.Header{"Forwarded": {"for=6.6.6.6;for=1.2.3.4"}}, "10.0.0.1"},
		{"a name", standard, trusted, http.Header{"Forwarded": {"for=_hidden"}}, "10.0.0.1"},
		{"unknown", standard, trusted, http.Header{"Forwarded": {"for=unknown"}}, "10.0.0.1"},
		{"nothing", standard, trusted, http.Header{"Forwarded": {"by=1.2.3.4"}}, "10.0.0.1"},
		{"an empty name", standard, trusted, http.Header{"Forwarded": {"for="}}, "10.0.0.1"},
	} {
		r := request("GET", "http://example.com/", c.peer)
		r.Header = c.header
		assert.Equal(t, c.want, serverside.Proxies{Trusted: proxies, Fields: c.fields}.ClientIP().Of(r), c.name)
	}
}

func TestIPv6Bits(t *testing.T) {
	for bits, want := range map[int]string{
		0: "2001:db8:1:2::", 48: "2001:db8:1::", 56: "2001:db8:1::", 128: "2001:db8:1:2:3::4", 200: "2001:db8:1:2::",
		-1: "2001:db8:1:2::",
	} {
		key := serverside.Proxies{IPv6Bits: bits}.ClientIP()
		assert.Equal(t, want, key.Of(request("GET", "/", "[2001:db8:1:2:3::4]:1")), bits)
		assert.Equal(t, "192.0.2.1", key.Of(request("GET", "/", "192.0.2.1:1")), bits)
	}
}

func TestFirstUsesTheFirstNonEmptyKey(t *testing.T) {
	tenant, token := func(r *http.Request) string { return r.Header.Get("X-Tenant") }, user
	key := serverside.First(serverside.KeyFunc(tenant), serverside.KeyFunc(token))
	with := func(tenant, user string) string {
		r := request("GET", "/", "192.0.2.1:1")
		r.Header.Set("X-Tenant", tenant)
		r.Header.Set("X-User", user)
		return key.Of(r)
	}
	assert.Equal(t, with("acme", "ann"), with("acme", "bob"))
	assert.NotEqual(t, with("", "ann"), with("", "bob"))
	assert.NotEqual(t, with("ann", ""), with("", "ann"), "a tenant is not the token that is called as it is")
	assert.Empty(t, with("", ""))
}

func TestCookieAndFormValueAreHashed(t *testing.T) {
	r := httptest.NewRequest("POST", "/login", strings.NewReader("user=+Ann%40Example.com&password=s3cr3t"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: "sid", Value: "s3cr3t"})
	for name, key := range map[string]string{
		"cookie": serverside.Cookie("sid").Of(r), "form": serverside.FormValue("user").Of(r),
		"header": serverside.Header("Cookie").Of(r),
	} {
		assert.Regexp(t, "^[0-9a-f]{32}$", key, name)
	}
	assert.Empty(t, serverside.Cookie("other").Of(r))
	assert.Empty(t, serverside.FormValue("other").Of(r))
	other := httptest.NewRequest("POST", "/login", strings.NewReader(`{"user": "ANN@example.com "}`))
	assert.Equal(t, serverside.FormValue("user").Of(r), serverside.FormValue("user").Of(other),
		"one account in two spellings")
	assert.Equal(t, "s3cr3t", r.FormValue("password"), "the handler still has the form")
}

func TestHashKeyEqualsHeader(t *testing.T) {
	r := request("GET", "/", "192.0.2.1:1")
	r.Header.Set("X-Api-Key", "k")
	r.Header.Set("Authorization", "bearer  k")
	assert.Equal(t, serverside.HashKey("X-Api-Key", "k"), serverside.Header("X-Api-Key").Of(r))
	assert.Equal(t, serverside.HashKey("Authorization", "Bearer k"), serverside.Header("Authorization").Of(r))
	assert.Empty(t, serverside.HashKey("X-Api-Key", ""))
}

func TestHeaderHashesItsValue(t *testing.T) {
	r := request("GET", "http://example.com/", "192.0.2.1:1")
	assert.Empty(t, serverside.Header("X-Api-Key").Of(r))
	r.Header.Set("X-Api-Key", "s3cr3t")
	key := serverside.Header("x-api-KEY").Of(r)
	assert.Regexp(t, "^[0-9a-f]{32}$", key)
	assert.Equal(t, key, serverside.Header("X-Api-Key").Of(r))

	r.Header.Set("X-Other", "s3cr3t")
	assert.NotEqual(t, key, serverside.Header("X-Other").Of(r), "one value of two fields is two keys")
	r.Header.Add("X-Api-Key", "another")
	assert.Equal(t, key, serverside.Header("X-Api-Key").Of(r), "a second line makes no new key")
}

func TestSpellingsOfOneCredentialAreOneKey(t *testing.T) {
	key := func(value string) string {
		r := request("GET", "http://example.com/", "192.0.2.1:1")
		r.Header.Set("Authorization", value)
		return serverside.Header("Authorization").Of(r)
	}
	assert.Equal(t, key("Bearer tOken"), key("bearer   tOken"))
	assert.NotEqual(t, key("Bearer tOken"), key("Bearer token"))
	assert.NotEqual(t, key("Bearer token"), key("Basic token"))
}

// fixed is a KeyFunc that always returns key.
func fixed(key string) serverside.KeyFunc { return func(*http.Request) string { return key } }

func TestJoinsOfDifferentKeysAreDifferent(t *testing.T) {
	r := request("GET", "http://example.com/", "192.0.2.1:1")
	lists := [][]string{
		{"a:b", "c"}, {"a", "b:c"}, {"a", "b", "c"}, {"a:b:c"}, {"1:a"}, {"1:a1:b"}, {"a", "b"}, {"b", "a"},
		{"", "a"}, {"a", ""}, {"192.0.2.1", "a"}, {"-9:192.0.2.1", "a"}, {""}, {"", ""}, {"192.0.2.1"}, {"a"},
	}
	seen := make(map[string][]string)
	for _, list := range lists {
		var keys []serverside.Key
		for _, key := range list {
			keys = append(keys, fixed(key))
		}
		joined := serverside.Join(keys...).Of(r)
		assert.Empty(t, seen[joined], "%q is as %q", list, joined)
		seen[joined] = list
	}
}

func TestClientWithoutAKeyIsChargedByAddress(t *testing.T) {
	none := fixed("")
	for name, key := range map[string]serverside.Key{ // each falls back to the address
		"nil":             nil,
		"none":            none,
		"absent header":   serverside.Header("X-Api-Key"),
		"join of none":    serverside.Join(none),
		"join of nil":     serverside.Join(nil),
		"join of nothing": serverside.Join(),
		"join with none":  serverside.Join(fixed("search"), none),
	} {
		rules := oneRule(quota.PerHour(1))
		rules[0].Key, rules[0].Stage = key, serverside.AfterAuth
		h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
		for _, peer := range []string{"192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", "@", ""} {
			assert.Equal(t, 200, askFrom(peer, h, "GET", "/").Code, "%s from %s", name, peer)
			assert.Equal(t, 429, askFrom(peer, h, "GET", "/").Code, "%s from %s", name, peer)
		}
		assert.Equal(t, 429, askFrom("[2001:db8::2]:1", h, "GET", "/").Code, "one /64 is one client")
		assert.Equal(t, 429, askFrom("[::ffff:192.0.2.1]:1", h, "GET", "/").Code)
	}
}

func TestNamedKeepsEqualKeysApart(t *testing.T) {
	users := serverside.Named("user", serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") }))
	r := request("GET", "http://example.com/", "192.0.2.1:1")
	assert.Empty(t, users.Of(r))
	r.Header.Set("X-User", "192.0.2.1")
	assert.Equal(t, "user:192.0.2.1", users.Of(r))

	var events eventLog
	rule := oneRule(quota.PerHour(1))
	rule[0].Key = users
	h := must(t, serverside.Config{
		Rules: rule, Key: serverside.Named("ip", serverside.ClientIP()), Audit: events.add,
	}).Wrap(new(ok))
	assert.Equal(t, 200, ask(h, "GET", "/", "X-User", "192.0.2.1").Code)
	assert.Equal(t, 200, ask(h, "GET", "/").Code)
	assert.Equal(t, 429, ask(h, "GET", "/", "X-Forwarded-For", "192.0.2.9").Code)
	assert.Len(t, events.of(serverside.ForwardingIgnored), 1, "also with a Named key")

	rule[0].Key = serverside.Named("user", serverside.Header("X-User"))
	_, err := serverside.New(serverside.Config{Rules: rule})
	assert.ErrorContains(t, err, "Rules[0].Key: is sent by the client")
}

func TestKeyThatLooksLikeAnAddressIsAnotherKey(t *testing.T) {
	rules := oneRule(quota.PerHour(1))
	rules[0].Key = serverside.KeyFunc(func(r *http.Request) string { return r.Header.Get("X-User") })
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	assert.Equal(t, 200, ask(h, "GET", "/", "X-User", "192.0.2.1").Code)
	assert.Equal(t, 200, ask(h, "GET", "/").Code)
	assert.Equal(t, 200, ask(h, "GET", "/", "X-User", "key:192.0.2.1").Code)
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestRuleWithoutAKeyUsesTheConfigs(t *testing.T) {
	rules := oneRule(quota.PerHour(1))
	rules[0].Key, rules[0].Stage = serverside.Header("X-Api-Key"), serverside.AfterAuth
	h := must(t, serverside.Config{Rules: rules, Key: serverside.ClientIP(proxies...)}).Wrap(new(ok))
	for _, client := range []string{"1.2.3.4", "1.2.3.5"} {
		assert.Equal(t, 200, serve(h, forwarded("10.0.0.1:1", client)).Code)
		assert.Equal(t, 429, serve(h, forwarded("10.0.0.1:1", client)).Code)
	}
}

func TestConfigKeyIsReadOncePerRequest(t *testing.T) {
	asked := 0
	per := []quota.Policy{quota.PerHour(1)}
	h := must(t, serverside.Config{
		Rules: []serverside.Rule{{Name: "a", Policies: per}, {Name: "b", Policies: per}},
		Key:   serverside.KeyFunc(func(*http.Request) string { asked++; return "tenant" }),
	}).Wrap(new(ok))
	ask(h, "GET", "/")
	assert.Equal(t, 1, asked)
}

func TestLongKeysAreHashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var longest int
		measure := store(func(_ context.Context, _ []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
			longest = max(longest, len(charges[0].Key))
			return nil, errDown
		})
		rules := oneRule(quota.PerHour(1))
		rules[0].Key = serverside.KeyFunc(func(r *http.Request) string { return r.URL.Path })
		h := must(t, serverside.Config{Rules: rules, Store: measure}).Wrap(new(ok))
		for n := range 300 {
			ask(h, "GET", "/"+strings.Repeat("a", n))
		}
		assert.Equal(t, len("key:")+128, longest)
	})
}

func TestIgnoredForwardingHeaderIsReportedOnce(t *testing.T) {
	for name, key := range map[string]serverside.Key{
		"nil":       nil,
		"client IP": serverside.ClientIP(proxies...),
		"join":      serverside.Join(serverside.ClientIP(proxies...), serverside.Header("X-Api-Key")),
	} {
		var events eventLog
		cfg := serverside.Config{Rules: oneRule(quota.PerHour(10)), Key: key, Audit: events.add}
		cfg.Rules[0].Stage = serverside.AfterAuth
		l := must(t, cfg)
		h := l.Wrap(new(ok))
		serve(h, forwarded("203.0.113.9:1"))
		require.Empty(t, events.events, name)
		serve(h, forwarded("203.0.113.9:1", "1.2.3.4"))
		serve(h, forwarded("203.0.113.10:1", "1.2.3.4"))
		require.Equal(t, []serverside.EventKind{serverside.ForwardingIgnored}, events.kinds(), name)
		require.NoError(t, l.Reconfigure(cfg))
		serve(h, forwarded("203.0.113.9:1", "1.2.3.4"))
		require.Len(t, events.events, 2, name)
	}
}

func TestUsedForwardingHeaderIsNotReported(t *testing.T) {
	for name, key := range map[string]serverside.Key{
		"believed":   serverside.ClientIP(proxies...),
		"join":       serverside.Join(serverside.ClientIP(proxies...), fixed("a")),
		"irrelevant": fixed("tenant"),
	} {
		var events eventLog
		h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(10)), Key: key, Audit: events.add}).Wrap(new(ok))
		serve(h, forwarded("10.0.0.1:1", "10.0.0.12"))
		serve(h, forwarded("10.0.0.1:1", "110.0.0.1"))
		assert.Empty(t, events.events, name)
	}
}

func FuzzClientIP(f *testing.F) {
	for _, s := range []string{
		"", "1.2.3.4", "a, 1.2.3.4:80,10.0.0.2", "[::1]:80, 10.0.0.2", "fe80::1%25", ",,", "::ffff:1.2.3.4",
	} {
		f.Add(s, "10.0.0.1:1", "6.6.6.6")
	}
	key := serverside.ClientIP(proxies...)
	f.Fuzz(func(t *testing.T, line, peer, left string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		alone := key.Of(r)
		r.Header["X-Forwarded-For"] = []string{line}
		got := key.Of(r)

		addr, err := netip.ParseAddr(got)
		if got != alone && err != nil {
			t.Fatalf("%q from %q is %q: neither the peer's address nor any", line, peer, got)
		}
		if err == nil &&
			(addr.Is4In6() || addr.Zone() != "" || addr.Is6() && addr != netip.PrefixFrom(addr, 64).Masked().Addr()) {
			t.Fatalf("%q from %q is %q: not in its plain form", line, peer, got)
		}
		// Proxies append to what the client wrote.
		const client = "203.0.113.77"
		for _, lines := range [][]string{{left, line + "," + client}, {left + "," + line + "," + client + ", 10.3.3.3"}} {
			r.RemoteAddr, r.Header["X-Forwarded-For"] = "10.0.0.1:1", lines
			if got := key.Of(r); got != client {
				t.Fatalf("%q is %q", lines, got)
			}
		}
	})
}

// Whatever a client writes into Forwarded, the key is the address that the proxy appended, or the
// peer's.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"", "for=1.2.3.4", `for="[::1]:80", for=10.0.0.2`, `for="a,b";by="`, "for=unknown",
		"for=10.0.0.2,for=10.0.0.3", ";;,;=",
	} {
		f.Add(s, `for="6.6.6.6`)
	}
	key := serverside.Proxies{Trusted: proxies, Fields: []string{"Forwarded"}}.ClientIP()
	f.Fuzz(func(t *testing.T, line, left string) {
		r := request("GET", "http://example.com/", "10.0.0.1:1")
		r.Header["Forwarded"] = []string{line}
		got := netip.MustParseAddr(key.Of(r))
		if r.Header["Forwarded"] = []string{line}; netip.MustParseAddr(key.Of(r)) != got {
			t.Fatalf("%q is not always the same", line)
		}
		r.Header["Forwarded"] = []string{"for=\"[" + got.String() + "]\""}
		if got.Is4() {
			r.Header["Forwarded"] = []string{"for=" + got.String()}
		}
		if again := key.Of(r); again != got.String() {
			t.Fatalf("%q is %v, which is %q", line, got, again)
		}
		// Proxies append to what the client wrote.
		for _, lines := range [][]string{
			{left, line + ",for=203.0.113.77"}, {left + "," + line + `, for="203.0.113.77:1", for=10.3.3.3`},
		} {
			r.Header["Forwarded"] = lines
			if got := key.Of(r); got != "203.0.113.77" && got != "10.0.0.1" { // the peer's if the field is malformed
				t.Fatalf("%q is %q", lines, got)
			}
		}
		r.RemoteAddr = "203.0.113.9:1"
		if got := key.Of(r); got != "203.0.113.9" {
			t.Fatalf("a stranger is believed: %q", got)
		}
	})
}

// If any address of a chain is not trusted, the key is not a trusted one, unless a nearer element is
// malformed.
func FuzzClientIPIsNeverATrustedProxy(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint8(1))
	f.Add([]byte{255, 0, 129, 64}, uint8(3))
	keys := map[string]serverside.Key{
		"X-Forwarded-For": serverside.ClientIP(proxies...),
		"Forwarded":       serverside.Proxies{Trusted: proxies, Fields: []string{"Forwarded"}}.ClientIP(),
	}
	f.Fuzz(func(t *testing.T, hops []byte, perLine uint8) {
		for field, key := range keys {
			r, want := request("GET", "http://example.com/", "10.0.0.1:1"), "10.0.0.1"
			line := ""
			for i := len(hops) - 1; i >= 0; i-- { // from the right
				hop := netip.AddrFrom4([4]byte{hops[i]&1*193 + 10, 0, 0, hops[i]}).String()
				if strings.HasPrefix(want, "10.") {
					want = hop
				}
				if field == "Forwarded" {
					hop = "for=" + hop
				}
				if line = hop + "," + line; i%(int(perLine)+1) == 0 {
					r.Header[field] = append([]string{line}, r.Header[field]...)
					line = ""
				}
			}
			if got := key.Of(r); got != want {
				t.Fatalf("%v is %q, not %q", r.Header, got, want)
			}
		}
	})
}

func FuzzFirstIsInjective(f *testing.F) {
	f.Add("a", "", "", "a")
	f.Add("1:a", "", "", "a")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		r := request("GET", "http://example.com/", "192.0.2.1:1")
		first := func(a, b string) string { return serverside.First(fixed(a), fixed(b)).Of(r) }
		same := a == c && (a != "" || b == d)
		if (first(a, b) == first(c, d)) != same {
			t.Fatalf("%q %q and %q %q", a, b, c, d)
		}
	})
}

func FuzzJoinIsInjective(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("", "a", "a", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		r := request("GET", "http://example.com/", "192.0.2.1:1")
		join := func(a, b string) string { return serverside.Join(fixed(a), fixed(b)).Of(r) }
		if (join(a, b) == join(c, d)) != (a == c && b == d) {
			t.Fatalf("%q %q and %q %q", a, b, c, d)
		}
	})
}

func TestHeaderReadsHost(t *testing.T) {
	key := serverside.Header("Host")
	one, other := request("GET", "http://a.example/", "192.0.2.1:1"), request("GET", "http://b.example/", "192.0.2.1:1")
	assert.NotEmpty(t, key.Of(one))
	assert.NotEqual(t, key.Of(one), key.Of(other))
}

func TestAuthorizationIsReadLikeServersReadIt(t *testing.T) {
	key := func(value string) string {
		r := request("GET", "/", "192.0.2.1:1")
		r.Header.Set("Authorization", value)
		return serverside.Header("Authorization").Of(r)
	}
	assert.Equal(t, key("Bearer ABC"), key("bearer  ABC"))
	assert.Equal(t, key("Bearer ABC"), key("Bearer\tABC"))
	assert.NotEqual(t, key("Bearer ABC"), key("Bearer abc"))
	assert.NotEqual(t, key("Bearer\tABC"), key("Bearer\tabc"))
	assert.NotEqual(t, key("ABC"), key("abc"), "a token without a scheme")
}

// Behind NAT64 all IPv4 clients come from one /96.
func TestIPv4BehindNAT64IsIPv4(t *testing.T) {
	key := func(peer string) string { return serverside.ClientIP().Of(request("GET", "/", peer)) }
	assert.Equal(t, "192.0.2.1", key("[64:ff9b::c000:201]:1234"))
	assert.NotEqual(t, key("[64:ff9b::c000:201]:1234"), key("[64:ff9b::909:909]:1234"))
}

// peerKey returns the Store's key for a peer, which Join writes as "-length:key".
func peerKey(peer string) string {
	_, key, _ := strings.Cut(serverside.Join(nil).Of(request("GET", "/", peer)), ":")
	return key
}

func TestPeerIsParsedLikeNetIP(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "0.0.0.0:0": "0.0.0.0", "255.255.255.255:65535": "255.255.255.255",
		"192.0.2.1": "192.0.2.1", "192.0.2.1:": "192.0.2.1", "192.0.2.1:http": "192.0.2.1",
		"[::ffff:192.0.2.1]:1": "192.0.2.1", "[2001:db8::1]:1": "2001:db8::", "[fe80::1%eth0]:1": "fe80::",
	} {
		assert.Equal(t, want, peerKey(peer), peer)
	}
	for _, peer := range []string{
		"", ":1", "@", "...:1", "192.0.2:1", "192.0.2.1.2:1", "192.0.2.256:1", "192.0.2.01:1", "192.0.2.00:1", "192.0..1:1",
		".192.0.2.1:1", "192.0.2.1.:1", "192.0.2.:1", "192.0.2.-1:1", "192.0.2.1a:1",
		"192.0.2.9999999999999999999999:1", "192.0.2.1::1",
	} {
		assert.Regexp(t, "^hash:[0-9a-f]{32}$", peerKey(peer), peer)
	}
}

func FuzzPeer(f *testing.F) {
	for _, s := range []string{
		"", "1.2.3.4:5", "1.2.3.04:5", "256.1.1.1:5", "1.2.3.4.5:6", "[::1]:80", "fe80::1%25", "::ffff:1.2.3.4", "@",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, peer string) {
		want := serverside.ClientIP().Of(request("GET", "/", peer))
		if i := strings.LastIndexByte(peer, ':'); i >= 0 {
			if addr, err := netip.ParseAddr(peer[:i]); err == nil && addr.Is4() {
				want = peer[:i] // with any port
			}
		}
		if got := peerKey(peer); got != want && (want != "" || !strings.HasPrefix(got, "hash:")) {
			t.Fatalf("%q is %q, not %q", peer, got, want)
		}
	})
}
