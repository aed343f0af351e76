// Package hostkey returns the key of a URL's server: scheme://host, always in the same spelling.
package hostkey

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	slots   = 256 // a power of two
	longest = 512 // longer hosts are not cached, in bytes; a DNS name has at most 253
)

var seed = maphash.MakeSeed()

// A Cache computes keys and remembers up to 256 for http and as many for https. Each host has one
// slot where it can be, so neither a lock nor an order is needed. A key that lost its slot is
// computed again. The zero Cache is ready to use, and safe for concurrent use. It must not be
// copied.
type Cache struct {
	http, https [slots]atomic.Pointer[entry]
}

// A Name is a key and its hash, for tables that look it up often.
type Name struct {
	Key  string
	Hash uint64
}

// NameOf returns the Name of any key.
func NameOf(key string) Name { return Name{key, maphash.String(seed, key)} }

type entry struct {
	host string // as the caller spelled it
	name Name
}

// Key returns scheme://host as Of spells it. It allocates only if the key is not in c.
func (c *Cache) Key(scheme, host string) string { return c.Name(scheme, host).Key }

// Name is Key with its hash.
func (c *Cache) Name(scheme, host string) Name {
	var table *[slots]atomic.Pointer[entry]
	switch scheme {
	case "http":
		table = &c.http
	case "https":
		table = &c.https
	default:
		return NameOf(Of(scheme, host))
	}
	slot := &table[maphash.String(seed, host)%slots]
	if e := slot.Load(); e != nil && e.host == host {
		return e.name
	}
	return compute(slot, scheme, host)
}

func compute(slot *atomic.Pointer[entry], scheme, host string) Name {
	name := NameOf(Of(scheme, host))
	if len(host) <= longest {
		// The clone keeps the rest of the URL, which host is a part of, from staying in memory.
		slot.Store(&entry{strings.Clone(host), name})
	}
	return name
}

// Of returns scheme://host with the ASCII letters of both in lower case, and without the port if it
// is empty or the scheme's default (RFC 3986 section 6.2.3). host is as in url.URL: it may have a
// port, and an IPv6 address is in brackets. Names outside ASCII and a final dot stay unchanged.
func Of(scheme, host string) string {
	scheme = lower(scheme)
	return scheme + "://" + lower(withoutDefaultPort(scheme, host))
}

// withoutDefaultPort expects scheme in lower case.
func withoutDefaultPort(scheme, host string) string {
	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || strings.IndexByte(host[colon:], ']') > 0 {
		return host // the colon, if any, is within an IPv6 address
	}
	switch port := host[colon+1:]; {
	case port == "", port == "80" && scheme == "http", port == "443" && scheme == "https":
		return host[:colon]
	}
	return host
}

// lower is strings.ToLower for A to Z only: other letters may belong to different names.
func lower(s string) string {
	if strings.IndexFunc(s, isUpper) < 0 {
		return s
	}
	b := []byte(s) // bytes, so that invalid UTF-8 stays unchanged
	for i, c := range b {
		if isUpper(rune(c)) {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}

func isUpper(r rune) bool { return 'A' <= r && r <= 'Z' }
