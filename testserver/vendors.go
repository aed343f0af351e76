package testserver

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Vendor stands in for the API of GitHub, Slack, Discord, Okta or OpenAI. Put it around a
// handler:
//
//	github := testserver.GitHub(t, testserver.VendorLimit{Name: "search", Quota: 5, Window: time.Minute})
//	srv := testserver.NewLimited(t, github.Wrap)
//	client := &http.Client{Transport: &heed.Transport{Base: srv.Transport()}}
//	resp, err := client.Get("https://api.github.com/search/issues")
//
// It has the limits that the vendor documents, refuses exactly the requests that exceed them, and
// reports them in the vendor's own fields and bodies.
//
// Vendors do not follow all server clauses of the contract. So check only the client's, with
// contract.Check(srv.Log(), contract.Client()...), and not with Server.Check.
//
// Each credential has its own quota, except with Okta: the Authorization field, or the address if
// there is none. A window begins with the first request after the last window, and ends when the
// fields say so. A refused request is charged to no limit. A Vendor is safe for concurrent use.
type Vendor struct {
	judge       func(*Vendor, *http.Request, http.Header, time.Time) *refusal
	limits      map[string]VendorLimit // by name; "" is the limit of all other names
	routes      *http.ServeMux         // the Routes of Discord's limits
	bucketNames map[string]string      // by pattern of routes

	mu     sync.Mutex                // guards the fields below
	meters map[[2]string]*quotaMeter // by limit and customer
	counts map[string]VendorCount
}

// A VendorLimit replaces the Vendor's default limit with the same Name.
type VendorLimit struct {
	// Name is one of those that the Vendor's function lists. If that allows any name, "" is for all
	// limits without a VendorLimit of their own.
	Name string

	// Quota is how many requests, points or tokens a Window has. It must be positive.
	Quota int

	// Window is the length of a window or, if units come back one by one, the time until all are
	// back. It must be positive.
	Window time.Duration

	// Routes are the routes that share one of Discord's buckets, as patterns of http.ServeMux.
	// Other limits must have none.
	Routes []string
}

// A VendorCount counts the requests that met a limit.
type VendorCount struct{ Admitted, Refused int }

// Counts returns, by the limit's name, how many requests each limit has admitted and refused so
// far, for all credentials together.
func (v *Vendor) Counts() map[string]VendorCount {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.counts)
}

// Wrap is a middleware that limits next. All handlers that one Vendor wraps count together.
func (v *Vendor) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		refusal := v.judge(v, r, w.Header(), time.Now())
		v.mu.Unlock()
		if refusal == nil {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(refusal.status)
		_ = json.NewEncoder(w).Encode(refusal.body) // an error here means that the client is gone
	})
}

// A refusal is the response to a request that exceeds a limit.
type refusal struct {
	status int
	body   any
}

// object is a JSON object.
type object = map[string]any

// GitHub returns a stand-in for api.github.com. Its limits are named as the resources: core (5000
// an hour), search (30 a minute), code_search (10 a minute) and graphql (5000 an hour). Each is
// reported in X-RateLimit-Limit, -Remaining, -Used, -Reset and -Resource. The limit "secondary"
// (900 points a minute) is in no field: a GET, HEAD or OPTIONS and any request to GraphQL cost 1
// point, others 5.
//
// A request beyond a resource's limit gets a 403, or from GraphQL a 200. One beyond the secondary
// limit gets a 403 with Retry-After: the rest of its minute.
//
// Source: docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api, and
// docs.github.com/en/rest/rate-limit.
func GitHub(t testing.TB, limits ...VendorLimit) *Vendor {
	t.Helper()
	return newVendor(t, "GitHub", (*Vendor).github, limits, false,
		VendorLimit{Name: "core", Quota: 5000, Window: time.Hour},
		VendorLimit{Name: "search", Quota: 30, Window: time.Minute},
		VendorLimit{Name: "code_search", Quota: 10, Window: time.Minute},
		VendorLimit{Name: "graphql", Quota: 5000, Window: time.Hour},
		VendorLimit{Name: "secondary", Quota: 900, Window: time.Minute})
}

