package serverside

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP is the address of the client: of the peer, or, where the peer is one
// of the trusted proxies, the nearest address in X-Forwarded-For that is not.
// With no trusted proxies it is the peer's. It is Proxies with nothing but Trusted.
//
// The field is read from the right, over all its lines, because each proxy
// appends the address of its own peer: what stands to the left of the first
// address that is not a trusted proxy was written by the client, whatever it
// says. An address that cannot be parsed makes the key the peer's address.
// Ports, brackets and zones are dropped, IPv4 in IPv6 becomes IPv4, and IPv6 is
// cut to its /64, since that is what one client has to choose from.
//
// Where X-Real-IP says another address than X-Forwarded-For, the proxy writes one of
// them and passes on the other, which the client has written: the key is then the peer's
// address, and Audit is told (ForwardingDisputed). See Proxies to name the field.
//
// Trust only addresses that are yours. With 0.0.0.0/0 the client is believed,
// and so is free to choose its key: to New it is then what a Header is. The peer of a Unix socket has no address and
// is not trusted; give it one (r.RemoteAddr = "127.0.0.1:0") in front of Wrap.
func ClientIP(trusted ...netip.Prefix) Key {
	return Proxies{Trusted: trusted}.ClientIP()
}

// Proxies are the proxies in front of a server, and how they say who their client
// is.
type Proxies struct {
	// Trusted are the addresses of the proxies. Nobody else is believed.
	Trusted []netip.Prefix

	// Fields are the header fields that are read: name the one that the proxies write,
	// in every request. One that they pass on is written by the client. If there are
	// several, all of them that a request has must say the same, or else the peer's
	// address counts. If there are none, X-Forwarded-For, which X-Real-IP must not
	// contradict.
	//
	// Of X-Forwarded-For and of Forwarded (RFC 7239) the nearest address that is not
	// Trusted counts; of any other field, such as X-Real-IP or CF-Connecting-IP, the one
	// address that it holds.
	Fields []string

	// IPv6Bits is how much of an IPv6 address tells clients apart. If zero, 64. A
	// provider that gives each customer a /56 or /48 gives each of them 256 or
	// 65,536 clients' quotas.
	IPv6Bits int
}

// addressText is what a ClientIP is.
const addressText = "the client's address"

// ClientIP is the address of the client, as that of ClientIP.
func (p Proxies) ClientIP() Key {
	w := walker{trusted: trustOf(p.Trusted), bits: p.IPv6Bits}
	if w.bits <= 0 || w.bits > 128 {
		w.bits = oneClient
	}
	for _, name := range p.Fields {
		w.fields = append(w.fields, fieldOf(http.CanonicalHeaderKey(name)))
	}
	if len(w.fields) == 0 {
		w.fields, w.doubts = []field{fieldOf("X-Forwarded-For")}, []field{fieldOf("X-Real-Ip")}
	}
	key := &builtIn{origin: address, text: addressText, of: w.key, ip: w.client, disputed: w.disputed}
	if slices.ContainsFunc(w.trusted, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		key.origin, key.text = claimed, "the address that the client says it has"
	}
	return key
}

// A trust is the addresses of trusted peers.
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

// A walker walks from the peer towards the client for as long as the one that
// speaks is trusted.
type walker struct {
	trusted trust
	fields  []field // those that are read
	doubts  []field // those that must not contradict them
	bits    int
}

// key is the address that r comes from, as a key.
func (w *walker) key(r *http.Request) string {
	addr, ok := w.client(r)
	if !ok {
		return "" // a Unix socket's
	}
	return cutTo(addr, w.bits).String()
}

// client is the address that r comes from. It is not ok if it comes from none.
func (w *walker) client(r *http.Request) (addr netip.Addr, ok bool) {
	addr, _, ok = w.walkAll(r)
	return addr, ok
}

// disputed reports whether the fields of r contradict each other.
func (w *walker) disputed(r *http.Request) bool {
	_, disputed, _ := w.walkAll(r)
	return disputed
}

// walkAll returns what all fields say, or the peer where they disagree.
func (w *walker) walkAll(r *http.Request) (client netip.Addr, disputed, ok bool) {
	peer, ok := parseHop(r.RemoteAddr)
	if !ok || !w.trusted.trust(peer) {
		return peer, false, ok
	}
	client = peer // until a field says another
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
	for _, f := range w.doubts {
		addr, ok := w.walk(f, peer, r.Header[f.name])
		if ok && addr != client && !w.trusted.trust(addr) && !w.trusted.trust(client) {
			return peer, true, true
		}
	}
	return client, false, true
}

// walk returns the nearest address in lines that is not trusted, or the farthest
// if all are. It is not ok where it meets what is no address.
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

// oneClient is how many bits of an IPv6 address tell clients apart.
const oneClient = 64

// cut is the first address of the network that one client has.
func cut(addr netip.Addr) netip.Addr { return cutTo(addr, oneClient) }

func cutTo(addr netip.Addr, bits int) netip.Addr {
	if addr.Is4() {
		return addr
	}
	p, _ := addr.Prefix(bits) // cannot fail: every IPv6 address has as many
	return p.Addr()
}

// unmapPrefix is p with IPv4 in IPv6 as IPv4.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
