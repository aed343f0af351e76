// Package profiles has five ready-made sets of rules for a serverside.Limiter, as
// five descriptions of rate limiting have them: their numbers and keys, the header
// fields and the bodies that their clients know, and what they do when the store
// fails.
//
//	limiter, err := serverside.New(profiles.Forge(profiles.Options{Store: store}))
//
// Forge limits by the kind of endpoint, Forja by address and API key over several
// windows, Universal by path and tier, API by what is done, and Patterns by scope. docs/profiles.md compares them. The numbers are to begin with: take one,
// look at what Rule.DryRun and Config.Observe tell of your own traffic, and change it.
//
// What only the program knows, who is asking above all, it says in Options.
//
// Each profile is a rule file as well (File), which says the same, with Options.Env
// for what a file cannot say:
//
//	os.WriteFile("rules.yaml", profiles.File("forge.yaml"), 0o644)
//	rules, err := rulefile.Watch("rules.yaml", options.Env())
//
// Where the descriptions contradict themselves or each other, each profile says which
// of them it follows, by a number such as C21 that docs/profiles.md explains.
//
// The rules are asked in stages. Put Limiter.WrapEarly in front of authentication and
// Limiter.Wrap behind it: those behind believe what they are told of who asks. In front,
// Forja and Patterns limit each address, wrong credentials included; the others limit
// there what their tables name, logins above all, so that wrong tokens are left to
// authentication, or to a rule of your own. Health checks, GET /health, are never
// limited.
//
// # Keys
//
// The descriptions name keys in Redis, such as rate_limit:ip:203.0.113.45:/api/login.
// Those are not made literally: with ":" between parts that may hold one, or with a
// path that a client writes, two clients can share a key and one can have many; a key
// of its own for each window cannot be decided on with the others in one step on a
// Cluster; and four of the five begin with rl: and mean different types by it. What the
// Store gets has the same parts in the same order instead: a key, which is
// ip:203.0.113.45, and in it a limit, which is called by its rule and its window,
// /api/auth/login/1m. With redisstore.Store.Prefix that is one hash,
//
//	rate_limit:key:ip:203.0.113.45
//
// with a field for each rule, which expires by itself. Where a description puts the
// rule first, as in rl:login_ip:203.0.113.45, so does the key: login_ip:203.0.113.45.
package profiles
