package export

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
)

// haproxy makes a defaults section, and the tables that it counts in, for HAProxy 2.5
// or later with PCRE. What it denies is not counted, as in package serverside.
func haproxy(e *exporter) string {
	h := &haproxyFile{exporter: e}
	h.client()
	h.requests()
	for _, g := range e.guards() {
		h.guard(g)
	}
	return hashed(append(e.comment(e.layering("HAProxy",
		"Name it before your own file: haproxy -f FILE -f haproxy.cfg; where a frontend begins\nwith \"frontend NAME from heed\", it is guarded.")...), "",
		"HAProxy counts in sliding windows: a bucket of 10 that fills in 10 s is 10 in any 10 s.")) + h.text()
}

type haproxyFile struct {
	*exporter
	tables  []haproxyTable // one for each tracker
	prepare []string       // what is known of a request before it is judged
	deny    []string
	count   []string
	passes  bool
}

// A haproxyTable counts in windows of one length, by the indices of its counters.
type haproxyTable struct {
	window   time.Duration
	counters int
}

// What HAProxy has of each kind, if nobody changed it.
const (
	haproxyTrackers = 3
	haproxyCounters = 100 // of a table
)

func (h *haproxyFile) text() string {
	var b strings.Builder
	for i, t := range h.tables {
		fmt.Fprintf(&b, "\nbackend heed_table%d\n\tstick-table type ipv6 size 1m expire %dms store gpc_rate(%d,%dms)\n",
			i, 2*t.window.Milliseconds()+1000, t.counters, t.window.Milliseconds())
	}
	b.WriteString("\ndefaults heed\n\tmode http\n\ttimeout connect 5s\n\ttimeout client 60s\n\ttimeout server 60s\n")
	for _, line := range h.prepare {
		b.WriteString("\t" + line + "\n")
	}
	for i := range h.tables {
		fmt.Fprintf(&b, "\thttp-request track-sc%d var(txn.heed_client),ipmask(32,%d) table heed_table%d%s\n", i, h.ipv6Bits(), i, h.unlessPassed())
	}
	for _, line := range append(h.deny, h.count...) {
		b.WriteString("\t" + line + "\n")
	}
	return b.String()
}

func (h *haproxyFile) unlessPassed() string {
	if h.passes {
		return " unless heed_pass"
	}
	return ""
}

func (h *haproxyFile) line(format string, args ...any) {
	h.prepare = append(h.prepare, fmt.Sprintf(format, args...))
}

// hops is how many trusted proxies are looked behind.
const hops = 3

// client finds out who the client is: the last address that no trusted proxy has.
func (h *haproxyFile) client() {
	h.line("http-request set-var(txn.heed_client) src")
	if len(h.Proxies.Trusted) == 0 {
		h.line("# Behind another proxy, each client has the proxy's address: name it in")
		h.line("# trusted_proxies, and X-Forwarded-For is read here.")
		return
	}
	h.addresses("acl heed_trusted var(txn.heed_client) -m ip", h.Proxies.Trusted)
	field, last := proxyField(h.exporter, "HAProxy"), hops
	if !strings.EqualFold(field, "X-Forwarded-For") {
		last = 1
	}
	for i := 1; i <= last; i++ {
		h.line("http-request set-var(txn.heed_client) req.hdr_ip(%s,-%d) if heed_trusted", field, i)
	}
	if last > 1 {
		h.gapOf("trusted_proxies", 1, 1, "HAProxy looks behind %d of them here, one after the other", hops)
	}
}

// addresses is a line for each few of some networks.
func (h *haproxyFile) addresses(acl string, networks []netip.Prefix) {
	for some := range slices.Chunk(networks, 20) {
		h.line("%s %s", acl, strings.Trim(fmt.Sprint(some), "[]"))
	}
}

// requests says what a request is, and which pass.
func (h *haproxyFile) requests() {
	h.line(`http-request set-var-fmt(txn.heed_request) '%%[method] %%[req.hdr(host),host_only,lower]%%[path,url_dec]'`)
	peers, exempt := h.allowed(), h.exempt()
	h.passes = len(peers)+len(exempt) > 0
	h.addresses("acl heed_pass src", peers)
	for _, p := range exempt {
		h.line("acl heed_pass var(txn.heed_request) -m reg '^%s'", p.expression("/", true))
	}
}

