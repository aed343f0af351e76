// Package profiles has five ready-made Configs for a serverside.Limiter, for APIs of different
// kinds. Each sets the limits, keys, header fields, body of denials, and what happens while the
// store fails.
//
//	limiter, err := serverside.New(profiles.Forge(profiles.Options{Store: store}))
//
// Forge limits by the kind of endpoint, Forja by address and API key, Universal by path and
// tier, API by the kind of operation, and Patterns by scope. Options has what only the program
// knows, above all who the client is.
//
// Each profile is a rule file (File) that its function reads. To change the numbers, write the
// file to disk and follow it:
//
//	os.WriteFile("rules.yaml", profiles.File("forge.yaml"), 0o644)
//	rules, err := rulefile.Watch("rules.yaml", options.Env())
//
// Take the numbers as a start: try a profile with Rule.DryRun, look at your traffic through
// Config.Observe, and adjust them. docs/profiles.md has the rules of all profiles and the
// reasons for them.
//
// Put Limiter.WrapEarly in front of authentication and Limiter.Wrap behind it. WrapEarly limits
// addresses, and so guesses at credentials. Health checks, GET /health, are never limited.
//
// # Keys
//
// A key in the store is a name and a value, such as ip:203.0.113.45. With "heed:rl:" as
// redisstore.Store.Prefix, each key is a hash in Redis,
//
//	heed:rl:key:ip:203.0.113.45
//
// with a field for each rule and window, such as address/1m. It expires by itself.
package profiles
