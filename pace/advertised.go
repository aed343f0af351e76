package pace

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/keyed"
	"github.com/heedhttp/heed/internal/scope"
	"github.com/heedhttp/heed/ratelimit"
)

// An Advertised follows the limits that servers announce in their responses, in any
// dialect that ratelimit.Parse reads. It spreads what is left of a quota evenly over the
// time until the quota is renewed.
//
//	transport := &heed.Transport{Pacer: &pace.Advertised{}} // the zero value is ready
//
// It delays nothing while more than three quarters of a quota are left, except for a
// leaky bucket (see below). While something is left it refuses nothing: a request that
// cannot wait goes at once. If several policies are announced, it keeps all of them. A
// key without an announced limit is not delayed, once it has answered: before the first
// answer, one request goes at once, one more after a second, two after two, three after
// three, and so on. The others wait for that answer.
//
// What a request costs in another unit than requests, such as tokens, is learnt for each
// route from what successive answers say is left: about nine in ten cost no more. Where a
// vendor's Profile has MaxTokens, a request costs no more than its body says. So README's
// recipe for a vendor needs no code for tokens. Callers may know better: see Cost.
//
// A limit holds for a route. For a host with a Profile, the vendor's Scope defines
// routes: GitHub's search has its own limit, and so has each method of Slack's API. For
// other hosts a route is the method and the first two segments of the path, not counting
// "api", "rest" and a version at its beginning; numbers and other identifiers count as
// one. Once eight routes are known, a new one of such a host starts with the policies that
// all of them have in common. Policies are distinguished by name and numbers, and by
// X-RateLimit-Resource and X-RateLimit-Bucket.
//
// Each answer replaces what was known. A policy that an answer no longer announces is
// forgotten for that route, and everything is forgotten after 24 hours. If nothing is
// left for more than a minute, one request a minute probes whether that still holds.
//
// Where a vendor documents a limit that no response announces, it keeps that, too: of GitHub's 80 writes a
// minute, 20 go at once, and then one a second.
//
// The server of package serverside announces how units come back, in heed-algorithm of
// package ratelimit. A token bucket is used as it fills. A leaky bucket would delay early
// requests at the server, so hardly anything is sent early. What is left of a sliding
// window is spread over a sixteenth of the window. With other servers, a policy is treated
// as a bucket if its reset grows with what is missing, as OpenAI's does, and as a sliding
// window if its units come back early.
//
// The package's tests measure it with package serverside and 50 workers that want more
// than the quota. Nothing is refused after the first answer. It uses at least 97 % of
// token buckets, with any burst and a latency of up to two seconds; 100 % of fixed
// windows, leaky buckets and sliding logs; and 96 % of sliding windows. Without
// RateLimit-Policy it uses 80 to 100 %. If another client uses the same quota without
// pacing, a sliding log refuses 3 % in the first five minutes, and 8 to 11 % of ten minutes
// or more; the others refuse below 1 %. Of two processes on one bucket, 2 % are refused,
// and of eight, a third: use a Shared for them. Of 200 jobs of 40 workers at a server of
// 30,000 tokens a minute, where each takes 1,500 tokens and five seconds, 3 are refused at
// most. They take 1 % longer than the shortest time if the server has a bucket, a third
// longer if it has a fixed window, and half as long again with a sliding window.
// Fields announce whole seconds, so a window of a few seconds is not fully used.
//
// An Advertised is a heed.BoundedPacer. Do not change its fields or copy it after first
// use. Goroutines and Transports may share it. Call Observe after each Wait that returns
// nil, as a Transport does.
type Advertised struct {
	// Key returns what a quota applies to. It must return the same before and after the
	// request. If nil, heed.ByCredential. All requests with the key "" share a quota.
	// Error messages contain keys, so a key must not be a secret.
	Key func(*http.Request) string

	// Cost returns how many units a request uses of a quota that is counted in unit: ""
	// for requests, or the word in the field names, such as "tokens". A negative cost is
	// 0. If nil, it is what WithCost says. Without that, a request costs 1 of unit "", and
	// of any other unit what was learnt; before that, it waits only if nothing is left.
	// What was learnt refuses no request while anything is left. A request that costs 0 of
	// every unit is not delayed, such as a conditional request that GitHub does not count.
	Cost func(req *http.Request, unit string) int64

	// Profiles define vendors' routes and how they announce quotas. The first for a host
	// counts; without one, that of ratelimit.Vendors. Do not change them.
	Profiles []*ratelimit.Profile

	// MaxKeys is the number of keys to remember: the most recently used ones, and those
	// with requests waiting or in flight. If zero, 1,024; a negative one is an error.
	MaxKeys int

	hosts      hostkey.Cache
	scopes     scope.Table
	documented documentedLimits

	mu   sync.Mutex // guards keys
	keys keyed.Table[advertisedKey]
}

