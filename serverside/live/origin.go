package live

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// knows reports whether r is for a host that the page is for. A browser that was made to
// believe that a stranger's name is this server's (DNS rebinding) asks for that name.
func (p *Page) knows(r *http.Request) bool {
	host := hostname(r.Host)
	if host == "" {
		return false
	}
	ip, _ := netip.ParseAddr(host)
	return host == "localhost" || ip.IsLoopback() || host == localAddress(r) ||
		slices.ContainsFunc(p.Hosts, func(known string) bool { return hostname(known) == host })
}

// hostname is host without its port and in one spelling.
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

// localAddress is the one that the connection of r came in on; "" if the server does not say.
func localAddress(r *http.Request) string {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok { // a Unix socket has no address that a browser could ask for
		return ""
	}
	return hostname(local.String())
}

// sameOrigin reports whether no page of another origin has the browser send r. Browsers
// that do not say where a request is from send Origin at least with those of scripts.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" || site == "none"
	}
	origin := r.Header.Get("Origin")
	u, err := url.Parse(origin)
	return origin == "" || err == nil && u.Host == r.Host
}
