package profiles

import (
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// Forge limits by the kind of endpoint:
//
//	/login, /signup, /reset  5 a minute of an address
//	POST /login              5 failures a minute of an account, then 12 s, 24 s, 48 s … of waiting
//	GET / without a token    60 a minute of an address
//	GET / with one           60 at once of a token, and 10 a second
//	/api/ otherwise          60 a minute of a token
//	/webhooks/               100 a minute of a sender
//
// A token of a tenant is counted as the tenant, so that to mint tokens is of no use
// (C48). X-RateLimit-Limit is what may be spent at once, X-RateLimit-Reset the Unix time
// at which all of it may be again. Denials have the error in an envelope.
//
// Where the description contradicts itself or others: no more than 5 attempts to log in
// are admitted in any minute, which a bucket of 5 would double in its first (C21); they
// are counted in this process while the store fails, rather than not at all (C05). Of
// the header fields of proxies none is believed but those of Options.Proxies (C01), and
// Options.Trusted has a limit too, also for what runs by itself (C03).
//
// Webhooks are counted for a sender and an endpoint: have a rule for each endpoint, by
// its pattern, if there are several.
func Forge(o Options) serverside.Config {
	cfg := o.config(ratelimit.XRateLimit)
	cfg.Deny = serverside.EnvelopeBody
	named := serverside.Named
	login := serverside.Logins("login_account", "POST /login", named("login_account", o.account()))
	cfg.Rules = []serverside.Rule{
		{Name: "login_ip", Pattern: "/login", Key: named("login_ip", o.ip()), Policies: exactly(5, time.Minute), OnStoreError: serverside.FailLocal},
		{Name: "signup_ip", Pattern: "/signup", Key: named("signup_ip", o.ip()), Policies: exactly(5, time.Minute), OnStoreError: serverside.FailLocal},
		{Name: "reset_ip", Pattern: "/reset", Key: named("reset_ip", o.ip()), Policies: exactly(5, time.Minute), OnStoreError: serverside.FailLocal},
		login,
		{Name: "read_ip", Pattern: "GET /", If: lacks(o.token()), Stage: serverside.AfterAuth,
			Key: named("read_ip", o.ip()), Policies: per(60, time.Minute)},
		{Name: "api_token", Pattern: "GET /", If: has(o.token()), Stage: serverside.AfterAuth,
			Key: named("api_token", o.token()), Policies: []quota.Policy{{Name: "requests", Quota: 60, Window: 6 * time.Second}}},
		{Name: "api_token_write", Pattern: "/api/", If: writing, Stage: serverside.AfterAuth,
			Key: named("api_token_write", o.token()), Policies: per(60, time.Minute)},
		{Name: "webhook_sender", Pattern: "/webhooks/", Stage: serverside.AfterAuth,
			Key: named("webhook_sender", o.token()), Policies: per(100, time.Minute)},
	}
	return cfg
}
