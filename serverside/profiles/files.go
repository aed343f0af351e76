package profiles

import (
	"embed"
	"net/http"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

//go:embed *.yaml *.json
var files embed.FS

// Files are the names of the rule files, sorted: one for each profile; two more for
// those that have tiers; and universal_routes.json, which is Universal cut down to five
// paths.
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

// File is the rule file of a name, such as "forge.yaml", for Options.Env; nil if there
// is none. It trusts no proxies: write trusted_proxies, where a comment shows it.
func File(name string) []byte {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil
	}
	return text
}

// Env is what the rule files name, as o has it, and the Store and what is told to
// Audit and Observe. Options.Proxies is not in it: a file names its proxies itself.
func (o Options) Env() rulefile.Env {
	return rulefile.Env{
		Config: serverside.Config{Store: o.Store, Audit: o.Audit, Observe: o.Observe},
		Keys: map[string]serverside.Key{
			"account": o.account(), "token": o.token(), "api_key": o.apiKey(), "user": o.user(),
		},
		Matches: map[string]func(*http.Request) bool{
			"trusted": o.trusted(), "writing": writing, "has_token": has(o.token()), "no_token": lacks(o.token()),
			"no_user": lacks(o.user()), "no_user_writing": both(writing, lacks(o.user())),
			"has_user": has(o.user()), "has_api_key": has(o.apiKey()),
		},
		Tiers:  map[string]func(*http.Request) string{"tier": o.tier()},
		Limits: map[string]serverside.Limits{"api_keys": keyTable{o.Limits}},
		Bodies: map[string]func(http.ResponseWriter, *http.Request, serverside.Denial){"forja": forjaBody, "api": apiBody},
	}
}
