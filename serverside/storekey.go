package serverside

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// The name spaces of the Store's keys. A peer's address has none, and does not begin like
// any of them.
const (
	keySpace      = "key:"     // what a Key returned
	fallbackSpace = "default:" // what Config.Key returned where a Rule's Key returned ""
	hashSpace     = "hash:"    // the hash of what is too long, or is no address
)

// longestKey is the longest key that is stored as it is: what a client sends
// must not decide how much memory a bucket takes.
const longestKey = 128

// storeKey is the Store's key for what a Key returned.
func storeKey(space, key string) string {
	if len(key) > longestKey {
		return hashSpace + hash(space+key)
	}
	return space + key
}

// keyOf returns the Store's key for the request's quota of r.
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

// peerOf is the peer's address, which is also the Store's key for it. What is no
// address, such as that of a Unix socket, has a hash in its place.
func peerOf(r *http.Request) string {
	host := r.RemoteAddr
	if i := strings.LastIndexByte(host, ':'); i >= 0 && isDotted(host[:i]) {
		return host[:i] // IPv4 has one spelling, and this is most requests
	}
	addr, ok := parseHop(r.RemoteAddr)
	if !ok {
		return hashSpace + hash(r.RemoteAddr)
	}
	return cut(addr).String()
}

// isDotted reports whether host is an IPv4 address, as net/netip has it.
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

// hash is the first half of SHA-256, in hexadecimal.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
