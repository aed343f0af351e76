package serverside

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// Prefixes of the Store's keys. A peer's address has none, and begins with none of them.
const (
	keySpace      = "key:"     // what a Key returned
	fallbackSpace = "default:" // what Config.Key returned where a Rule's Key returned ""
	hashSpace     = "hash:"    // the hash of a long key, or of a peer without an IP address
)

// maxKey is the length of the longest key that is stored unhashed, so that clients cannot make
// buckets large.
const maxKey = 128

// storeKey returns the Store's key for what a Key returned.
func storeKey(space, key string) string {
	if len(key) > maxKey {
		return hashSpace + hash(space+key)
	}
	return space + key
}

// keyOf returns the Store's key that r charges for the request.
func (c *check) keyOf(r *rule) string {
	space := keySpace
	if r.key != nil {
		if key := r.key.Of(c.r); key != "" {
			return storeKey(space, key)
		}
		space = fallbackSpace
	}
	if c.Key != nil && !c.hasFallback {
		c.fallback, c.hasFallback = c.Key.Of(c.r), true
	}
	if c.fallback != "" {
		return storeKey(space, c.fallback)
	}
	return peerOf(c.r)
}

// peerOf returns the peer's address, which is also the Store's key for it. A peer without an IP
// address, such as a Unix socket, gets a hash.
func peerOf(r *http.Request) string {
	host := r.RemoteAddr
	if i := strings.LastIndexByte(host, ':'); i >= 0 && isDotted(host[:i]) {
		return host[:i] // the common case: IPv4, which has one spelling
	}
	addr, ok := parseHop(r.RemoteAddr)
	if !ok {
		return hashSpace + hash(r.RemoteAddr)
	}
	return cut(addr).String()
}

// isDotted reports whether netip would parse host as IPv4.
func isDotted(host string) bool {
	from, dots := 0, 0
	for i := range len(host) {
		switch c := host[i]; {
		case '0' <= c && c <= '9':
		case c == '.' && isOctet(host[from:i]):
			from = i + 1
			dots++
		default:
			return false
		}
	}
	return dots == 3 && isOctet(host[from:])
}

// isOctet reports whether digits are a number below 256 without leading zeros.
func isOctet(digits string) bool {
	switch len(digits) {
	case 1:
		return true
	case 2:
		return digits[0] != '0'
	case 3:
		return digits[0] == '1' || digits[0] == '2' && digits[1:] <= "55"
	default:
		return false
	}
}

// hash returns the first half of SHA-256 in hexadecimal.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
