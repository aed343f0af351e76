package profiles

import (
	"net/http"
	"path"
	"strings"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// Options are what a profile needs from the program:
//
//	profiles.Forge(profiles.Options{
//		Store:   store,
//		Proxies: serverside.Proxies{Trusted: proxies},
//		Tenant:  serverside.KeyFunc(tenantOf), // from the request's context
//	})
//
// The zero Options are for one process without a proxy, which identifies clients by header
// fields.
//
// All Keys except Account are read behind authentication, and should return what it has put
// into the request's context, or "". Do not use a token that was not checked: a client that
// makes up tokens gets a fresh quota for each.
type Options struct {
	// Store is serverside.Config.Store. If nil, this process counts.
	Store quota.Store

	// Proxies are the trusted proxies. If zero, the client is the peer. The profile's function
	// panics if Fields contains an invalid name.
	Proxies serverside.Proxies

	// Account is the account of a login request. If nil, the value user of a form or JSON
	// object. A login without an account is answered 400. Used by Forge, Universal and API.
	Account serverside.Key

	// Tenant is the customer, whose tokens share one quota. If nil, each token has its own.
	// Used by Forge.
	Tenant serverside.Key

	// Token identifies the credential. If nil, a hash of Authorization. Used by Forge.
	Token serverside.Key

	// APIKey identifies a service. If nil, a hash of X-Api-Key. Used by Forja and Patterns.
	APIKey serverside.Key

	// User is the id of the authenticated user. If nil, a hash of Authorization. Used by
	// Universal, API and Patterns.
	User serverside.Key

	// Tier returns the plan of a request: free, pro or enterprise. Any other value means free.
	// If nil, there are no plans. Used by Universal and Patterns.
	Tier func(*http.Request) string

	// Limits has the limits of single API keys. A key without limits is limited only by its
	// address. Used by Forja.
	Limits serverside.Limits

	// Trusted reports whether a request gets the limit for trusted clients instead of all
	// rules, such as your own monitoring. serverside.Peers and serverside.KeyIs return such
	// functions. Each trusted request is reported to Audit. If nil, no request is trusted.
	Trusted func(*http.Request) bool

	// Audit and Observe are as in serverside.Config.
	Audit   func(serverside.Event)
	Observe func(serverside.Observation)
}

// Env returns the Env for the rule files of this package: o's functions, Store, Audit and
// Observe. It does not contain Proxies, which a file sets itself.
func (o Options) Env() rulefile.Env {
	account := or(o.Account, serverside.FormValue("user"))
	token := or(o.Token, serverside.Header("Authorization"))
	if o.Tenant != nil {
		token = serverside.First(o.Tenant, token)
	}
	apiKey := or(o.APIKey, serverside.Header("X-Api-Key"))
	user := or(o.User, serverside.Header("Authorization"))
	has := func(key serverside.Key) func(*http.Request) bool {
		return func(r *http.Request) bool { return key.Of(r) != "" }
	}
	env := rulefile.Env{
		Config: serverside.Config{Store: o.Store, Audit: o.Audit, Observe: o.Observe},
		Keys: map[string]serverside.Key{
			"account": account, "token": token, "api_key": apiKey, "user": user,
			"endpoint": serverside.KeyFunc(endpoint),
		},
		Matches: map[string]func(*http.Request) bool{
			"trusted": o.Trusted, "writing": writing,
			"has_token": has(token), "no_token": not(has(token)),
			"has_user": has(user), "no_user": not(has(user)),
			"no_user_writing": func(r *http.Request) bool { return writing(r) && user.Of(r) == "" },
			"has_api_key":     has(apiKey),
			"anonymous":       func(r *http.Request) bool { return user.Of(r) == "" && apiKey.Of(r) == "" },
		},
		Tiers:  map[string]func(*http.Request) string{"tier": o.Tier},
		Limits: map[string]serverside.Limits{"api_keys": keyTable{o.Limits}},
	}
	if o.Trusted == nil {
		env.Matches["trusted"] = func(*http.Request) bool { return false }
	}
	if o.Tier == nil {
		env.Tiers["tier"] = func(*http.Request) string { return "" }
	}
	return env
}

func or(key, otherwise serverside.Key) serverside.Key {
	if key == nil {
		return otherwise
	}
	return key
}

func not(is func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool { return !is(r) }
}

// writing reports whether r may change something.
func writing(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}

// endpoint returns the endpoint of a webhook in one spelling: the first segment of the path
// after /webhooks, with its slash.
func endpoint(r *http.Request) string {
	rest := strings.TrimPrefix(strings.ToLower(path.Clean("/"+r.URL.Path)), "/webhooks")
	name, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return "/" + name
}
