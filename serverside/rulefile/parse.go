package rulefile

import (
	"net/http"

	"github.com/heedhttp/heed/serverside"
)

// An Env is what a program gives a rule file: what the file may name, and what it adds
// to. The zero Env has nothing.
type Env struct {
	// Config is what holds where the file says nothing: the Store and Audit, which
	// a file cannot say, and whatever else. Its Rules are not used.
	Config serverside.Config

	// The functions and tables that the file may name.
	Keys      map[string]serverside.Key
	Costs     map[string]func(*http.Request) int64
	Tiers     map[string]func(*http.Request) string
	Limits    map[string]serverside.Limits
	Matches   map[string]func(*http.Request) bool // for if, and an allow-list's match
	Responses map[string]func(serverside.Response) bool
	Bodies    map[string]func(http.ResponseWriter, *http.Request, serverside.Denial)

	// Lenient accepts any name of a function, and takes one that knows nothing: for
	// tools that read a file without its program.
	Lenient bool
}

// Parse reads a rule file: JSON if name ends in ".json", and otherwise YAML. The
// error joins a *Fault for each thing that is wrong, whether the file, the Config
// or a policy is at fault: what Parse returns, serverside.New accepts.
//
// data may come from anybody: it is bounded to 1 MiB, and so is what it can make.
func Parse(name string, data []byte, env Env) (serverside.Config, error) {
	l, err := List(name, data, env)
	if err != nil {
		return serverside.Config{}, err
	}
	return l.Config, nil
}
