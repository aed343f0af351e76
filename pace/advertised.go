package pace

import (
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

// An Advertised keeps to the limits that servers tell in their responses'
// fields, in whatever dialect ratelimit.Parse reads, of successes as well as of
// refusals. What is left of a quota is spread evenly over the time that is
// left. Nothing is delayed while more than three quarters of a quota are left,
// and while something is left nothing is refused: a request that cannot wait
// for its turn goes at once. Where several policies are told, all are kept.
//
// A request is held back by what its own route was told. Where Profiles know
// the host, the vendor's Scope says what a route is: GitHub's search has a limit
// of its own, and so has each method of Slack's. Elsewhere it is the method and
// the first two segments of the path, after api, rest and a version; numbers and
// other identifiers count as one. A new route is held back, too, by what all
// others were told, if these are eight or more. Policies are told apart by their
// names and numbers, and by X-RateLimit-Resource and X-RateLimit-Bucket.
//
// Every answer replaces what was known. A policy that an answer of the same
// route no longer tells is forgotten, and so is everything after 24 hours. If
// nothing is left for more than a minute, one request a minute goes to see
// whether that is still so.
//
// How units come back is told by package serverside (see heed-algorithm in
// package ratelimit): a token bucket is spent as it fills; of a leaky bucket
// hardly anything is spent early, since it would wait at the server; and what is
// left of a window that slides is spread over a sixteenth of it. From others, a
// policy whose units are seen to come back early is treated as one that slides.
//
// Measured with package serverside and 50 workers who want more (see the package's
// tests): nobody is refused after the first answer, and of the quota are used at
// least 97 % of token buckets, whatever their burst and a latency of up to two
// seconds, 100 % of fixed windows, leaky buckets and sliding logs, and 96 % of
// sliding windows. Where RateLimit-Policy is not sent, 80 to 100 %. With a stranger
// in the quota who does not pace itself, up to 10 % are refused by a sliding log, and
// below 1 % by the others. Two processes on one bucket have 2 % refused, and eight a
// third: they should have a Shared.
//
// A key of which nothing was told, as at the beginning, or as one whose server
// never tells anything, is not held back: all who are there go at once. Fields
// tell whole seconds, so a window of a few seconds is not used up.
//
// An Advertised is a heed.BoundedPacer. The zero Advertised is ready to use. Its
// fields must not be changed, nor the Advertised be copied, after first use. It
// may be used by any number of goroutines, and shared by Transports. Each Wait
// that returns nil must be followed by Observe, as a Transport does it.
type Advertised struct {
	// Key is whose quota it is, the same before a request and after. If nil,
	// heed.ByCredential. All requests whose key is "" share one. A key is part of
	// error messages, so it must not be a secret.
	Key func(*http.Request) string

	// Cost is how many units a request takes that are counted so: unit is ""
	// for requests, or the word in the fields' names, such as "tokens". A
	// negative cost is 0. If nil, what WithCost says; without that, every request is
	// 1 of unit "", and takes an unknown part of any other: it waits only if nothing of
	// that is left. What it did cost after all is seen in the fields. A request that takes 0
	// of every unit, such as a conditional one that GitHub does not count, is not held back.
	Cost func(req *http.Request, unit string) int64

	// Profiles say what vendors' routes are, and how they tell their quotas. The first
	// that serves a host counts, else the one of ratelimit.Vendors. They must not be
	// changed.
	Profiles []*ratelimit.Profile

	// MaxKeys is how many keys are remembered: the most recently used ones, and
	// those for which requests wait or are under way. If zero, 1,024; a negative
	// one is an error.
	MaxKeys int

	hosts  hostkey.Cache
	scopes scope.Table

	mu   sync.Mutex // guards what follows
	keys keyed.Table[advertisedKey]
}

var _ heed.BoundedPacer = (*Advertised)(nil)

// Wait blocks until req may be sent, for as long as its context allows.
func (a *Advertised) Wait(req *http.Request) error { return a.WaitAtMost(req, forever) }

// WaitAtMost blocks until req may be sent. If that is later than most from
// now, or not before the deadline of req's context, and nothing is left that it may
// have at once, it returns a *heed.OverdueError: at once, or when an answer makes the
// wait too long. If most is zero or negative, there is no wait.
func (a *Advertised) WaitAtMost(req *http.Request, most time.Duration) error {
	ctx := req.Context()
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if a.MaxKeys < 0 {
		return fmt.Errorf("pace: Advertised.MaxKeys is %d: it must not be negative", a.MaxKeys)
	}
	key := a.key(req)
	var space [128]byte
	name, known := a.scopes.AppendRoute(space[:0], req, a.hosts.Name(req.URL.Scheme, req.URL.Host), a.Profiles)
	k, r, w, err := a.join(req, key, name, known, a.costs(key, req), most)
	if w == nil {
		return err
	}
	err = w.wait(ctx, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	r.waiting--
	if err != nil {
		return err
	}
	k.depart(req, r, &w.claim, w.taken, time.Now())
	return nil
}

func (a *Advertised) join(req *http.Request, key string, name []byte, known bool, c costs, most time.Duration) (*advertisedKey, *route, *waiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys.Most = maxKeys(a.MaxKeys)
	k := a.keys.Get(hostkey.NameOf(key), (*advertisedKey).stateLocked)
	if k.mu == nil {
		k.mu, k.routes, k.policies, k.flights = &a.mu, map[string]*route{}, map[policyID]*policy{}, map[*http.Request]flight{}
	}
	now := time.Now()
	r := k.route(name, known)
	claim := claim{key: key, gates: &r.gates, costs: c, deadline: deadlineOf(req.Context(), most, now)}
	if c.none(k.units) {
		k.depart(req, r, &claim, claim.take(now), now)
		return k, r, nil, nil
	}
	w, charges, err := k.joinLocked(&claim, startTag{}, now)
	switch {
	case w != nil:
		r.waiting++
	case err == nil:
		k.depart(req, r, &claim, charges, now)
	}
	return k, r, w, err
}

// Observe learns what the response tells.
func (a *Advertised) Observe(at heed.Attempt) {
	now, req := time.Now(), at.Request
	host := a.hosts.Name(req.URL.Scheme, req.URL.Host)
	cached := at.Response != nil && ratelimit.FromCache(at.Response.Header)
	var limits []ratelimit.Limit
	limit := ""
	if at.Response != nil && !cached {
		limits, limit = a.parse(req, host, at.Response.Header, now)
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
	f, ok := k.arrive(req, name)
	for _, c := range f.charges {
		if at.Err == heed.ErrNotSent || cached {
			c.gate.giveBack(c.n, now)
		} else {
			c.gate.(*policy).underway -= c.n
		}
	}
	if ok && at.Response != nil && !cached {
		k.learn(f, limits, limit, at.Response.StatusCode, now)
	}
	k.refreshLocked(now)
}

// parse returns what a response tells, and what it calls the limit that was charged.
func (a *Advertised) parse(req *http.Request, host hostkey.Name, h http.Header, now time.Time) ([]ratelimit.Limit, string) {
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

// unlimited reports whether a response says that there is no limit, as some servers do: a
// limit of 0, of which 0 are left.
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

// costs asks, without a lock, what req takes of what is told of key.
func (a *Advertised) costs(key string, req *http.Request) (c costs) {
	a.mu.Lock()
	var units []string
	if k := a.keys.Find(hostkey.NameOf(key)); k != nil {
		units = k.units
	}
	a.mu.Unlock()
	for _, unit := range units {
		if a.Cost != nil {
			c = append(c, unitCost{unit, a.Cost(req, unit)})
		} else if n, ok := knownCost(req, unit); ok {
			c = append(c, unitCost{unit, n})
		}
	}
	return c
}

func (a *Advertised) key(req *http.Request) string {
	if a.Key != nil {
		return a.Key(req)
	}
	return heed.ByCredential(req)
}
