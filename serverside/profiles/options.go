package profiles

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// Options are what a profile cannot know. The zero Options are for one process with no
// proxy in front of it, whose clients are told apart by what they send once somebody
// behind WrapEarly has checked it.
//
// The KeyFuncs, but Account, are asked behind authentication, and may read what that
// has put into the request's context. "" means that a request has none. Where nothing
// is authenticated, let them return that: a token that nobody has checked is the
// client's to make up, and each one it makes up is a fresh quota.
type Options struct {
	// Store counts, as serverside.Config.Store. If nil, this process does.
	Store quota.Store

	// Proxies are those in front, whose word on the client's address is taken. The
	// zero Proxies are none: then it is the peer's.
	Proxies serverside.Proxies

	// Account is whom a login is for, which clients say. If nil, the value "user" of
	// the form. Forge asks it.
	Account serverside.Key

	// Tenant is who pays: all tokens of one are one client, so that to make more of
	// them is of no use. If nil, nobody is known to be of a tenant. Forge asks it.
	Tenant serverside.Key

	// Token is what a request is authenticated by. If nil, the hash of Authorization.
	// Forge asks it.
	Token serverside.Key

	// APIKey is the key of a service. If nil, the hash of X-Api-Key. Forja and Patterns
	// ask it.
	APIKey serverside.Key

	// User is the id of who is authenticated. If nil, the hash of Authorization.
	// Universal, API and Patterns ask it.
	User serverside.Key

	// Tier, if not nil, names the plan of a request, which is free, pro or enterprise:
	// then those have limits of their own in Universal and Patterns. Any other is free.
	Tier func(*http.Request) string

	// Limits, if not nil, knows limits of single API keys, by what APIKey returns, for
	// Forja. A key that it does not know is limited by its address alone.
	Limits serverside.Limits

	// Trusted, if not nil, says whom more is admitted of, 6,000 a minute in place of all
	// rules, such as one's own monitoring: serverside.Peers and serverside.KeyIs are
	// such functions. Nobody is trusted without a limit, and Audit is told of each.
	Trusted func(*http.Request) bool

	// Audit and Observe are told what happens, as in serverside.Config.
	Audit   func(serverside.Event)
	Observe func(serverside.Observation)
}

// config is what all profiles have in common.
func (o Options) config(style ratelimit.Style) serverside.Config {
	return serverside.Config{
		Store: o.Store, Audit: o.Audit, Observe: o.Observe, Style: style,
		Key:    serverside.Named("ip", o.ip()),
		Exempt: []string{"GET /health"},
		Allow: []serverside.Allow{{
			Name: "trusted", Match: o.trusted(), Policies: []quota.Policy{quota.PerMinute(6000)},
		}},
	}
}

func (o Options) ip() serverside.Key { return o.Proxies.ClientIP() }

func (o Options) account() serverside.Key { return or(o.Account, serverside.FormValue("user")) }
func (o Options) apiKey() serverside.Key  { return or(o.APIKey, serverside.Header("X-Api-Key")) }
func (o Options) user() serverside.Key    { return or(o.User, serverside.Header("Authorization")) }

// token is the tenant whose token it is, or else the token.
func (o Options) token() serverside.Key {
	token := or(o.Token, serverside.Header("Authorization"))
	if o.Tenant == nil {
		return token
	}
	return serverside.First(o.Tenant, token)
}

func (o Options) trusted() func(*http.Request) bool {
	if o.Trusted == nil {
		return func(*http.Request) bool { return false }
	}
	return o.Trusted
}

func (o Options) tier() func(*http.Request) string {
	if o.Tier == nil {
		return func(*http.Request) string { return "" }
	}
	return o.Tier
}

func or(key, otherwise serverside.Key) serverside.Key {
	if key == nil {
		return otherwise
	}
	return key
}

// has reports whether a request has a key, and lacks whether it has none.
func has(key serverside.Key) func(*http.Request) bool {
	return func(r *http.Request) bool { return key.Of(r) != "" }
}

func lacks(key serverside.Key) func(*http.Request) bool {
	return func(r *http.Request) bool { return key.Of(r) == "" }
}

// writing reports whether r is anything but a read.
func writing(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}

func both(a, b func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool { return a(r) && b(r) }
}

// per is n in a window, all of which may be spent at once.
func per(n int64, window time.Duration) []quota.Policy {
	return []quota.Policy{{Quota: n, Window: window}}
}

// exactly is never more than n in any window.
func exactly(n int64, window time.Duration) []quota.Policy {
	return []quota.Policy{{Quota: n, Window: window, Algorithm: quota.SlidingLog}}
}

// about is n in a window that slides, which needs no more than three numbers.
func about(n int64, window time.Duration) []quota.Policy {
	return []quota.Policy{{Quota: n, Window: window, Algorithm: quota.SlidingWindow}}
}

// A keyTable has the limits of API keys by fixed windows, as Forja counts, and those
// of no one else.
type keyTable struct{ known serverside.Limits }

// Limits implements serverside.Limits, for keys Named "key".
func (t keyTable) Limits(ctx context.Context, named string) ([]quota.Policy, error) {
	key, isKey := strings.CutPrefix(named, "key:")
	if t.known == nil || !isKey {
		return unlimited, nil
	}
	policies, err := t.known.Limits(ctx, key)
	if err == nil && len(policies) == 0 {
		return unlimited, nil
	}
	return fixed(policies...), err
}

// unlimited is that no window is enforced.
var unlimited = serverside.KeyLimits{}.Policies()

// Validate says what is wrong with the table, if it can.
func (t keyTable) Validate() error {
	if v, ok := t.known.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}
