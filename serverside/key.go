package serverside

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
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

// ClientIP is the address of the client: of the peer, or, where the peer is one
// of the trusted proxies, the nearest address in X-Forwarded-For that is not.
// With no trusted proxies it is the peer's.
//
// The field is read from the right, over all its lines, because each proxy
// appends the address of its own peer: what stands to the left of the first
// address that is not a trusted proxy was written by the client, whatever it
// says. An address that cannot be parsed makes the key the peer's address.
// Ports, brackets and zones are dropped, IPv4 in IPv6 becomes IPv4, and IPv6 is
// cut to its /64, since that is what one client has to choose from.
//
// Trust only addresses that are yours. With 0.0.0.0/0 the client is believed,
// and so is free to choose its key. The peer of a Unix socket has no address and
// is not trusted; give it one (r.RemoteAddr = "127.0.0.1:0") in front of Wrap.
func ClientIP(trusted ...netip.Prefix) KeyFunc {
	proxies := make(prefixes, len(trusted))
	for i, p := range trusted {
		proxies[i] = unmapPrefix(p)
	}
	return func(r *http.Request) string {
		addr, ok := proxies.client(r)
		if !ok {
			return "" // a Unix socket's
		}
		return cut(addr).String()
	}
}

// Header is the first value of the request header field called name, as a hash:
// neither the Store nor an Event sees a token. It is "" if the field is absent.
//
// A value that nobody has checked is the client's to choose, and each one it
// makes up is a fresh quota. So check it in front of Wrap, or add a rule that
// limits by ClientIP. Of Authorization, the case of the scheme and the spaces
// after it do not count, as they do not for who reads it.
func Header(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) string {
		value := r.Header.Get(name)
		switch {
		case name == "Host":
			value = r.Host // where net/http puts it
		case name == "Authorization":
			value = credentials(value)
		}
		if value == "" {
			return ""
		}
		return hash(name + ":" + value)
	}
}

// credentials is value, of the field Authorization, in one spelling.
func credentials(value string) string {
	end := strings.IndexAny(value, " \t")
	if end < 0 {
		return value // there is no scheme
	}
	return strings.ToLower(value[:end]) + " " + strings.TrimLeft(value[end:], " \t")
}

// Join is all of keys together. No two different lists of keys have the same
// join, whatever characters they are made of. Where one of them is "" or nil,
// the peer's address takes its place.
func Join(keys ...KeyFunc) KeyFunc {
	keys = slices.Clone(keys)
	return func(r *http.Request) string {
		var b []byte
		for _, key := range keys {
			b = appendPart(b, r, key)
		}
		return string(b)
	}
}

// appendPart appends key's value as a netstring, or the peer's with a "-" that
// no netstring begins with.
func appendPart(b []byte, r *http.Request, key KeyFunc) []byte {
	part := ""
	if key != nil {
		part = key(r)
	}
	if part == "" {
		return appendNetstring(append(b, '-'), peerOf(r))
	}
	return appendNetstring(b, part)
}

func appendNetstring(b []byte, s string) []byte {
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}

// The name spaces of the Store's keys. An address has none: it contains neither
// a "k" nor an "h".
const (
	keySpace  = "key:"  // what a KeyFunc returned
	hashSpace = "hash:" // the hash of it
)

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

// isDotted reports whether host is an IPv4 address, as net/netip has it: four
// numbers below 256 without leading zeros.
func isDotted(host string) bool {
	part, digits, dots := 0, 0, 0
	for i := range len(host) {
		switch c := host[i]; {
		case '0' <= c && c <= '9' && (digits == 0 || part > 0):
			part = part*10 + int(c-'0')
			digits++
		case c == '.' && digits > 0:
			part, digits = 0, 0
			dots++
		default:
			return false
		}
		if part > 255 {
			return false
		}
	}
	return dots == 3 && digits > 0
}

// hash is the first half of SHA-256, in hexadecimal.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// prefixes are the addresses of trusted proxies.
type prefixes []netip.Prefix

func (p prefixes) trust(addr netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// client walks from the peer towards the client for as long as the one that
// speaks is trusted.
func (p prefixes) client(r *http.Request) (netip.Addr, bool) {
	peer, ok := parseHop(r.RemoteAddr)
	if !ok {
		return peer, false
	}
	addr := peer
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for line := lines[i]; line != ""; {
			if !p.trust(addr) {
				return addr, true
			}
			var hop string
			line, hop = cutLast(line)
			if hop == "" {
				continue
			}
			if addr, ok = parseHop(hop); !ok {
				return peer, true
			}
		}
	}
	return addr, true
}

// cutLast splits off the last element of a comma-separated list.
func cutLast(line string) (rest, last string) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", strings.Trim(line, " \t")
	}
	return line[:i], strings.Trim(line[i+1:], " \t")
}

// parseHop reads an address with or without brackets, port and zone.
func parseHop(s string) (netip.Addr, bool) {
	var addr netip.Addr
	var err error
	switch last := len(s) - 1; {
	case last > 0 && s[0] == '[' && s[last] == ']':
		addr, err = netip.ParseAddr(s[1:last])
	case last > 0 && s[0] == '[' || strings.Count(s, ":") == 1:
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(s)
		addr = withPort.Addr()
	default:
		addr, err = netip.ParseAddr(s)
	}
	return plain(addr), err == nil
}

// plain is addr without what does not tell clients apart: IPv4 is IPv4, in
// whatever form of IPv6 it comes.
func plain(addr netip.Addr) netip.Addr {
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr.Unmap().WithZone("")
}

// nat64 is where IPv4 clients are seen by a server that has IPv6 only (RFC 6052
// section 2.1).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// cut is the first address of the network that one client has.
func cut(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return addr
	}
	p, _ := addr.Prefix(64) // cannot fail: every IPv6 address has 64 bits
	return p.Addr()
}

// unmapPrefix is p with IPv4 in IPv6 as IPv4.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
