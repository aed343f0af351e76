package profiles

import (
	"time"

	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// API limits by what is done, of a user, or of an address where there is none:
//
//	/login, /register  5 in a quarter of an hour of an address
//	GET /api/          100 a minute
//	/api/ otherwise    30 at once, and 5 a second
//	/upload            10 at once, and one a minute
//
// X-RateLimit-Limit is what may be spent at once, X-RateLimit-Reset the Unix time at
// which all of it may be again. Denials are problem documents with the wait in seconds.
//
// Where the description contradicts itself or others: it says 5 logins in a quarter of
// an hour and 100 queries a minute, and has code that admits 20 and 700; the former is
// what is meant, and holds for any such time (C34). Logins are limited before
// authentication, so by address, and the rest behind it, so by user (C32); a user who
// is called like an address is not it. Logins are counted in this process while the
// store fails (C05).
func API(o Options) serverside.Config {
	cfg := o.config(ratelimit.XRateLimit)
	cfg.Deny = apiBody
	of := func(kind string) serverside.Key {
		return serverside.Named(kind, serverside.First(o.user(), o.ip()))
	}
	cfg.Rules = []serverside.Rule{
		{Name: "login", Pattern: "/login", Key: serverside.Named("login", o.ip()), Policies: exactly(5, 15*time.Minute), OnStoreError: serverside.FailLocal},
		{Name: "register", Pattern: "/register", Key: serverside.Named("register", o.ip()), Policies: exactly(5, 15*time.Minute), OnStoreError: serverside.FailLocal},
		{Name: "query", Pattern: "GET /api/", Stage: serverside.AfterAuth, Key: of("query"), Policies: exactly(100, time.Minute)},
		{Name: "write", Pattern: "/api/", If: writing, Stage: serverside.AfterAuth, Key: of("write"), Policies: per(30, 6*time.Second)},
		{Name: "upload", Pattern: "/upload", Stage: serverside.AfterAuth, Key: of("upload"), Policies: per(10, 10*time.Minute)},
	}
	return cfg
}

var apiBody = serverside.TimedProblem("https://api.example.com/problems/rate-limited")
