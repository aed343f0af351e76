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

// An apiDocument is one of OpenAPI, as far as it is looked at.
type apiDocument struct {
	Paths      map[string]map[string]operation
	Components struct {
		Responses map[string]struct {
			Description string
			Headers     map[string]ref
			Content     map[string]struct{ Schema ref }
			Limits      []map[string]any `yaml:"x-rate-limits"`
		}
		Headers map[string]any
		Schemas map[string]any
	}
}

type operation struct {
	Responses map[string]ref
}

// UnmarshalYAML leaves parameters, which are beside operations, alone.
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

// F203: each limited route has a 429 with the fields that its denials have.
func TestEachLimitedRouteHasA429WithItsFields(t *testing.T) {
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
	name := strings.TrimPrefix(d.Paths["/v1/items/{id}"]["get"].Responses["429"].Ref, "#/components/responses/")
	response := d.Components.Responses[name]
	assert.Equal(t, "Too many requests. There are 60 in 1m, 10 at once, 10000 in each month, by ip, and 1 in 1s, by ip.", response.Description)
	assert.Equal(t, map[string]any{"rule": "item", "key": "ip", "quota": 60, "burst": 10, "window": 60, "algorithm": "TokenBucket"}, response.Limits[0])
	assert.Equal(t, "month", response.Limits[1]["calendar"])
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
func TestTheDocumentedFieldsAreThoseOfDenials(t *testing.T) {
	for _, settings := range []string{"", "style: draft-06", "style: [draft-07, x-ratelimit-delta]", "style: none", "retry_after_ms: true", "retry_after_date: true", "body: flat"} {
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
	assert.Equal(t, []string{`body: only the program knows the body "ours"`, `rule "default": OpenAPI has no word for all paths beneath one: it is the variable at the end of "/{rest}"`}, gaps(out))
}

// denial is what a server with some rules answers to the second request.
func denial(t *testing.T, rules string) *http.Response {
	cfg, err := rulefile.Parse("rules.yaml", []byte(rules), rulefile.Env{Config: serverside.Config{Audit: func(serverside.Event) {}}})
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

func TestWhatFailsClosedHasA503(t *testing.T) {
	d := apiOf(t, "rules: [{name: login, pattern: POST /login, on_store_error: closed, policies: 1/1s}, {name: all, pattern: GET /a, policies: 1/1s}]")
	assert.Equal(t, "#/components/responses/Unavailable", d.Paths["/login"]["post"].Responses["503"].Ref)
	assert.Contains(t, d.Components.Responses["Unavailable"].Headers, "Retry-After")
	assert.NotContains(t, d.Paths["/a"]["get"].Responses, "503")
	out := exported(t, "openapi", "exempt: /health\nallow: [{name: probe, peers: 10.0.0.1, policies: 9/1s}]\nrules: [{pattern: /a, policies: 1/1s}]")
	assert.Equal(t, []string{"exempt: these requests are not limited, also where they are among paths here",
		`allowance "probe": some clients have limits of their own: others are told nothing of it`}, gaps(out))
}

func TestPathsThatDifferInNamesAreOne(t *testing.T) {
	d := apiOf(t, `
rules:
- {name: a, pattern: "GET /v1/{id}", policies: 1/1s}
- {name: b, pattern: "POST /v1/{name}", policies: 1/1s}
- {name: c, pattern: "/{rest}/x/", policies: 1/1s}`)
	assert.ElementsMatch(t, []string{"/v1/{id}", "/{rest}/x/{rest_}"}, slices.Collect(keys(d.Paths)))
	assert.Contains(t, d.Paths["/v1/{id}"], "get")
	assert.Contains(t, d.Paths["/v1/{id}"], "post")
}

// Where a rule for one segment and a rule for all beneath are one path, those of both are
// denied there, whichever comes first.
func TestAPathHasTheDenialsOfAllRulesThatItStandsFor(t *testing.T) {
	const one, all = "{name: one, pattern: 'GET /v1/{id}', policies: 1/1s}", "{name: all, pattern: /v1/, policies: 2/1s}"
	for path, rules := range map[string]string{"/v1/{id}": one + ", " + all, "/v1/{rest}": all + ", " + one} {
		d := apiOf(t, "rules: ["+rules+"]")
		for method, want := range map[string][]any{"get": {"one", "all"}, "post": {"all"}} {
			name := strings.TrimPrefix(d.Paths[path][method].Responses["429"].Ref, "#/components/responses/")
			var got []any
			for _, l := range d.Components.Responses[name].Limits {
				got = append(got, l["rule"])
			}
			assert.ElementsMatch(t, want, got, "%s %s", method, path)
		}
		assert.Len(t, d.Components.Responses, 2, "none that no path has")
	}
}

// A request that two rules are for, neither of which is for all of the other's, is at one
// path of OpenAPI.
func TestOpenAPITellsOfRulesThatCross(t *testing.T) {
	const told = "it has some requests in common with 1 of the other rules: of each of those the document says what one of the rules alone denies"
	for rules, want := range map[string][]string{
		"{name: a, pattern: 'GET /v1/{id}', policies: 1/1s}, {name: b, pattern: '/{kind}/orders', policies: 1/1s}": {`rule "a": ` + told, `rule "b": ` + told},
		// The narrower path says what both deny.
		"{name: a, pattern: '/v1/{id}', policies: 1/1s}, {name: b, pattern: 'POST /{kind}/{id}', policies: 1/1s}": {},
		"{name: a, pattern: '/v1/{id}', policies: 1/1s}, {name: b, pattern: 'GET /v1/orders', policies: 1/1s}":    {},
		"{name: a, pattern: 'GET /v1/{id}', policies: 1/1s}, {name: b, pattern: '/v1/orders', policies: 1/1s}":    {},
		// No request is for both.
		"{name: a, pattern: 'GET /v1/{id}', policies: 1/1s}, {name: b, pattern: 'POST /{kind}/orders', policies: 1/1s}": {},
		"{name: a, pattern: '/v1/{id}', policies: 1/1s}, {name: b, pattern: '/{kind}/{id}/parts', policies: 1/1s}":      {},
		// What is left out is told of already.
		"{name: a, pattern: '/v1/{id}', policies: 1/1s}, {name: b, pattern: '/{kind}/orders', dry_run: true, policies: 1/1s}": {
			`rule "b": it is a dry run: nobody is told of it`},
	} {
		assert.ElementsMatch(t, want, gaps(exported(t, "openapi", "rules: ["+rules+"]")), rules)
	}
}
