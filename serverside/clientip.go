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
// Trust only addresses that are yours. With 0.0.0.0/0 the client is believed,
// and so is free to choose its key: to New it is then what a Header is. The peer of a Unix socket has no address and
// is not trusted; give it one (r.RemoteAddr = "127.0.0.1:0") in front of Wrap.
func ClientIP(trusted ...netip.Prefix) KeyFunc {
	return Proxies{Trusted: trusted}.ClientIP()
}

// Proxies are the proxies in front of a server, and how they say who their client
// is.
type Proxies struct {
	// Trusted are the addresses of the proxies. Nobody else is believed.
	Trusted []netip.Prefix

	// Fields are the header fields that are read, the first that a request has and
	// no other. If there are none, X-Forwarded-For. Of that and of Forwarded (RFC
	// 7239) the nearest address that is not Trusted counts; of any other field,
	// such as X-Real-IP or CF-Connecting-IP, the one address that it holds.
	//
	// Name only fields that the proxies write, or delete, in every request: one
	// that they pass on is written by the client.
	Fields []string

	// IPv6Bits is how much of an IPv6 address tells clients apart. If zero, 64. A
	// provider that gives each customer a /56 or /48 gives each of them 256 or
	// 65,536 clients' quotas.
	IPv6Bits int
}

// ClientIP is the address of the client, as that of ClientIP.
func (p Proxies) ClientIP() KeyFunc {
	w := walker{trusted: trustOf(p.Trusted), bits: p.IPv6Bits}
	if w.bits <= 0 || w.bits > 128 {
		w.bits = oneClient
	}
	for _, name := range p.Fields {
		w.fields = append(w.fields, fieldOf(http.CanonicalHeaderKey(name)))
	}
	if len(w.fields) == 0 {
		w.fields = []field{fieldOf("X-Forwarded-For")}
	}
	key := func(r *http.Request) string {
		addr, ok := w.client(r)
		if !ok {
			return "" // a Unix socket's
		}
		return cutTo(addr, w.bits).String()
	}
	if slices.ContainsFunc(w.trusted, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return claim{key}.key // whoever writes the field is believed
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
	fields  []field
	bits    int
}

// A field is a header field in which proxies write.
type field struct {
	name string
	last func(line string) (rest, hop string) // splits off the last hop
	hop  func(string) (netip.Addr, bool)
}

func fieldOf(name string) field {
	switch name {
	case "X-Forwarded-For":
		return field{name, cutLast, parseHop}
	case "Forwarded":
		return field{name, cutLastElement, parseElement}
	default:
		return field{name, func(line string) (rest, hop string) { return "", strings.Trim(line, " \t") }, parseHop}
	}
}

// client is the address that r comes from. It is not ok if it comes from none.
func (w *walker) client(r *http.Request) (netip.Addr, bool) {
	peer, ok := parseHop(r.RemoteAddr)
	if !ok || !w.trusted.trust(peer) {
		return peer, ok
	}
	for i := range w.fields {
		if lines := r.Header[w.fields[i].name]; len(lines) > 0 {
			return w.walk(&w.fields[i], peer, lines), true
		}
	}
	return peer, true
}

// walk returns the nearest address in lines that is not trusted, or the farthest
// if all are; and peer where it meets what is no address.
func (w *walker) walk(f *field, peer netip.Addr, lines []string) netip.Addr {
	addr, ok := peer, true
	for i := len(lines) - 1; i >= 0; i-- {
		for line := lines[i]; line != ""; {
			if !w.trusted.trust(addr) {
				return addr
			}
			var hop string
			if line, hop = f.last(line); hop == "" {
				continue
			}
			if addr, ok = f.hop(hop); !ok {
				return peer
			}
		}
	}
	return addr
}

// isForwarded reports whether r says that it has come by way of its peer.
func isForwarded(r *http.Request) bool {
	h := r.Header
	return len(h["X-Forwarded-For"]) > 0 || len(h["Forwarded"]) > 0 || len(h["X-Real-Ip"]) > 0 || len(h["Cf-Connecting-Ip"]) > 0
}

// cutLast splits off the last element of a comma-separated list.
func cutLast(line string) (rest, last string) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", strings.Trim(line, " \t")
	}
	return line[:i], strings.Trim(line[i+1:], " \t")
}

// cutLastElement is cutLast of elements that may have commas in quotes. From the
// right, what a client has written cannot change where the elements that proxies
// have appended begin.
func cutLastElement(line string) (rest, last string) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return line[:i], strings.Trim(line[i+1:], " \t")
		}
	}
	return "", strings.Trim(line, " \t")
}

// parseElement reads the one "for" of an element of Forwarded (RFC 7239, section
// 4). Without one, or with a name that is no address (section 6), it is not ok.
func parseElement(s string) (addr netip.Addr, ok bool) {
	for pair := range strings.SplitSeq(s, ";") {
		name, value, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !strings.EqualFold(name, "for") {
			continue
		}
		if ok {
			return addr, false // which of the two?
		}
		if last := len(value) - 1; last > 0 && value[0] == '"' && value[last] == '"' {
			value = value[1:last]
		}
		if addr, ok = parseHop(value); !ok {
			return addr, false
		}
	}
	return addr, ok
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
