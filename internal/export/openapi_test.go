package export_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// An apiDocument is the part of an OpenAPI document that tests check.
type apiDocument struct {
	Paths      map[string]map[string]operation
	Components struct {
		Responses map[string]struct {
			Description string
			Headers     map[string]ref
			Content     map[string]struct{ Schema ref }
		}
		Headers map[string]any
		Schemas map[string]any
	}
}

type operation struct {
	Description string
	Responses   map[string]ref
}

// UnmarshalYAML ignores parameters, which are siblings of operations.
func (o *operation) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	type plain operation
	return n.Decode((*plain)(o))
}

type ref struct {
	Ref string `yaml:"$ref"`
}

func apiOf(t *testing.T, rules string) (d apiDocument) {
	text := exported(t, "openapi", rules).Text
	require.NoError(t, yaml.Unmarshal([]byte(text), &d), text)
	return d
}

const documented = `
rules:
- {name: login, pattern: POST /login, policies: 1/15m log}
- {name: item, pattern: "/v1/items/{id}", policies: [60/1m burst 10, 10000/month]}
- {name: all, policies: 1/1s}
- {name: trial, pattern: /trial, dry_run: true, policies: 1/1s}
- {name: odd, pattern: BREW /pot, policies: 1/1s}
- {name: guard, stage: overload, status: 503, policies: 1000/1s}`

