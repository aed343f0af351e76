package serverside

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// A KeyFunc says whose quota a request is charged to: all requests with one key
// share one quota. "" means the peer's address, in a name space of its own:
// never one bucket for everybody, never no limit.
//
// What a KeyFunc returns reaches the Store as it is (if longer than 128 bytes,
// as its hash): do not return secrets. Header hashes what it reads.
// A KeyFunc is called from many goroutines at once.
type KeyFunc func(*http.Request) string

// The name spaces of the Store's keys. An address has none: it contains neither
// a "k" nor an "h".
const (
	keySpace  = "key:"  // what a KeyFunc returned
	hashSpace = "hash:" // the hash of it
)

// everybody is what an Overload rule without a KeyFunc charges.
const everybody = "*"

// longestKey is the longest key that is stored as it is: what a client sends
// must not decide how much memory a bucket takes.
const longestKey = 128

// subject is the Store's key for what a KeyFunc returned.
func subject(key string) string {
	if len(key) > longestKey {
		return hashSpace + hash(key)
	}
	return keySpace + key
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