var _ heed.BoundedPacer = (*Advertised)(nil)

// Wait blocks until req may be sent, for as long as its context allows.
func (a *Advertised) Wait(req *http.Request) error { return a.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. It returns a *heed.OverdueError if that takes
// longer than most or reaches the deadline of req's context, and nothing is left for req
// to take early: at once, or when an answer makes the wait too long. If most is zero or
// negative, it does not wait.
func (a *Advertised) WaitAtMost(req *http.Request, most time.Duration) error {
	if ctx := req.Context(); ctx.Err() != nil {
		return ended(ctx)
	}
	if a.MaxKeys < 0 {
		return fmt.Errorf("pace: Advertised.MaxKeys is %d: it must not be negative", a.MaxKeys)
	}
	pacers := a.documentedFor(req)
	if pacers == nil {
		return a.waitAnnounced(req, most)
	}
	start := time.Now()
	if err := a.documented.wait(pacers, req, most); err != nil {
		return err
	}
	err := a.waitAnnounced(req, most-time.Since(start))
	if err != nil {
		a.documented.observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
	}
	return err
}

func (a *Advertised) documentedFor(req *http.Request) each {
	return a.documented.covering(a.scopes.Profile(a.hosts.Name(req.URL.Scheme, req.URL.Host), a.Profiles), req, a)
}

// waitAnnounced waits for the limits that responses announce.
func (a *Advertised) waitAnnounced(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	key, d := a.key(req), deadlineOf(ctx, most, time.Now())
	units, err := a.enter(ctx, key, d)
	if err != nil {
		return err
	}
	var space [128]byte
	name, known := a.scopes.AppendRoute(space[:0], req, a.hosts.Name(req.URL.Scheme, req.URL.Host), a.Profiles)
	k, r, w, err := a.join(req, key, name, known, a.costs(req, units), d)
	if w == nil {
		return err
	}
	err = w.wait(ctx, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	r.waiting--
	if err != nil {
		k.first.leave()
		return err
	}
	k.markSent(req, r, &w.claim, w.taken, time.Now())
	return nil
}

// behind knows only the wait of the first in line: those ahead may cost anything, and more
// than expected may be left when the quota is renewed.
func (a *Advertised) behind(l *limit, _ int64, now time.Time) (longest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.keys.Find(hostkey.NameOf(l.key))
	if k == nil || k.routes[l.route] == nil || k.routes[l.route].waiting == 0 {
		return 0
	}
	for _, g := range k.routes[l.route].gates {
		longest = max(longest, g.(*policy).least(now))
	}
	return longest
}

// enter waits for the first answer of key, if there was none yet. It returns the units in
// which its policies count, as far as they are known.
func (a *Advertised) enter(ctx context.Context, key string, d deadline) (units []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.getLocked(key)
	if wait := k.first.enter(); wait > 0 && d.allows(wait, time.Now()) {
		a.mu.Unlock()
		err = k.first.wait(ctx, wait)
		a.mu.Lock()
		if err != nil {
			k.first.leave()
		}
	}
	return k.units, err
}

func (a *Advertised) getLocked(key string) *advertisedKey {
	a.keys.Most = maxKeys(a.MaxKeys)
	k := a.keys.Get(hostkey.NameOf(key), (*advertisedKey).stateLocked)
	if k.mu == nil {
		k.mu, k.routes, k.policies = &a.mu, map[string]*route{}, map[policyID]*policy{}
		k.flights = map[*http.Request]flight{}
	}
	return k
}

func (a *Advertised) join(
	req *http.Request, key string, name []byte, known bool, c costs, d deadline,
) (*advertisedKey, *route, *waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, now := a.getLocked(key), time.Now()
	r := k.route(name, known)
	r.addEstimates(c)
	claim := claim{key: key, gates: &r.gates, costs: c, deadline: d}
	if c.none(k.units) {
		k.markSent(req, r, &claim, claim.take(now), now)
		return k, r, nil, nil
	}
	w, charges, err := k.joinLocked(&claim, startTag{}, now)
	switch {
	case w != nil:
		r.waiting++
	case err == nil:
		k.markSent(req, r, &claim, charges, now)
	default:
		k.first.leave()
	}
	return k, r, w, err
}

// Observe learns from a response.
func (a *Advertised) Observe(at heed.Attempt) {
	a.documented.observe(at)
	now, req := time.Now(), at.Request
	host := a.hosts.Name(req.URL.Scheme, req.URL.Host)
	cached := at.Response != nil && ratelimit.FromCache(at.Response.Header)
	var limits []ratelimit.Limit
	limit, status := "", 0
	if at.Response != nil && !cached {
		limits, limit = a.parse(req, host, at.Response.Header, now)
		if status = at.Response.StatusCode; at.Meaning() == ratelimit.Limited {
			status = http.StatusTooManyRequests // also if it is a 200
		}
	}
	key := hostkey.NameOf(a.key(req))
	var space [128]byte
	name, _ := a.scopes.AppendRoute(space[:0], req, host, a.Profiles)
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.keys.Find(key)
	if k == nil {
		return // forgotten meanwhile
	}
	f, ok := k.markDone(req, name)
	if ok && status != 0 && status != http.StatusTooManyRequests {
		k.first.answer()
	} else {
		k.first.leave()
	}
	for _, c := range f.charges {
		if at.Err == heed.ErrNotSent || cached {
			c.gate.giveBack(c.n, now)
		} else {
			c.gate.(*policy).underway -= c.n
		}
	}
	if ok && status != 0 {
		k.learn(f, limits, limit, status, now)
	}
	k.refreshLocked(now)
}

// parse returns the limits that a response announces, and the vendor's name for the limit
// that it charged.
func (a *Advertised) parse(
	req *http.Request, host hostkey.Name, h http.Header, now time.Time,
) ([]ratelimit.Limit, string) {
	var limits []ratelimit.Limit
	if p := a.scopes.Profile(host, a.Profiles); p != nil {
		limits = p.Parse(h, now)
	} else {
		limits = ratelimit.Parse(h, now)
	}
	if len(limits) == 0 || len(limits) == 1 && unlimited(h, &limits[0]) {
		return nil, ""
	}
	return limits, a.scopes.LimitOf(req, host, h, a.Profiles)
}

// unlimited reports whether a response says that there is no limit, as some servers do
// with a limit of 0 and a remainder of 0.
func unlimited(h http.Header, l *ratelimit.Limit) bool {
	if l.Quota != 0 || l.Remaining != 0 {
		return false
	}
	for _, name := range [...]string{"Ratelimit-Limit", "X-Ratelimit-Limit", "X-Rate-Limit-Limit"} {
		if values := h[name]; len(values) > 0 && strings.TrimSpace(values[0]) == "0" {
			return true
		}
	}
	return false
}

// costs returns what req costs in units. It calls Cost, so it must not have the lock.
func (a *Advertised) costs(req *http.Request, units []string) (c costs) {
	for _, unit := range units {
		if a.Cost != nil {
			c = append(c, unitCost{unit: unit, n: a.Cost(req, unit)})
		} else if n, ok := knownCost(req, unit); ok {
			c = append(c, unitCost{unit: unit, n: n})
		} else if unit != "" {
			c = append(c, unitCost{unit: unit, n: a.most(req, unit), estimated: true})
		}
	}
	return c
}

// most returns the highest cost of req in unit as far as the host's Profile says, or 0.
func (a *Advertised) most(req *http.Request, unit string) int64 {
	p := a.scopes.Profile(a.hosts.Name(req.URL.Scheme, req.URL.Host), a.Profiles)
	if unit != "tokens" || p == nil {
		return 0
	}
	return p.MostTokens(req)
}

func (a *Advertised) key(req *http.Request) string {
	if a.Key != nil {
		return a.Key(req)
	}
	return heed.ByCredential(req)
}
