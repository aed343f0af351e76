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
// A token of a tenant is counted as the tenant, so minting tokens brings no more quota. A
// sender of webhooks has a quota for each endpoint, which is the first segment of the path
// after /webhooks/, and one for all of them together, since senders may make up endpoints.
// The quota of an address is for wrong tokens: it is far more than one token may use.
//
// X-RateLimit-Limit is what may be spent at once. X-RateLimit-Reset is the Unix time at
// which all of it is back. The body of a denial is serverside.EnvelopeBody.
func Forge(o Options) serverside.Config { return o.config("forge.yaml") }

// Forja limits each address by the second and the minute, and each API key by what
// Options.Limits says of it (forja.yaml). It also limits how many requests of an address
// are handled at the same time.
//
// The windows are those of the clock: around a boundary they admit up to twice their
// quota. The fields tell of the window with the smallest part left. X-RateLimit-Reset is in
// seconds from now. The body of a denial is a serverside.CodedProblem. While the store
// fails, requests are admitted. If Config.OnStoreError is FailClosed, they get 429.
//
// The connections of this machine are limited like others. If Options.Trusted is
// serverside.Peers(serverside.Loopback()...), the allowance for trusted clients holds for
// them.
//
// With Limiter.WrapEarly in front of authentication, wrong keys are charged to their
// address. With Limiter.Wrap alone both limits are one decision: if the key's limit denies
// a request, the address is not charged.
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

// Universal limits each path by itself, by address or by user (universal.yaml). If
// Options.Tier is set, the plans free, pro and enterprise have limits by the minute and the
// hour, in place of those of users for the rest of /api/ (universal_tiers.yaml).
//
// Requests without a user are charged to their address. All rules that match a request
// apply. The limit of all clients together comes last, so a request that another rule denies
// is not charged to it. It is the only one that answers 503. While the store fails, requests
// are admitted, but logins are counted in each process.
//
// X-RateLimit-Reset is the Unix time at which the quota is whole again. The body of a denial
// is serverside.DetailBody; serverside.FlatBody is what the same API answers from Express.
func Universal(o Options) serverside.Config {
	if o.Tier != nil {
		return o.config("universal_tiers.yaml")
	}
	return o.config("universal.yaml")
}

// API limits by the kind of operation, by user, or by address if there is no user
// (api.yaml). Logins are limited before authentication, by address and by account.
//
// X-RateLimit-Limit is what may be spent at once. X-RateLimit-Reset is the Unix time at
// which all of it is back. The body of a denial is a serverside.TimedProblem.
func API(o Options) serverside.Config { return o.config("api.yaml") }

// Patterns limits by scope: an endpoint, a user, an API key and an address, by windows that
// slide (patterns.yaml). If Options.Tier is set, the plans free, pro and enterprise stand in
// place of the user's limit, and the limit of an address is for requests that nobody has
// authenticated: a paying client may use all of its plan from one address
// (patterns_tiers.yaml).
//
// The fields are RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, which is in
// seconds from now. The body of a denial is serverside.LimitBody. Its status is always 429.
func Patterns(o Options) serverside.Config {
	if o.Tier != nil {
		return o.config("patterns_tiers.yaml")
	}
	return o.config("patterns.yaml")
}

//go:embed *.yaml *.json
var files embed.FS

// Files returns the names of the rule files, sorted: one for each profile, two more for
// those with tiers, and universal_routes.json, which is Universal cut down to five paths.
func Files() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("profiles: " + err.Error()) // cannot be: they are in the program
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// File returns the rule file of a name, such as "forge.yaml", for Options.Env; nil if there
// is none. It trusts no proxies: write trusted_proxies, where a comment shows it.
func File(name string) []byte {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil
	}
	return text
}

// config is what the rule file of a name says, with what o has.
func (o Options) config(name string) serverside.Config {
	store := o.Store
	o.Store = nil // serverside.New checks it, and returns an error
	cfg, err := rulefile.Parse(name, append(settings(o.Proxies), File(name)...), o.Env())
	if err != nil {
		// The file is right, so it is a name in Proxies.Fields that no header field has.
		panic("profiles: Options: " + err.Error())
	}
	cfg.Store = store
	return cfg
}

// settings says in a rule file's words what p says.
func settings(p serverside.Proxies) []byte {
	trusted, fields := []netip.Prefix{}, append([]string{}, p.Fields...)
	for _, prefix := range p.Trusted {
		if prefix.IsValid() { // one that is not contains no address
			trusted = append(trusted, prefix.Masked())
		}
	}
	bits := cmp.Or(p.IPv6Bits, 64)
	if bits < 1 || bits > 128 {
		bits = 64 // as Proxies.ClientIP has it
	}
	list := func(of any) []byte {
		text, err := json.Marshal(of) // YAML has lists of JSON
		if err != nil {
			panic("profiles: " + err.Error()) // cannot be: they are strings
		}
		return text
	}
	return fmt.Appendf(nil, "trusted_proxies: %s\nproxy_fields: %s\nipv6_bits: %d\n", list(trusted), list(fields), bits)
}