func (v *Vendor) github(r *http.Request, h http.Header, now time.Time) *refusal {
	name, points := "core", 5
	switch path := r.URL.Path; {
	case path == "/search/code":
		name = "code_search"
	case strings.HasPrefix(path, "/search/"):
		name = "search"
	case path == "/graphql":
		name, points = "graphql", 1
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		points = 1
	}
	primary, secondary := v.meter(name, customer(r), time.Second, now),
		v.meter("secondary", customer(r), time.Second, now)
	full := v.tryCharge(now, charge{primary, 1}, charge{secondary, points})
	h.Set("X-RateLimit-Limit", strconv.Itoa(primary.Quota))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(primary.remaining(now)))
	h.Set("X-RateLimit-Used", strconv.Itoa(primary.used))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(primary.end.Unix(), 10))
	h.Set("X-RateLimit-Resource", name)
	switch {
	case full == nil:
		return nil
	case full == secondary:
		h.Set("Retry-After", seconds(secondary.end.Sub(now)))
		return &refusal{403, object{"message": "You have exceeded a secondary rate limit.",
			"documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api" +
				"#about-secondary-rate-limits"}}
	case name == "graphql":
		return &refusal{200, object{"errors": []object{{"type": "RATE_LIMITED", "message": "API rate limit exceeded."}}}}
	}
	return &refusal{403, object{"message": "API rate limit exceeded.",
		"documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}}
}

// Slack returns a stand-in for Slack's Web API. Each method has its own limit, named as the method:
// one a second for chat.postMessage, and 50 a minute (tier 3) for methods without a VendorLimit. A
// request beyond it gets a 429 with Retry-After. No field says what is left.
//
// Source: docs.slack.dev/apis/web-api/rate-limits.
func Slack(t testing.TB, limits ...VendorLimit) *Vendor {
	t.Helper()
	return newVendor(t, "Slack", (*Vendor).slack, limits, true,
		VendorLimit{Quota: 50, Window: time.Minute},
		VendorLimit{Name: "chat.postMessage", Quota: 1, Window: time.Second})
}

func (v *Vendor) slack(r *http.Request, h http.Header, now time.Time) *refusal {
	method := v.meter(strings.TrimPrefix(r.URL.Path, "/api/"), customer(r), time.Second, now)
	if v.tryCharge(now, charge{method, 1}) == nil {
		return nil
	}
	h.Set("Retry-After", seconds(method.end.Sub(now)))
	return &refusal{429, object{"ok": false, "error": "ratelimited"}}
}

// Discord returns a stand-in for Discord's API. A limit is a bucket, which several routes may
// share, and is named as in X-RateLimit-Bucket. Each channel, guild and webhook has its own bucket
// of that name. A route without a VendorLimit has a bucket of 5 requests in 5 seconds.
// X-RateLimit-Limit, -Remaining, -Reset and -Reset-After report it. A request beyond it gets a 429
// with Retry-After in whole seconds, and the exact retry_after in the body.
//
// The limit "global" (50 a second) covers all requests. Its 429 has X-RateLimit-Global and no
// bucket.
//
// Source: docs.discord.com/developers/topics/rate-limits, which has no numbers for buckets.
func Discord(t testing.TB, limits ...VendorLimit) *Vendor {
	t.Helper()
	return newVendor(t, "Discord", (*Vendor).discord, limits, true,
		VendorLimit{Quota: 5, Window: 5 * time.Second},
		VendorLimit{Name: "global", Quota: 50, Window: time.Second})
}

func (v *Vendor) discord(r *http.Request, h http.Header, now time.Time) *refusal {
	name := v.bucketNames[v.pattern(r)]
	if name == "" {
		sum := sha256.Sum256([]byte(r.Method + " " + withoutIdentifiers(r.URL.Path)))
		name = hex.EncodeToString(sum[:16])
	}
	global := v.meter("global", customer(r), time.Millisecond, now)
	bucket := v.meter(name, customer(r)+" "+resource(r.URL.Path), time.Millisecond, now)
	full := v.tryCharge(now, charge{global, 1}, charge{bucket, 1})
	if full == global {
		h.Set("X-RateLimit-Global", "true")
		h.Set("X-RateLimit-Scope", "global")
		return discordRefusal(h, global.end.Sub(now), true)
	}
	left := bucket.end.Sub(now)
	h.Set("X-RateLimit-Limit", strconv.Itoa(bucket.Quota))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(bucket.remaining(now)))
	h.Set("X-RateLimit-Reset", fmt.Sprintf("%d.%03d", bucket.end.Unix(), bucket.end.Nanosecond()/int(time.Millisecond)))
	h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", roundUp(left, time.Millisecond).Seconds()))
	h.Set("X-RateLimit-Bucket", name)
	if full == nil {
		return nil
	}
	h.Set("X-RateLimit-Scope", "user")
	return discordRefusal(h, left, false)
}

