package export_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/internal/gatewaytest"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// A caddy as distributions have it lacks the module, but knows its matchers: here
// each names its zone in a field of the response.
func TestCaddyMatchesWhatTheRulesAreFor(t *testing.T) {
	t.Parallel()
	out := exported(t, "caddy", `
ipv6_bits: 128
exempt: [GET /login/help]
allow: [{name: probe, peers: 192.0.2.7, policies: 9/1s}]
rules:
- {name: login, pattern: POST /login, policies: 2/1m}
- {name: item, pattern: "/v1/items/{id}", policies: [7/7s burst 3, 100/1h log]}
- {name: host, pattern: "Example.com/", policies: 3/1m}
- {name: all, policies: 40/1m}
- {name: cafe, pattern: /caf%C3%A9, policies: 1/1s}`)
	assert.Equal(t, []string{`allowance "probe": its own limit is left to the application: here there is none`,
		`rule "cafe": Caddy is not told of paths that need escapes: the rule is left out`}, gaps(out))
	assert.Contains(t, out.Text, "key {client_ip}\n\t\t\tevents 3\n\t\t\twindow 3s\n")
	assert.Contains(t, out.Text, "key {client_ip}\n\t\t\tevents 100\n\t\t\twindow 1h0m0s\n")

	zone := regexp.MustCompile(`(?s)\t\tzone (\w+) \{\n\t\t\tmatch (\{\n.*?\n\t\t\t\})`)
	var site strings.Builder
	for _, z := range zone.FindAllStringSubmatch(out.Text, -1) {
		site.WriteString("\t@" + z[1] + " " + z[2] + "\n\theader @" + z[1] + " +Zone " + z[1] + "\n")
	}
	url := gatewaytest.Caddy(t, out.Text[:strings.Index(out.Text, "(heed)")], site.String()+"\trespond ok")
	zones := func(method, path string, fields ...string) []string {
		found := send(t, method, url+path, fields...).Header["Zone"]
		slices.Sort(found)
		return found
	}
	assert.Equal(t, []string{"all", "login"}, zones("POST", "/login"))
	assert.Equal(t, []string{"all", "login"}, zones("POST", "//L%6FGIN/"))
	assert.Equal(t, []string{"all"}, zones("GET", "/login"))
	assert.Equal(t, []string{"all", "item_1h", "item_7s"}, zones(http.MethodGet, "/v1/items/7"))
	assert.Equal(t, []string{"all"}, zones(http.MethodGet, "/v1/items/7/x"))
	assert.Equal(t, []string{"all", "host"}, zones(http.MethodGet, "/", "Host", "EXAMPLE.com:80"))
	assert.Empty(t, zones(http.MethodGet, "/login/help"))
}

// A snippet that nobody imports is read, but nothing is made of it: what the module
// would reject is not seen, but all that gets out of its place is.
func TestCaddyReadsTheSnippet(t *testing.T) {
	t.Parallel()
	for _, o := range odd {
		l, err := rulefile.List("r.json", document(t, o[0], o[1], o[2], o[3], o[4]), rulefile.Env{Lenient: true})
		require.NoError(t, err)
		out, err := export.Export("caddy", l, export.Options{})
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, get(t, gatewaytest.Caddy(t, out.Text, "respond ok")).StatusCode)
	}
}
