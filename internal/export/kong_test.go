package export_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/internal/export"
)

func kongOf(t *testing.T, rules string, o export.Options) (d map[string]any) {
	require.NoError(t, yaml.Unmarshal([]byte(exported(t, "kong", rules, o).Text), &d))
	return d
}

func TestKongValues(t *testing.T) {
	rules := "ipv6_bits: 128\nrules: [{name: api, policies: [60/1m, 1000/1h]}]"
	limits := map[string]any{
		"minute": 60, "hour": 1000, "limit_by": "ip", "policy": "redis", "redis_host": "redis.internal",
		"fault_tolerant": true,
	}
	want := map[string]any{
		"_format_version": "3.0", "plugins": []any{map[string]any{"name": "rate-limiting", "config": limits}},
	}
	assert.Equal(t, want, kongOf(t, rules, export.Options{Redis: "redis.internal"}))
	limits["redis_port"] = 6380
	assert.Equal(t, want, kongOf(t, rules, export.Options{Redis: "redis.internal:6380"}))
	delete(limits, "redis_port")
	delete(limits, "redis_host")
	limits["policy"], limits["fault_tolerant"] = "local", false
	assert.Equal(t, want, kongOf(t, "on_store_error: closed\n"+rules, export.Options{}))
	assert.Empty(t, exported(t, "kong", rules).Gaps)
}

// Kong runs one plugin for a request, so a route has the lowest of all limits that apply there.
func TestKongRouteHasTheLowestMatchingLimits(t *testing.T) {
	const rules = `
ipv6_bits: 128
rules:
- {name: address, policies: [50/1s, 500/1m, 10/7s]}
- {name: login, pattern: POST example.com/login, policies: 5/1m burst 2, on_store_error: closed}
- {name: v1, pattern: GET /v1/, policies: 9000/1d fixed}
- {name: cafe, pattern: /caf%C3%A9, policies: 1/1s}`
	assert.Equal(t, []string{
		`rule "address": 10 in 7s is left to the application: Kong has windows of a second, a minute, an hour and a day`,
		`rule "address": some of its requests take the routes of other rules (2): ` +
			`Kong counts each route by itself, by the rules that cover it`,
		`rule "login": Kong counts in a window of the clock: 5 at once, and not 2`,
		`rule "cafe": Kong does not decode the path: it is left to the application`,
	}, gaps(exported(t, "kong", rules)))
	d := kongOf(t, rules, export.Options{})
	service := d["services"].([]any)[0].(map[string]any)
	config := func(limits map[string]any) []any {
		limits["limit_by"], limits["policy"] = "ip", "local"
		return []any{map[string]any{"name": "rate-limiting", "config": limits}}
	}
	assert.Equal(t, config(map[string]any{"second": 50, "minute": 500, "fault_tolerant": true}), d["plugins"])
	assert.Equal(t, []any{
		map[string]any{"name": "login", "methods": []any{"POST"}, "hosts": []any{"example.com"},
			"paths": []any{"~/(?i)login/*$"}, "regex_priority": 2,
			"plugins": config(map[string]any{"minute": 5, "fault_tolerant": false})},
		map[string]any{"name": "v1", "methods": []any{"GET", "HEAD"}, "paths": []any{"~/(?i)v1(/|$)"}, "regex_priority": 2,
			"plugins": config(map[string]any{"second": 50, "minute": 500, "day": 9000, "fault_tolerant": true})},
	}, service["routes"])
}

// A request that matches two overlapping rules has one route in Kong.
func TestKongReportsCrossingRules(t *testing.T) {
	out := exported(t, "kong", `
ipv6_bits: 128
rules:
- {name: reads, pattern: GET /v1/, policies: 100/1m}
- {name: orders, pattern: /v1/orders, policies: 10/1m}
- {name: login, pattern: POST /login, policies: 5/1m}`)
	const reason = "some of its requests take the routes of other rules (1): Kong counts each route by itself, " +
		"by the rules that cover it"
	assert.Equal(t, []string{`rule "reads": ` + reason, `rule "orders": ` + reason}, gaps(out))
}

// Kong takes the matching route with the highest priority.
func TestNarrowerKongRouteHasPriority(t *testing.T) {
	const rules = `
rules:
- {name: beneath, pattern: /v1/, policies: 5/1m}
- {name: exact, pattern: /v1, policies: 5/1m}
- {name: wildcard, pattern: "/v1/{id}", policies: 5/1m}
- {name: orders, pattern: /v1/orders, policies: 5/1m}
- {name: post, pattern: POST /v1/orders, policies: 5/1m}`
	priorities := map[any]any{}
	for _, route := range kongOf(t, rules, export.Options{})["services"].([]any)[0].(map[string]any)["routes"].([]any) {
		route := route.(map[string]any)
		priorities[route["name"]] = route["regex_priority"]
	}
	assert.Equal(t, map[any]any{"beneath": 1, "exact": 2, "wildcard": 2, "orders": 3, "post": 4}, priorities)
}

// The output keeps the rules of Kong's own schema for routes and for this plugin.
func TestKongOutputMatchesItsSchema(t *testing.T) {
	text, err := os.ReadFile("testdata/all.yaml")
	require.NoError(t, err)
	for _, rules := range []string{string(text),
		"rules: [{name: root, pattern: '/{$}', policies: [7/1s, 5/1m, 5/1h, 4/1d]}, {name: all, " +
			"pattern: '/{path...}', policies: 1/1s}]"} {
		d := kongOf(t, rules, export.Options{})
		for _, service := range d["services"].([]any) {
			for _, route := range service.(map[string]any)["routes"].([]any) {
				route := route.(map[string]any)
				path := route["paths"].([]any)[0].(string)
				assert.Regexp(t, "^~/", path)
				assert.NotContains(t, path, "//")
				_, err := regexp.Compile(path[1:])
				assert.NoError(t, err)
				assert.Regexp(t, `^[\w.~-]+$`, route["name"])
				config := route["plugins"].([]any)[0].(map[string]any)["config"].(map[string]any)
				before := 0
				for _, period := range []string{"second", "minute", "hour", "day"} {
					if n, ok := config[period].(int); ok {
						assert.GreaterOrEqual(t, n, before, "%s: %s", route["name"], period)
						before = n
					}
				}
				assert.Positive(t, before, "there is at least one limit")
			}
		}
	}
}