func discordRefusal(h http.Header, wait time.Duration, global bool) *refusal {
	h.Set("Retry-After", seconds(wait))
	return &refusal{429, object{"message": "You are being rate limited.",
		"retry_after": roundUp(wait, time.Millisecond).Seconds(), "global": global}}
}

// resource returns the top-level resource of a path, which has limits of its own.
func resource(path string) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for len(segments) > 0 && (segments[0] == "api" || isVersion(segments[0])) {
		segments = segments[1:]
	}
	kept := 0
	switch segments = append(segments, ""); segments[0] {
	case "channels", "guilds":
		kept = 2
	case "webhooks":
		kept = 3
	}
	return strings.Join(segments[:min(kept, len(segments))], "/")
}

// Okta returns a stand-in for the API of an Okta organization. Each endpoint has its own limit, for
// all credentials together. It is named by method and path, with * for each identifier, such as
// "GET /api/v1/users/*". Without a VendorLimit it is 600 a minute. X-Rate-Limit-Limit, -Remaining
// and -Reset report it. A request beyond it gets a 429, whose only hint is the reset.
//
// Source: developer.okta.com/docs/reference/rl-best-practices, and rl-global-mgmt, whose numbers
// differ by plan.
func Okta(t testing.TB, limits ...VendorLimit) *Vendor {
	t.Helper()
	return newVendor(t, "Okta", (*Vendor).okta, limits, true, VendorLimit{Quota: 600, Window: time.Minute})
}

func (v *Vendor) okta(r *http.Request, h http.Header, now time.Time) *refusal {
	endpoint := v.meter(r.Method+" "+withoutIdentifiers(r.URL.Path), r.Host, time.Second, now)
	full := v.tryCharge(now, charge{endpoint, 1})
	h.Set("X-Rate-Limit-Limit", strconv.Itoa(endpoint.Quota))
	h.Set("X-Rate-Limit-Remaining", strconv.Itoa(endpoint.remaining(now)))
	h.Set("X-Rate-Limit-Reset", strconv.FormatInt(endpoint.end.Unix(), 10))
	if full == nil {
		return nil
	}
	return &refusal{429,
		object{"errorCode": "E0000047", "errorSummary": "API call exceeded rate limit due to too many requests."}}
}

// OpenAI returns a stand-in for api.openai.com. Its limits are "requests" (500 a minute) and
// "tokens" (30,000 a minute), whose units come back one by one. A request takes as many tokens as
// max_tokens in its body says, or a quarter of the body's bytes if that is more.
// X-RateLimit-Limit-Requests, -Limit-Tokens and the same with Remaining and Reset report both;
// Reset is the time until all units are back, such as 6m0s. A request beyond a limit gets a 429
// with Retry-After-Ms and Retry-After, but without them if it needs more tokens than the limit ever
// has.
//
// Source: platform.openai.com/docs/guides/rate-limits; the numbers are those of one organization of
// the first tier.
func OpenAI(t testing.TB, limits ...VendorLimit) *Vendor {
	t.Helper()
	return newVendor(t, "OpenAI", (*Vendor).openai, limits, false,
		VendorLimit{Name: "requests", Quota: 500, Window: time.Minute},
		VendorLimit{Name: "tokens", Quota: 30_000, Window: time.Minute})
}

