package profiles

import (
	"net/http"
	"path"
	"strings"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// Options are what a profile cannot know. The zero Options are for one process without a
// proxy in front of it, whose clients are told apart by the header fields that they send.
//
// The Keys, but Account, are asked after authentication, and may read what it has put into
// the request's context. They return "" if a request has none. A token that nobody has
// checked is no key: clients can make up any number of them, and each would have a fresh
// quota.
type Options struct {
	// Store counts, as serverside.Config.Store. If nil, this process counts.
	Store quota.Store

	// Proxies are trusted to say who the client is. If zero, none are, and the client is the
	// peer. A name in Fields that cannot be that of a header field is a panic.
	Proxies serverside.Proxies

	// Account is the account that a login is for, as clients say it. If nil, the value user
	// of a form or of a JSON object. Forge, Universal and API use it; a POST to the login
	// path that names no account is answered 400.
	Account serverside.Key

	// Tenant is the customer: all its tokens share one quota. If nil, each token has its
	// own. Forge uses it.
	Tenant serverside.Key

	// Token is what a request is authenticated by. If nil, the hash of Authorization.
	// Forge uses it.
	Token serverside.Key

	// APIKey is the key of a service. If nil, the hash of X-Api-Key. Forja and Patterns
	// use it.
	APIKey serverside.Key

	// User is the id of the authenticated user. If nil, the hash of Authorization.
	// Universal, API and Patterns use it.
	User serverside.Key

	// Tier returns the plan of a request: free, pro or enterprise. Any other is free. If
	// nil, there are no plans. Universal and Patterns use it.
	Tier func(*http.Request) string

	// Limits are the limits of single API keys, by what APIKey returns. A key that they do
	// not know is limited by its address alone. If nil, they know none. Forja uses them.
	Limits serverside.Limits

	// Trusted reports whether a request comes from a client that has the allowance trusted
	// in place of all rules, such as one's own monitoring: serverside.Peers and
	// serverside.KeyIs are such functions. If nil, none does. Audit is told of each.
	Trusted func(*http.Request) bool

	// Audit and Observe are told what happens, as in serverside.Config.
	Audit   func(serverside.Event)
	Observe func(serverside.Observation)
}

// Env is what the rule files name: the functions of o, its Store, Audit and Observe.
// Options.Proxies are not in it, since a file has its own.
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

// writing reports whether r is anything but a read.
func writing(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead
}

// endpoint is the endpoint that a webhook is sent to, in one spelling: the first segment of
// the path after /webhooks, with its slash.
func endpoint(r *http.Request) string {
	rest := strings.TrimPrefix(strings.ToLower(path.Clean("/"+r.URL.Path)), "/webhooks")
	name, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return "/" + name
}