func TestLimitedRoutesHaveA429WithFields(t *testing.T) {
	d := apiOf(t, documented)
	assert.ElementsMatch(t, []string{"/login", "/v1/items/{id}", "/{rest}"}, slices.Collect(keys(d.Paths)))
	assert.ElementsMatch(t, []string{"post"}, slices.Collect(keys(d.Paths["/login"])))
	for path, operations := range d.Paths {
		for method, operation := range operations {
			if method == "parameters" {
				continue
			}
			for _, status := range []string{"429", "503"} {
				name := strings.TrimPrefix(operation.Responses[status].Ref, "#/components/responses/")
				response, ok := d.Components.Responses[name]
				require.True(t, ok, "%s %s %s", method, path, status)
				for _, field := range []string{"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
					assert.Contains(t, response.Headers, field)
				}
				for field, header := range response.Headers {
					assert.Equal(t, "#/components/headers/"+field, header.Ref)
					assert.Contains(t, d.Components.Headers, field)
				}
				assert.Equal(t, "#/components/schemas/RateLimited", response.Content["application/problem+json"].Schema.Ref)
			}
		}
	}
	assert.Equal(t, "Limits: 60 in 1m, 10 at once, 10000 in each month, by ip; 1 in 1s, by ip; 1000 in 1s, by everybody.",
		d.Paths["/v1/items/{id}"]["get"].Description)
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// The fields that are documented are those that a server writes, whatever its style.
func TestDocumentedFieldsAreThoseOfDenials(t *testing.T) {
	for _, settings := range []string{
		"", "style: draft-06", "style: [draft-07, x-ratelimit-delta]", "style: none", "retry_after_ms: true",
		"retry_after_date: true", "body: flat",
	} {
		rules := settings + "\nrules: [{policies: 1/1h}]\n"
		d := apiOf(t, rules)
		got := denial(t, rules)
		var fields []string
		for name := range got.Header {
			if name != "Content-Type" && name != "Cache-Control" {
				fields = append(fields, name)
			}
		}
		var documented []string
		for name := range d.Components.Headers {
			documented = append(documented, http.CanonicalHeaderKey(name))
		}
		assert.ElementsMatch(t, fields, documented, settings)
		for _, response := range d.Components.Responses {
			assert.Contains(t, response.Content, got.Header.Get("Content-Type"), settings)
		}
	}
	out := exported(t, "openapi", "body: ours\nrules: [{policies: 1/1h}]")
	assert.Equal(t, []string{`body: only the program knows the body "ours"`,
		`rule "default": OpenAPI has no way to say all paths beneath one: ` +
			`the variable at the end of "/{rest}" stands for them`}, gaps(out))
}

// denial returns a server's response to the second request.
func denial(t *testing.T, rules string) *http.Response {
	cfg, err := rulefile.Parse("rules.yaml", []byte(rules), rulefile.Env{
		Config: serverside.Config{Audit: func(serverside.Event) {}},
	})
	require.NoError(t, err)
	l, err := serverside.New(cfg)
	require.NoError(t, err)
	h := l.Wrap(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	return w.Result()
}

func TestFailClosedRouteHasA503(t *testing.T) {
	d := apiOf(t, "rules: [{name: login, pattern: POST /login, on_store_error: closed, policies: 1/1s}, {name: "+
		"all, pattern: GET /a, policies: 1/1s}]")
	assert.Equal(t, "#/components/responses/Unavailable", d.Paths["/login"]["post"].Responses["503"].Ref)
	assert.Contains(t, d.Components.Responses["Unavailable"].Headers, "Retry-After")
	assert.NotContains(t, d.Paths["/a"]["get"].Responses, "503")
	out := exported(t, "openapi",
		"exempt: /health\nallow: [{name: probe, peers: 10.0.0.1, policies: 9/1s}]\nrules: [{pattern: /a, policies: 1/1s}]")
	assert.Equal(t, []string{"exempt: these requests are not limited, even where the document has them under a path",
		`allowance "probe": some clients have limits of their own, which the document does not show`}, gaps(out))
}

func TestPathsWithDifferentWildcardNamesAreMerged(t *testing.T) {
	d := apiOf(t, `
rules:
- {name: a, pattern: "GET /v1/{id}", policies: 1/1s}
- {name: b, pattern: "POST /v1/{name}", policies: 1/1s}
- {name: c, pattern: "/{rest}/x/", policies: 1/1s}`)
	assert.ElementsMatch(t, []string{"/v1/{id}", "/{rest}/x/{rest_}"}, slices.Collect(keys(d.Paths)))
	assert.Contains(t, d.Paths["/v1/{id}"], "get")
	assert.Contains(t, d.Paths["/v1/{id}"], "post")
}

// A rule for one segment and a rule for everything below share a path, with the limits of both.
func TestPathHasTheLimitsOfAllItsRules(t *testing.T) {
	const one, all = "{name: one, pattern: 'GET /v1/{id}', policies: 1/1s}", "{name: all, pattern: /v1/, policies: 2/1s}"
	both := apiOf(t, "rules: ["+one+", "+all+"]").Paths["/v1/{id}"]
	assert.Equal(t, "Limits: 1 in 1s, by ip; 2 in 1s, by ip.", both["get"].Description)
	assert.Equal(t, "Limits: 2 in 1s, by ip.", both["post"].Description)
	both = apiOf(t, "rules: ["+all+", "+one+"]").Paths["/v1/{rest}"]
	assert.Equal(t, "Limits: 2 in 1s, by ip; 1 in 1s, by ip.", both["get"].Description)
	assert.Equal(t, "Limits: 2 in 1s, by ip.", both["post"].Description)
}

// An operation has the limits of every rule that limits some of its requests, except rules for another
// path in the document.
func TestOperationHasTheLimitsOfCrossingRules(t *testing.T) {
	const here, both = "Limits: 1 in 1s, by ip.", "Limits: 1 in 1s, by ip; 2 in 1s, by ip."
	for other, want := range map[string]string{
		"/{kind}/orders":             both,
		"POST /{kind}/{id}":          here,
		"GET /{kind}/{id}":           both,
		"/":                          both,
		"GET /v1/orders":             here, // it has its own path
		"/v1/orders":                 here,
		"POST /{kind}/orders":        here,
		"/{kind}/{id}/parts":         here,
		"/v1/{id}, dry_run: true":    here,
		"GET /{kind}/parts, cost: 3": both,
	} {
		d := apiOf(t, "rules: [{name: a, pattern: 'GET /v1/{id}', policies: 1/1s}, {name: b, pattern: '"+
			strings.Replace(other+",", ",", "',", 1)+" policies: 2/1s}]")
		assert.Equal(t, want, d.Paths["/v1/{id}"]["get"].Description, other)
	}
}