func (v *Vendor) openai(r *http.Request, h http.Header, now time.Time) *refusal {
	requests, tokens := v.meter("requests", customer(r), 0, now), v.meter("tokens", customer(r), 0, now)
	needed := tokensOf(r)
	full := v.tryCharge(now, charge{requests, 1}, charge{tokens, needed})
	for unit, m := range map[string]*quotaMeter{"Requests": requests, "Tokens": tokens} {
		h.Set("X-RateLimit-Limit-"+unit, strconv.Itoa(m.Quota))
		h.Set("X-RateLimit-Remaining-"+unit, strconv.Itoa(m.remaining(now)))
		h.Set("X-RateLimit-Reset-"+unit, roundUp(m.full.Sub(now), time.Millisecond).String())
	}
	if full == nil {
		return nil
	}
	asked := 1
	if full == tokens {
		asked = needed
	}
	if asked <= full.Quota {
		wait := full.wait(asked, now)
		h.Set("Retry-After-Ms", strconv.FormatInt(int64(roundUp(wait, time.Millisecond)/time.Millisecond), 10))
		h.Set("Retry-After", seconds(wait))
	}
	return &refusal{429, object{"error": object{"message": "Rate limit reached.", "type": full.Name, "param": nil,
		"code": "rate_limit_exceeded"}}}
}

// tokensOf estimates how many tokens a request takes. The next handler can still read the whole
// body.
func tokensOf(r *http.Request) int {
	body, _ := io.ReadAll(r.Body) // the next handler gets the same error
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	var asked struct {
		MaxTokens int `json:"max_tokens"`
	}
	_ = json.Unmarshal(body, &asked) // without JSON only the size counts
	return max(asked.MaxTokens, (len(body)+3)/4)
}

// newVendor returns a Vendor with the given limits instead of the defaults. any allows names that
// the defaults do not have.
func newVendor(t testing.TB, name string, judge func(*Vendor, *http.Request, http.Header, time.Time) *refusal,
	limits []VendorLimit, any bool, defaults ...VendorLimit) *Vendor {
	t.Helper()
	v := &Vendor{
		judge: judge, limits: make(map[string]VendorLimit), routes: http.NewServeMux(), bucketNames: make(map[string]string),
		meters: make(map[[2]string]*quotaMeter), counts: make(map[string]VendorCount),
	}
	for _, l := range defaults {
		v.limits[l.Name] = l
	}
	for _, l := range limits {
		_, known := v.limits[l.Name]
		switch {
		case !known && !any:
			t.Fatalf("testserver: %s has no limit named %q, only %q", name, l.Name, slices.Sorted(maps.Keys(v.limits)))
		case l.Quota <= 0:
			t.Fatalf("testserver: %s: Quota of limit %q is %d, must be positive", name, l.Name, l.Quota)
		case l.Window <= 0:
			t.Fatalf("testserver: %s: Window of limit %q is %v, must be positive", name, l.Name, l.Window)
		case len(l.Routes) > 0 && (name != "Discord" || l.Name == "" || l.Name == "global"):
			t.Fatalf("testserver: %s: limit %q must have no Routes", name, l.Name)
		}
		v.limits[l.Name] = l
		v.route(t, name, l)
	}
	return v
}

func (v *Vendor) route(t testing.TB, name string, l VendorLimit) {
	t.Helper()
	defer func() {
		if fault := recover(); fault != nil {
			t.Fatalf("testserver: %s: Routes of limit %q: %v", name, l.Name, fault)
		}
	}()
	for _, pattern := range l.Routes {
		v.routes.Handle(pattern, http.NotFoundHandler())
		v.bucketNames[pattern] = l.Name
	}
}

func (v *Vendor) pattern(r *http.Request) string {
	_, pattern := v.routes.Handler(r)
	return pattern
}

// customer returns the customer to whose quota a request is charged.
func customer(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return cmp.Or(r.Header.Get("Authorization"), host)
}

// withoutIdentifiers returns path with * for each segment that is an identifier.
func withoutIdentifiers(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if strings.ContainsAny(s, "0123456789@") && !isVersion(s) {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// isVersion reports whether a segment is a version such as v10.
func isVersion(segment string) bool {
	number, found := strings.CutPrefix(segment, "v")
	_, err := strconv.Atoi(number)
	return found && err == nil
}