// guard limits what a rule limits.
func (h *haproxyFile) guard(g guard) {
	h.line("# rule %s", quoted(g.Rule.Name))
	when := ""
	if g.pattern.text != "" {
		when = " heed_rule_" + g.id
		h.line("acl%s var(txn.heed_request) -m reg '^%s'", when, g.pattern.expression("/+", false))
	}
	for _, l := range g.limits {
		h.limit(&g, l, when)
	}
}

// limit limits by one policy.
func (h *haproxyFile) limit(g *guard, l limit, when string) {
	n, window := h.windowOf(g, l)
	if window > 24*24*time.Hour || n > 1<<31 {
		h.gap(&g.Listed, "%v is more than HAProxy counts", l)
		return
	}
	table, index, ok := h.counter(window)
	if !ok {
		h.gap(&g.Listed, "%v is left to the application: HAProxy counts in %d windows at most, of %d counters each", l, haproxyTrackers, haproxyCounters)
		return
	}
	h.deny = append(h.deny, fmt.Sprintf("# rule %s: %v", quoted(g.Rule.Name), l),
		fmt.Sprintf("http-request return status 429 content-type application/problem+json string '%s' hdr Retry-After %d if%s { sc_gpc_rate(%d,%d) ge %d }",
			haproxyProblem, waitAfter(n, window), when, index, table, n))
	if when != "" {
		when = " if" + when
	}
	h.count = append(h.count, fmt.Sprintf("http-request sc-inc-gpc(%d,%d)%s", index, table, when))
}

const haproxyProblem = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429}`

// windowOf is l as a number of requests in a sliding window: those of a bucket in the
// time in which it fills.
func (h *haproxyFile) windowOf(g *guard, l limit) (n int64, window time.Duration) {
	n = l.Burst
	switch l.Algorithm {
	case quota.TokenBucket:
	case quota.LeakyBucket:
		n++ // the one that does not wait
		h.gap(&g.Listed, "nobody waits in HAProxy: up to %d pass at once", n)
	case quota.SlidingWindow:
		n = l.Quota
	default:
		n = l.Quota
		h.gap(&g.Listed, "HAProxy counts in a sliding window, and not in a %v", l.Algorithm)
	}
	whole, part := fillTime(n, l)
	if part {
		h.gap(&g.Listed, "HAProxy counts in milliseconds: %v is %d in %v", l, n, whole)
	}
	return n, whole
}

// fillTime is the time in which l gives back n requests, in whole milliseconds but
// at least one, and whether that is less than it should be.
func fillTime(n int64, l limit) (whole time.Duration, part bool) {
	product := new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(l.Window)))
	unit := new(big.Int).Mul(big.NewInt(l.Quota), big.NewInt(int64(time.Millisecond)))
	ms, rest := product.QuoRem(product, unit, new(big.Int))
	if !ms.IsInt64() || ms.Int64() > int64(1<<63-1)/int64(time.Millisecond) {
		return 1<<63 - 1, false
	}
	return time.Duration(max(ms.Int64(), 1)) * time.Millisecond, rest.Sign() != 0 || ms.Sign() == 0
}

// counter is a counter for a window, and its table.
func (h *haproxyFile) counter(window time.Duration) (table, index int, ok bool) {
	for i := range h.tables {
		if t := &h.tables[i]; t.window == window && t.counters < haproxyCounters {
			t.counters++
			return i, t.counters - 1, true
		}
	}
	if len(h.tables) == haproxyTrackers {
		return 0, 0, false
	}
	h.tables = append(h.tables, haproxyTable{window, 1})
	return len(h.tables) - 1, 0, true
}

// waitAfter is the time, in seconds, after which one of n in a sliding window is free
// again, wherever in its window a client was denied: what counts then has been
// weighed less since the next began.
func waitAfter(n int64, window time.Duration) int64 {
	return int64((window + window/time.Duration(n) + time.Second - 1) / time.Second)
}
