package serverside_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48")}

// forwarded is a request from peer with lines of X-Forwarded-For.
func forwarded(peer string, lines ...string) *http.Request {
	r := request("GET", "http://example.com/", peer)
	for _, line := range lines {
		r.Header.Add("X-Forwarded-For", line)
	}
	return r
}

func TestClientIP(t *testing.T) {
	const trusted, stranger = "10.0.0.1:1234", "203.0.113.9:1234"
	for _, c := range []struct { // F005, F045, F216, C01, B28, B40, B60
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
		{"nobody but proxies", trusted, []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
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
		{"a key of the Store", trusted, []string{"1.2.3.4:m:28485601"}, "10.0.0.1"}, // B64
		{"5 kB", trusted, []string{strings.Repeat("6.6.6.6,", 640) + "1.2.3.4"}, "1.2.3.4"},
		{"5 kB of commas", trusted, []string{strings.Repeat(",", 5000)}, "10.0.0.1"},
		{"a peer without port", "203.0.113.9", nil, "203.0.113.9"},
		{"a Unix socket", "@", []string{"1.2.3.4"}, ""},
	} {
		assert.Equal(t, c.want, serverside.ClientIP(proxies...)(forwarded(c.peer, c.lines...)), c.name)
	}
}

func TestClientIPWithoutProxiesBelievesNobody(t *testing.T) {
	assert.Equal(t, "10.0.0.1", serverside.ClientIP()(forwarded("10.0.0.1:1", "1.2.3.4")))
	assert.Equal(t, "10.0.0.1", serverside.ClientIP(netip.Prefix{})(forwarded("10.0.0.1:1", "1.2.3.4")))
}

func TestAPrefixOfIPv4InIPv6IsOneOfIPv4(t *testing.T) {
	key := serverside.ClientIP(netip.MustParsePrefix("::ffff:10.0.0.0/104"))
	assert.Equal(t, "1.2.3.4", key(forwarded("10.0.0.1:1", "1.2.3.4")))
	assert.Equal(t, "11.0.0.1", key(forwarded("11.0.0.1:1", "1.2.3.4")))
}

func TestOtherForwardingHeadersAreNotRead(t *testing.T) {
	r := forwarded("10.0.0.1:1") // B28
	r.Header.Set("CF-Connecting-IP", "1.2.3.4")
	r.Header.Set("X-Real-IP", "1.2.3.4")
	assert.Equal(t, "10.0.0.1", serverside.ClientIP(proxies...)(r))
}

func TestHeaderHidesWhatItReads(t *testing.T) {
	r := request("GET", "http://example.com/", "192.0.2.1:1")
	assert.Empty(t, serverside.Header("X-Api-Key")(r))
	r.Header.Set("X-Api-Key", "s3cr3t")
	key := serverside.Header("x-api-KEY")(r)
	assert.Regexp(t, "^[0-9a-f]{32}$", key)
	assert.Equal(t, key, serverside.Header("X-Api-Key")(r))

	r.Header.Set("X-Other", "s3cr3t")
	assert.NotEqual(t, key, serverside.Header("X-Other")(r), "one value of two fields is two keys")
	r.Header.Add("X-Api-Key", "another")
	assert.Equal(t, key, serverside.Header("X-Api-Key")(r), "a second line makes no new key")
}

func TestSpellingsOfOneCredentialAreOneKey(t *testing.T) {
	key := func(value string) string {
		r := request("GET", "http://example.com/", "192.0.2.1:1")
		r.Header.Set("Authorization", value)
		return serverside.Header("Authorization")(r)
	}
	assert.Equal(t, key("Bearer tOken"), key("bearer   tOken"))
	assert.NotEqual(t, key("Bearer tOken"), key("Bearer token"))
	assert.NotEqual(t, key("Bearer token"), key("Basic token"))
}

// fixed is a KeyFunc that always says the same.
func fixed(key string) serverside.KeyFunc { return func(*http.Request) string { return key } }

func TestJoinsOfDifferentKeysAreDifferent(t *testing.T) {
	r := request("GET", "http://example.com/", "192.0.2.1:1") // F022, B64
	lists := [][]string{
		{"a:b", "c"}, {"a", "b:c"}, {"a", "b", "c"}, {"a:b:c"}, {"1:a"}, {"1:a1:b"}, {"a", "b"}, {"b", "a"},
		{"", "a"}, {"a", ""}, {"192.0.2.1", "a"}, {"-9:192.0.2.1", "a"}, {""}, {"", ""}, {"192.0.2.1"}, {"a"},
	}
	seen := make(map[string][]string)
	for _, list := range lists {
		var keys []serverside.KeyFunc
		for _, key := range list {
			keys = append(keys, fixed(key))
		}
		joined := serverside.Join(keys...)(r)
		assert.Empty(t, seen[joined], "%q is as %q", list, joined)
		seen[joined] = list
	}
}

func TestWhoHasNoKeyIsKnownByItsAddress(t *testing.T) {
	none := fixed("")
	for name, key := range map[string]serverside.KeyFunc{ // B27, B28, B40: neither one bucket for all, nor no limit
		"nil":            nil,
		"none":           none,
		"absent header":  serverside.Header("X-Api-Key"),
		"join of none":   serverside.Join(none),
		"join of nil":    serverside.Join(nil),
		"join of nobody": serverside.Join(),
		"join with none": serverside.Join(fixed("search"), none),
	} {
		rules := oneRule(quota.PerHour(1))
		rules[0].Key = key
		h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
		for _, peer := range []string{"192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", "@", ""} {
			assert.Equal(t, 200, askFrom(peer, h, "GET", "/").Code, "%s from %s", name, peer)
			assert.Equal(t, 429, askFrom(peer, h, "GET", "/").Code, "%s from %s", name, peer)
		}
		assert.Equal(t, 429, askFrom("[2001:db8::2]:1", h, "GET", "/").Code, "one /64 is one client")
		assert.Equal(t, 429, askFrom("[::ffff:192.0.2.1]:1", h, "GET", "/").Code, "B60")
	}
}

func TestAKeyThatLooksLikeAnAddressIsNotThatAddress(t *testing.T) {
	rules := oneRule(quota.PerHour(1)) // F047
	rules[0].Key = func(r *http.Request) string { return r.Header.Get("X-User") }
	h := must(t, serverside.Config{Rules: rules}).Wrap(new(ok))
	assert.Equal(t, 200, ask(h, "GET", "/", "X-User", "192.0.2.1").Code)
	assert.Equal(t, 200, ask(h, "GET", "/").Code)
	assert.Equal(t, 200, ask(h, "GET", "/", "X-User", "key:192.0.2.1").Code)
	assert.Equal(t, 429, ask(h, "GET", "/").Code)
}

func TestARuleWithoutAKeyForARequestUsesTheConfigs(t *testing.T) {
	rules := oneRule(quota.PerHour(1))
	rules[0].Key = serverside.Header("X-Api-Key")
	h := must(t, serverside.Config{Rules: rules, Key: serverside.ClientIP(proxies...)}).Wrap(new(ok))
	for _, client := range []string{"1.2.3.4", "1.2.3.5"} {
		assert.Equal(t, 200, serve(h, forwarded("10.0.0.1:1", client)).Code)
		assert.Equal(t, 429, serve(h, forwarded("10.0.0.1:1", client)).Code)
	}
}

func TestTheConfigsKeyIsAskedForOnceForAllRules(t *testing.T) {
	asked := 0
	per := []quota.Policy{quota.PerHour(1)}
	h := must(t, serverside.Config{
		Rules: []serverside.Rule{{Name: "a", Policies: per}, {Name: "b", Policies: per}},
		Key:   func(*http.Request) string { asked++; return "tenant" },
	}).Wrap(new(ok))
	ask(h, "GET", "/")
	assert.Equal(t, 1, asked)
}

func TestWhatAClientSendsDoesNotMakeKeysLong(t *testing.T) {
	var longest int
	measure := store(func(_ context.Context, _ []quota.Decision, charges ...quota.Charge) ([]quota.Decision, error) {
		longest = max(longest, len(charges[0].Key))
		return nil, errDown
	})
	rules := oneRule(quota.PerHour(1))
	rules[0].Key = func(r *http.Request) string { return r.URL.Path }
	h := must(t, serverside.Config{Rules: rules, Store: measure}).Wrap(new(ok))
	for n := range 300 {
		ask(h, "GET", "/"+strings.Repeat("a", n))
	}
	assert.Equal(t, len("key:")+128, longest)
}

func TestAForwardingHeaderThatNobodyBelievesIsReportedOnce(t *testing.T) {
	for name, key := range map[string]serverside.KeyFunc{
		"nil":       nil,
		"client IP": serverside.ClientIP(proxies...),
		"join":      serverside.Join(serverside.ClientIP(proxies...), serverside.Header("X-Api-Key")),
	} {
		var events log
		cfg := serverside.Config{Rules: oneRule(quota.PerHour(10)), Key: key, Audit: events.add}
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

func TestAForwardingHeaderThatIsBelievedOrDoesNotMatterIsNotReported(t *testing.T) {
	for name, key := range map[string]serverside.KeyFunc{
		"believed":   serverside.ClientIP(proxies...),
		"join":       serverside.Join(serverside.ClientIP(proxies...), fixed("a")),
		"irrelevant": fixed("tenant"),
	} {
		var events log
		h := must(t, serverside.Config{Rules: oneRule(quota.PerHour(10)), Key: key, Audit: events.add}).Wrap(new(ok))
		serve(h, forwarded("10.0.0.1:1", "10.0.0.12"))
		serve(h, forwarded("10.0.0.1:1", "110.0.0.1"))
		assert.Empty(t, events.events, name)
	}
}

func FuzzClientIP(f *testing.F) {
	for _, s := range []string{"", "1.2.3.4", "a, 1.2.3.4:80,10.0.0.2", "[::1]:80, 10.0.0.2", "fe80::1%25", ",,", "::ffff:1.2.3.4"} {
		f.Add(s, "10.0.0.1:1", "6.6.6.6")
	}
	key := serverside.ClientIP(proxies...)
	f.Fuzz(func(t *testing.T, line, peer, left string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		alone := key(r)
		r.Header["X-Forwarded-For"] = []string{line}
		got := key(r)

		addr, err := netip.ParseAddr(got)
		if got != alone && err != nil {
			t.Fatalf("%q from %q is %q: neither the peer's address nor any", line, peer, got)
		}
		if err == nil && (addr.Is4In6() || addr.Zone() != "" || addr.Is6() && addr != netip.PrefixFrom(addr, 64).Masked().Addr()) {
			t.Fatalf("%q from %q is %q: not in its plain form", line, peer, got)
		}
		// What a client writes stands to the left of what a proxy appends.
		const client = "203.0.113.77"
		for _, lines := range [][]string{{left, line + "," + client}, {left + "," + line + "," + client + ", 10.3.3.3"}} {
			r.RemoteAddr, r.Header["X-Forwarded-For"] = "10.0.0.1:1", lines
			if got := key(r); got != client {
				t.Fatalf("%q is %q", lines, got)
			}
		}
	})
}

func FuzzJoinIsInjective(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("", "a", "a", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		r := request("GET", "http://example.com/", "192.0.2.1:1")
		join := func(a, b string) string { return serverside.Join(fixed(a), fixed(b))(r) }
		if (join(a, b) == join(c, d)) != (a == c && b == d) {
			t.Fatalf("%q %q and %q %q", a, b, c, d)
		}
	})
}

func TestHostIsAHeaderFieldToo(t *testing.T) {
	key := serverside.Header("Host")
	one, other := request("GET", "http://a.example/", "192.0.2.1:1"), request("GET", "http://b.example/", "192.0.2.1:1")
	assert.NotEmpty(t, key(one))
	assert.NotEqual(t, key(one), key(other))
}

func TestAuthorizationIsReadAsItsReadersDo(t *testing.T) {
	key := func(value string) string {
		r := request("GET", "/", "192.0.2.1:1")
		r.Header.Set("Authorization", value)
		return serverside.Header("Authorization")(r)
	}
	assert.Equal(t, key("Bearer ABC"), key("bearer  ABC"))
	assert.Equal(t, key("Bearer ABC"), key("Bearer\tABC"))
	assert.NotEqual(t, key("Bearer ABC"), key("Bearer abc"))
	assert.NotEqual(t, key("Bearer\tABC"), key("Bearer\tabc"))
	assert.NotEqual(t, key("ABC"), key("abc"), "a token without a scheme")
}

// Behind NAT64 all IPv4 clients come from one /96.
func TestIPv4BehindNAT64IsIPv4(t *testing.T) {
	key := func(peer string) string { return serverside.ClientIP()(request("GET", "/", peer)) }
	assert.Equal(t, "192.0.2.1", key("[64:ff9b::c000:201]:1234"))
	assert.NotEqual(t, key("[64:ff9b::c000:201]:1234"), key("[64:ff9b::909:909]:1234"))
}

// peerKey is the Store's key for a peer, which Join writes as "-length:key".
func peerKey(peer string) string {
	_, key, _ := strings.Cut(serverside.Join(nil)(request("GET", "/", peer)), ":")
	return key
}

func TestAPeerIsPlainIPv4OrWhatNetIPMakesOfIt(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "0.0.0.0:0": "0.0.0.0", "255.255.255.255:65535": "255.255.255.255",
		"192.0.2.1": "192.0.2.1", "192.0.2.1:": "192.0.2.1", "192.0.2.1:http": "192.0.2.1",
		"[::ffff:192.0.2.1]:1": "192.0.2.1", "[2001:db8::1]:1": "2001:db8::", "[fe80::1%eth0]:1": "fe80::",
	} {
		assert.Equal(t, want, peerKey(peer), peer)
	}
	for _, peer := range []string{
		"", ":1", "@", "...:1", "192.0.2:1", "192.0.2.1.2:1", "192.0.2.256:1", "192.0.2.01:1", "192.0.2.00:1", "192.0..1:1",
		".192.0.2.1:1", "192.0.2.1.:1", "192.0.2.:1", "192.0.2.-1:1", "192.0.2.1a:1", "192.0.2.9999999999999999999999:1", "192.0.2.1::1",
	} {
		assert.Regexp(t, "^hash:[0-9a-f]{32}$", peerKey(peer), peer)
	}
}

func FuzzPeer(f *testing.F) {
	for _, s := range []string{"", "1.2.3.4:5", "1.2.3.04:5", "256.1.1.1:5", "1.2.3.4.5:6", "[::1]:80", "fe80::1%25", "::ffff:1.2.3.4", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, peer string) {
		want := serverside.ClientIP()(request("GET", "/", peer))
		if i := strings.LastIndexByte(peer, ':'); i >= 0 {
			if addr, err := netip.ParseAddr(peer[:i]); err == nil && addr.Is4() {
				want = peer[:i] // whatever the port
			}
		}
		if got := peerKey(peer); got != want && (want != "" || !strings.HasPrefix(got, "hash:")) {
			t.Fatalf("%q is %q, not %q", peer, got, want)
		}
	})
}
