package rulefile

import (
	"net/http"

	"github.com/heedhttp/heed/serverside"
)

// An Env is what a program provides to a rule file: settings that a file cannot have, and
// functions that a file can name. The zero Env provides nothing.
type Env struct {
	// Config has the settings that the file does not set, such as Store and Audit. Its Rules
	// are ignored.
	Config serverside.Config

	// Functions and tables that the file can name.
	Keys      map[string]serverside.Key
	Costs     map[string]func(*http.Request) int64
	Tiers     map[string]func(*http.Request) string
	Limits    map[string]serverside.Limits
	Matches   map[string]func(*http.Request) bool // for if, and for match in allow
	Responses map[string]func(serverside.Response) bool
	Bodies    map[string]func(http.ResponseWriter, *http.Request, serverside.Denial)

	// Lenient accepts every function name. Tools use it to check a file without its program.
	// Listing.Warnings has names that look like a misspelt built-in one.
	Lenient bool
}

// Parse reads a rule file and returns its Config:
//
//	cfg, err := rulefile.Parse("rules.yaml", data, rulefile.Env{})
//
// The file is JSON if name ends in ".json", and YAML otherwise. The error joins a *Fault for
// everything that is wrong, including what serverside.New would reject.
//
// data need not be trusted: its size is limited to 1 MiB, and so is the memory it can use.
func Parse(name string, data []byte, env Env) (serverside.Config, error) {
	l, err := List(name, data, env)
	if err != nil {
		return serverside.Config{}, err
	}
	return l.Config, nil
}
