package rulefile_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// A change of the file applies to the next request.
func ExampleWatch() {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "rules.yaml")
	write := func(policy string) {
		text := "rules: [{name: api, pattern: /v1/, policies: " + policy + "}]"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}

	write("1/1h")
	rules, err := rulefile.Watch(file, rulefile.Env{Config: serverside.Config{Audit: func(serverside.Event) {}}})
	if err != nil {
		log.Fatal(err)
	}
	defer rules.Close()
	handler := rules.Limiter.Wrap(http.NotFoundHandler())
	ask := func() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/", nil))
		fmt.Println(w.Code)
	}

	ask()
	ask()
	write("2/1h")
	rules.Reload() // or wait for a tenth of a second
	ask()
	ask()
	// Output:
	// 404
	// 429
	// 404
	// 429
}

// Faults have positions, like a compiler's messages.
func ExampleParse() {
	text := `
rules:
  - name: api
    patern: /v1/
    policies: [60/1m, 5/1x]
`
	_, err := rulefile.Parse("rules.yaml", []byte(text), rulefile.Env{})
	fmt.Println(err)
	// Output:
	// rules.yaml:4:5: rules[0]: unknown key "patern": did you mean "pattern"?
	// rules.yaml:5:23: rules[0].policies[1]: is "1x": must be a duration such as 500ms, 90s, 1m, 1h30m or 7d
}

// The program names functions and a store for the file.
func ExampleParse_functions() {
	env := rulefile.Env{
		Keys: map[string]serverside.Key{
			"tenant": serverside.KeyFunc(func(r *http.Request) string { return r.PathValue("tenant") }),
		},
		Costs: map[string]func(*http.Request) int64{
			"megabytes": func(r *http.Request) int64 { return r.ContentLength>>20 + 1 },
		},
	}
	cfg, err := rulefile.Parse("rules.json", []byte(`{
		"rules": [{"pattern": "POST /{tenant}/files", "key": "join(tenant, ip)", "cost": "megabytes", "policies": "100/1d"}]
	}`), env)
	fmt.Println(len(cfg.Rules), err)
	// Output: 1 <nil>
}
