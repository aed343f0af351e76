package serverside

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP returns a Key that reads the client's address. Pass the addresses of your proxies:
//
//	Key: serverside.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))
//
// If the peer is a trusted proxy, the key is the nearest address in X-Forwarded-For that is not
// trusted; otherwise, and with no trusted proxies, it is the peer's. To read another field, use
// Proxies.
//
// X-Forwarded-For is read from the right, across all its lines, because each proxy appends its
// peer's address. Everything to the left of the first untrusted address was written by the
// client and is ignored. If an address cannot be parsed, the key is the peer's. Ports, brackets
// and zones are dropped, IPv4 in IPv6 becomes IPv4, and IPv6 is cut to its /64, because one
// client usually has a whole /64.
//
// If X-Real-IP and X-Forwarded-For name different clients, the proxy writes one of them and
// passes on the other, which is the client's. Then the key is the peer's address, and Audit
// gets ForwardingDisputed.
//
// Trust only your own addresses. With 0.0.0.0/0 clients can choose their key, and New treats it
// like a Header. The peer of a Unix socket has no address and is not trusted; if it is your
// proxy, set r.RemoteAddr = "127.0.0.1:0" in front of Wrap.
func ClientIP(trusted ...netip.Prefix) Key {
	return Proxies{Trusted: trusted}.ClientIP()
}

// Proxies describes the proxies in front of a server and the fields they write:
//
//	Key: serverside.Proxies{Trusted: cloudflare, Fields: []string{"CF-Connecting-IP"}}.ClientIP()
type Proxies struct {
	// Trusted are the proxies' addresses. Fields from other peers are ignored.
	Trusted []netip.Prefix

	// Fields names the header fields to read. The proxies must write them on every request,
	// because a field they only pass on comes from the client. If a request has several of them
	// and they disagree, the peer's address is used. If empty, X-Forwarded-For is read, and
	// X-Real-IP must not contradict it.
	//
	// In X-Forwarded-For and Forwarded (RFC 7239) the nearest address that is not Trusted
	// counts. Any other field, such as X-Real-IP or CF-Connecting-IP, must hold a single
	// address.
	Fields []string

	// IPv6Bits is the length of the IPv6 prefix that counts as one client. If zero, 64. With
	// 64, a customer whose provider assigns a /56 or /48 counts as 256 or 65,536 clients.
	IPv6Bits int
}

// addressText describes a ClientIP.
const addressText = "the client's address"

// ClientIP returns a Key that reads the client's address. See the function ClientIP.
func (p Proxies) ClientIP() Key {
	w := walker{trusted: trustOf(p.Trusted), bits: p.IPv6Bits}
	if w.bits <= 0 || w.bits > 128 {
		w.bits = oneClient
	}
	for _, name := range p.Fields {
		w.fields = append(w.fields, fieldOf(http.CanonicalHeaderKey(name)))
	}
	if len(w.fields) == 0 {
		w.fields, w.conflicts = []field{fieldOf("X-Forwarded-For")}, []field{fieldOf("X-Real-Ip")}
	}
	key := &builtIn{origin: address, text: addressText, of: w.key, ip: w.client, disputed: w.disputed}
	if slices.ContainsFunc(w.trusted, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		key.origin, key.text = claimed, "the address that the client says it has"
	}
	return key
}

// A trust is the list of trusted networks.
type trust []netip.Prefix

func trustOf(prefixes []netip.Prefix) trust {
	t := make(trust, len(prefixes))
	for i, p := range prefixes {
		t[i] = unmapPrefix(p)
	}
	return t
}

func (t trust) trust(addr netip.Addr) bool {
	for _, prefix := range t {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// A walker goes from the peer towards the client, hop by hop, as long as the hop is trusted.
type walker struct {
	trusted   trust
	fields    []field // read for the address
	conflicts []field // only compared with fields
	bits      int
}

// key returns the address of r's client as a key.
func (w *walker) key(r *http.Request) string {
	addr, ok := w.client(r)
	if !ok {
		return "" // a Unix socket
	}
	return cutTo(addr, w.bits).String()
}

// client returns the address of r's client. It is not ok if the peer has none.
func (w *walker) client(r *http.Request) (addr netip.Addr, ok bool) {
	addr, _, ok = w.walkAll(r)
	return addr, ok
}

// disputed reports whether r's fields contradict each other.
func (w *walker) disputed(r *http.Request) bool {
	_, disputed, _ := w.walkAll(r)
	return disputed
}

// walkAll returns the client's address by all fields, or the peer's if they disagree.
func (w *walker) walkAll(r *http.Request) (client netip.Addr, disputed, ok bool) {
	peer, ok := parseHop(r.RemoteAddr)
	if !ok || !w.trusted.trust(peer) {
		return peer, false, ok
	}
	client = peer // until a field names another
	for _, f := range w.fields {
		addr, ok := w.walk(f, peer, r.Header[f.name])
		switch {
		case !ok:
			return peer, len(w.fields) > 1, true
		case w.trusted.trust(client):
			client = addr
		case addr != client && !w.trusted.trust(addr):
			return peer, true, true
		}
	}
	for _, f := range w.conflicts {
		addr, ok := w.walk(f, peer, r.Header[f.name])
		if ok && addr != client && !w.trusted.trust(addr) && !w.trusted.trust(client) {
			return peer, true, true
		}
	}
	return client, false, true
}

// walk returns the nearest address in lines that is not trusted, or the farthest if all are. It
// is not ok if it meets a malformed address.
func (w *walker) walk(f field, peer netip.Addr, lines []string) (addr netip.Addr, ok bool) {
	addr = peer
	for _, line := range slices.Backward(lines) {
		for hop := range f.hops(line) {
			if !w.trusted.trust(addr) {
				return addr, true
			}
			if hop == "" {
				continue
			}
			if addr, ok = f.addr(hop); !ok {
				return peer, false
			}
		}
	}
	return addr, true
}

// parseHop parses an address with or without brackets, port and zone.
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

// plain returns addr without its zone, and as IPv4 if it embeds IPv4.
func plain(addr netip.Addr) netip.Addr {
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr.Unmap().WithZone("")
}

// nat64 is the prefix under which an IPv6-only server sees IPv4 clients (RFC 6052, section
// 2.1).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// oneClient is the default for Proxies.IPv6Bits.
const oneClient = 64

// cut returns the first address of addr's /64, or addr if it is IPv4.
func cut(addr netip.Addr) netip.Addr { return cutTo(addr, oneClient) }

func cutTo(addr netip.Addr, bits int) netip.Addr {
	if addr.Is4() {
		return addr
	}
	p, _ := addr.Prefix(bits) // cannot fail: bits is at most 128
	return p.Addr()
}

// unmapPrefix returns p as IPv4 if it is IPv4 in IPv6.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
