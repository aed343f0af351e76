// Package hostkey names the server that a URL leads to: scheme://host, in one
// spelling.
package hostkey

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	slots   = 256 // a power of two
	longest = 512 // of what is kept, in bytes; no name in the DNS is longer than 253
)

var seed = maphash.MakeSeed()

// A Cache computes keys and remembers some of them: at most 256 of http and as
// many of https, each in the one slot where it can be, so that there is neither
// a lock nor an order to keep. A key that was displaced is computed anew. The
// zero Cache is ready to use, by any number of goroutines. It must not be
// copied.
type Cache struct {
	http, https [slots]atomic.Pointer[entry]
}

// A Name is a key and its hash, for tables that have it at hand again and again.
type Name struct {
	Key  string
	Hash uint64
}

// NameOf returns the Name of any key.
func NameOf(key string) Name { return Name{key, maphash.String(seed, key)} }

type entry struct {
	host string // as it was asked for
	name Name
}

// Key returns scheme://host as Of spells it. It allocates only if the answer
// is not in c.
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
		// A clone, because a URL's host is a part of its text: kept, it would
		// keep alive the path and the query, too.
		slot.Store(&entry{strings.Clone(host), name})
	}
	return name
}

// Of returns scheme://host with the ASCII letters of both in lower case, and
// without the port if it is empty or the scheme's own (RFC 3986, section
// 6.2.3). The host is as in url.URL: with a port, perhaps, and an IPv6 address
// in brackets. A name that is not in ASCII, and a dot at a name's end, are left
// as they are.
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

// lower is strings.ToLower for the letters A to Z only: the others may be
// names in their own right.
func lower(s string) string {
	if strings.IndexFunc(s, isUpper) < 0 {
		return s
	}
	b := []byte(s) // bytes, not runes: what is not valid UTF-8 stays as it is
	for i, c := range b {
		if isUpper(rune(c)) {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}

func isUpper(r rune) bool { return 'A' <= r && r <= 'Z' }
