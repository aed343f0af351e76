// Package profiles has five ready-made sets of rules for a serverside.Limiter. Each has
// numbers and keys, the header fields and the bodies that its clients know, and says what
// happens while the store fails.
//
//	limiter, err := serverside.New(profiles.Forge(profiles.Options{Store: store}))
//
// Forge limits by the kind of endpoint, Forja by address and API key over several windows,
// Universal by path and tier, API by the kind of operation, and Patterns by scope. Options
// say what only the program knows, above all who the client is.
//
// Each profile is a rule file (File), and its function reads that file. To change numbers,
// write the file to disk and follow it:
//
//	os.WriteFile("rules.yaml", profiles.File("forge.yaml"), 0o644)
//	rules, err := rulefile.Watch("rules.yaml", options.Env())
//
// The numbers are a start. Try a profile with Rule.DryRun, look at what Config.Observe tells
// of your own traffic, and change them. docs/profiles.md has the rules of all five with
// their reasons.
//
// The rules are asked in stages. Put Limiter.WrapEarly in front of authentication, and
// Limiter.Wrap behind it. In front, each profile limits addresses, so that wrong
// credentials are limited too, and their responses have rate-limit fields. Health checks,
// GET /health, are never limited.
//
// # Keys
//
// A key in the store is a name and a value, such as ip:203.0.113.45. With "heed:rl:" as
// redisstore.Store.Prefix, there is one hash in Redis for each key,
//
//	heed:rl:key:ip:203.0.113.45
//
// with a field for each rule and window, such as address/1m. It expires by itself.
package profiles
