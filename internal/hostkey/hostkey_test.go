package hostkey_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/internal/hostkey"
)

func TestEachServerHasOneSpelling(t *testing.T) {
	for _, c := range []struct{ scheme, host, want string }{
		{"http", "example.com", "http://example.com"},
		{"HTTP", "Example.COM", "http://example.com"},
		{"http", "example.com:80", "http://example.com"},
		{"https", "example.com:443", "https://example.com"},
		{"HTTPS", "example.com:443", "https://example.com"},
		{"http", "example.com:443", "http://example.com:443"},
		{"https", "example.com:80", "https://example.com:80"},
		{"http", "example.com:8080", "http://example.com:8080"},
		{"http", "example.com:", "http://example.com"},
		{"http", "[::1]", "http://[::1]"},
		{"http", "[::1]:80", "http://[::1]"},
		{"http", "[::1]:", "http://[::1]"},
		{"http", "[2001:DB8::80]", "http://[2001:db8::80]"},
		{"https", "[2001:db8::1]:8443", "https://[2001:db8::1]:8443"},
		{"http", "[fe80::1%eth0]:80", "http://[fe80::1%eth0]"},
		{"http", "BÜCHER.example", "http://bÜcher.example"},
		{"http", "\xff\xfeA", "http://\xff\xfea"},
		{"http", "example.com.", "http://example.com."},
		{"", "", "://"},
		{"http", ":80", "http://"},
	} {
		assert.Equal(t, c.want, hostkey.Of(c.scheme, c.host), "Of(%q, %q)", c.scheme, c.host)
		var cache hostkey.Cache
		assert.Equal(t, c.want, cache.Key(c.scheme, c.host), "a miss")
		assert.Equal(t, c.want, cache.Key(c.scheme, c.host), "a hit")
	}
}

func TestSchemesOfOneHostHaveDifferentKeys(t *testing.T) {
	var cache hostkey.Cache
	for range 3 {
		assert.Equal(t, "http://example.com", cache.Key("http", "example.com"))
		assert.Equal(t, "https://example.com", cache.Key("https", "example.com"))
	}
}

func TestKeysAreRightWhenTheCacheOverflows(t *testing.T) {
	var (
		cache hostkey.Cache
		wg    sync.WaitGroup
	)
	for range 8 {
		wg.Go(func() {
			for i := range 4000 {
				name := fmt.Sprintf("shard-%d.example.com", i%1000)
				if got := cache.Key("http", name+":80"); got != "http://"+name {
					t.Errorf("Key = %q, want http://%s", got, name)
				}
			}
		})
	}
	wg.Wait()
}

func TestAHitAllocatesNothing(t *testing.T) {
	var cache hostkey.Cache
	cache.Key("https", "API.example.com:443")
	assert.Zero(t, testing.AllocsPerRun(100, func() { cache.Key("https", "API.example.com:443") }))
}

func TestAHugeHostIsNotCached(t *testing.T) {
	var cache hostkey.Cache
	host := strings.Repeat("a", 1<<16)
	cache.Key("http", host)
	assert.NotZero(t, testing.AllocsPerRun(10, func() { cache.Key("http", host) }))
}

func FuzzOf(f *testing.F) {
	for _, u := range []string{
		"http://example.com", "HTTP://Example.COM:80/x?y", "https://[2001:DB8::1]:443", "http://[::1]:", "http://a:1",
		"http://[fe80::1%25eth0]:80", "https://user:secret@h:443", "http://%41b", "http://:80", "ws://h:80",
	} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || strings.Count(u.Host, ":") > 1 && u.Host[0] != '[' {
			t.Skip() // no host by RFC 3986, section 3.2.2
		}
		key := hostkey.Of(u.Scheme, u.Host)
		assert.Equal(t, oracle(u), key)
		assert.Equal(t, key, hostkey.Of(strings.ToUpper(u.Scheme), u.Host))

		scheme, host, _ := strings.Cut(key, "://")
		assert.Equal(t, key, hostkey.Of(scheme, host), "the key of a key is the key itself")
	})
}

// oracle takes the host apart with net/url's own functions and puts it together again.
func oracle(u *url.URL) string {
	pairs := make([]string, 0, 52)
	for c := 'A'; c <= 'Z'; c++ {
		pairs = append(pairs, string(c), strings.ToLower(string(c)))
	}
	ascii := strings.NewReplacer(pairs...).Replace
	name, port := u.Hostname(), u.Port()
	if strings.HasPrefix(u.Host, "[") {
		name = "[" + name + "]"
	}
	if port != "" && port != map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		name += ":" + port
	}
	return ascii(u.Scheme) + "://" + ascii(name)
}

func BenchmarkHit(b *testing.B) {
	var cache hostkey.Cache
	b.ReportAllocs()
	for b.Loop() {
		cache.Key("https", "api.example.com")
	}
}

func BenchmarkHitParallel(b *testing.B) {
	var cache hostkey.Cache
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			cache.Key("https", "api.example.com")
		}
	})
}
