package profiles

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// Forge limits by the kind of endpoint: logins, reads, writes and webhooks (forge.yaml).
//
// Tokens of a tenant are counted together, so creating tokens brings no more quota. A sender of
// webhooks has a quota for each endpoint, the first segment of the path after /webhooks/, and
// one for all endpoints together, because senders can make up endpoints. The limit of an
// address is for wrong tokens, and far above that of a token.
//
// X-RateLimit-Limit is the burst. X-RateLimit-Reset is the Unix time at which it is full again.
// Denials have a serverside.EnvelopeBody.
func Forge(o Options) serverside.Config { return o.config("forge.yaml") }

// Forja limits each address per second and per minute, the requests of an address that are
// served at the same time, and each API key by Options.Limits (forja.yaml).
//
// The windows are fixed, so around a boundary up to twice the quota is admitted. The fields
// show the window with the smallest fraction left. X-RateLimit-Reset is in seconds from now.
// Denials have a serverside.CodedProblem. While the store fails, requests are admitted, or get
// 429 if you set Config.OnStoreError to FailClosed.
//
// Connections from this machine are limited too, unless Options.Trusted is
// serverside.Peers(serverside.Loopback()...).
//
// With Limiter.WrapEarly in front of authentication, wrong keys are charged to their address.
// With Limiter.Wrap alone, a request that the key's limit denies is not charged to the address.
func Forja(o Options) serverside.Config {
	limits := o.Limits
	o.Limits = nil // serverside.New checks them, and returns an error
	cfg := o.config("forja.yaml")
	for i := range cfg.Rules {
		if cfg.Rules[i].Limits != nil {
			cfg.Rules[i].Limits = keyTable{limits}
		}
	}
	return cfg
}

// Universal limits each path by address or by user (universal.yaml). If Options.Tier is set,
// users of the plans free, pro and enterprise have limits per minute and hour for the paths
// under /api/ that have no limit of their own (universal_tiers.yaml).
//
// Requests without a user are charged to their address. All matching rules apply. The limit of
// all clients together is checked last and is the only one that answers 503. While the store
// fails, requests are admitted, but logins are counted in each process.
//
// X-RateLimit-Reset is the Unix time at which the quota is full again. Denials have a
// serverside.DetailBody; serverside.FlatBody is the format of the same API in Express.
func Universal(o Options) serverside.Config {
	if o.Tier != nil {
		return o.config("universal_tiers.yaml")
	}
	return o.config("universal.yaml")
}

// API limits by the kind of operation, for each user, or address if there is no user
// (api.yaml). Logins are limited before authentication, by address and by account.
//
// X-RateLimit-Limit is the burst. X-RateLimit-Reset is the Unix time at which it is full again.
// Denials have a serverside.TimedProblem.
func API(o Options) serverside.Config { return o.config("api.yaml") }

// Patterns limits endpoints, users, API keys and addresses, by sliding windows (patterns.yaml).
// If Options.Tier is set, the plans free, pro and enterprise replace the limit of a user, and
// the limit of an address applies only to requests without authentication, so that a client can
// use its whole plan from one address (patterns_tiers.yaml).
//
// The fields are RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, in seconds from now.
// Denials have a serverside.LimitBody. Their status is always 429.
func Patterns(o Options) serverside.Config {
	if o.Tier != nil {
		return o.config("patterns_tiers.yaml")
	}
	return o.config("patterns.yaml")
}

//go:embed *.yaml *.json
var files embed.FS

// Files returns the names of the rule files, sorted: one for each profile, another for those
// with tiers, and universal_routes.json, an excerpt of Universal with five paths.
func Files() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("profiles: " + err.Error()) // cannot happen: the files are embedded
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// File returns a rule file by name, such as "forge.yaml", or nil if there is none. Use it with
// Options.Env. It trusts no proxies: to trust some, replace the comment trusted_proxies.
func File(name string) []byte {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil
	}
	return text
}

// config reads a rule file with the functions of o.
func (o Options) config(name string) serverside.Config {
	store := o.Store
	o.Store = nil // serverside.New checks it, and returns an error
	cfg, err := rulefile.Parse(name, append(settings(o.Proxies), File(name)...), o.Env())
	if err != nil {
		// The file is valid, so Proxies.Fields has an invalid name.
		panic("profiles: Options: " + err.Error())
	}
	cfg.Store = store
	return cfg
}

// settings returns p as lines of a rule file.
func settings(p serverside.Proxies) []byte {
	trusted, fields := []netip.Prefix{}, append([]string{}, p.Fields...)
	for _, prefix := range p.Trusted {
		if prefix.IsValid() { // an invalid one contains no address
			trusted = append(trusted, prefix.Masked())
		}
	}
	bits := cmp.Or(p.IPv6Bits, 64)
	if bits < 1 || bits > 128 {
		bits = 64 // like Proxies.ClientIP
	}
	list := func(of any) []byte {
		text, err := json.Marshal(of) // YAML has lists of JSON
		if err != nil {
			panic("profiles: " + err.Error()) // cannot happen: these are strings
		}
		return text
	}
	return fmt.Appendf(nil, "trusted_proxies: %s\nproxy_fields: %s\nipv6_bits: %d\n", list(trusted), list(fields), bits)
}
