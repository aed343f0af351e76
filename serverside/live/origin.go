package live

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// knows reports whether r's host is one of the page's. With DNS rebinding, a browser asks for a
// stranger's name.
func (p *Page) knows(r *http.Request) bool {
	host := hostname(r.Host)
	if host == "" {
		return false
	}
	ip, _ := netip.ParseAddr(host)
	return host == "localhost" || ip.IsLoopback() || host == localAddress(r) ||
		slices.ContainsFunc(p.Hosts, func(known string) bool { return hostname(known) == host })
}

// hostname returns host without its port, in one spelling.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// localAddress returns the address on which r's connection came in, or "" if the server does
// not provide it.
func localAddress(r *http.Request) string {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok { // no browser can ask for a Unix socket's address
		return ""
	}
	return hostname(local.String())
}

// sameOrigin reports whether r comes from the page itself or from no page. Browsers that do not
// send Sec-Fetch-Site send Origin with requests of scripts.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" || site == "none"
	}
	origin := r.Header.Get("Origin")
	u, err := url.Parse(origin)
	return origin == "" || err == nil && u.Host == r.Host
}
