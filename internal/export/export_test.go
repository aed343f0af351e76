package export_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/serverside/rulefile"
)

var update = flag.Bool("update", false, "write testdata/*")

func listing(t testing.TB, text string) *rulefile.Listing {
	t.Helper()
	l, err := rulefile.List("rules.yaml", []byte(text), rulefile.Env{Lenient: true})
	require.NoError(t, err)
	return l
}

func exported(t testing.TB, target, rules string, o ...export.Options) export.Output {
	t.Helper()
	out, err := export.Export(target, listing(t, rules), append(o, export.Options{})[0])
	require.NoError(t, err)
	return out
}

// gaps returns the texts of an Output's gaps.
func gaps(out export.Output) (all []string) {
	for _, g := range out.Gaps {
		all = append(all, g.Of+": "+g.Reason)
	}
	return all
}

// Each file of testdata/*.yaml is exported to each target.
func TestOutputsEqualTestdata(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, target := range export.Targets() {
			out := exported(t, target, string(text))
			golden := strings.TrimSuffix(file, "yaml") + target + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(out.Text), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err, "run go test ./internal/export -update")
			assert.Equal(t, string(want), out.Text, golden)
		}
	}
}

func TestGapsAreCommentsInTheOutput(t *testing.T) {
	text, err := os.ReadFile("testdata/all.yaml")
	require.NoError(t, err)
	for _, target := range export.Targets() {
		out := exported(t, target, string(text))
		for _, g := range out.Gaps {
			plain := strings.NewReplacer("\\\"", "\"", "\\\\", "\\").Replace(out.Text) // in JSON
			assert.Contains(t, plain, g.Reason, target)
			assert.Regexp(t, `^rules.yaml:\d+:\d+: warning: `, g.String())
		}
	}
}

func TestUnknownTargetErrorListsTheTargets(t *testing.T) {
	l := listing(t, "rules: [{policies: 1/1s}]")
	for target, want := range map[string]string{
		"ngnix": `unknown target "ngnix": did you mean "nginx"? (targets: grafana, kong, nginx, openapi, prometheus)`,
		"Prometheus": `unknown target "Prometheus": did you mean "prometheus"? (targets: grafana, kong, nginx, ` +
			`openapi, prometheus)`,
		"caddy": `unknown target "caddy" (targets: grafana, kong, nginx, openapi, prometheus)`,
		"":      `unknown target "" (targets: grafana, kong, nginx, openapi, prometheus)`,
	} {
		assert.EqualError(t, export.CheckTarget(target), want)
		_, err := export.Export(target, l, export.Options{})
		assert.EqualError(t, err, "export: "+want)
	}
	for _, target := range export.Targets() {
		assert.NoError(t, export.CheckTarget(target))
	}
}

func TestLimitsAreDividedAmongGateways(t *testing.T) {
	out := exported(t, "nginx", "rules: [{name: api, policies: 10/1s}]", export.Options{Times: 5})
	assert.Contains(t, out.Text, "rate=50r/s")
	assert.Contains(t, out.Text, "burst=49 nodelay")
	for _, times := range []int64{-1, 1001} {
		_, err := export.Export("nginx", listing(t, "rules: [{policies: 1/1s}]"), export.Options{Times: times})
		assert.EqualError(t, err, fmt.Sprintf("export: times is %d: it must be 1 to 1000", times))
	}
}

// Names of keys matter only to the store.
func TestNamedAddressIsAnAddress(t *testing.T) {
	plain := exported(t, "nginx", "rules:\n- {name: a, pattern: /login, policies: 6/1m}\n")
	named := exported(t, "nginx",
		"key: 'named(ip, ip)'\nrules:\n- {name: a, pattern: /login, key: 'named(login, named(b, ip))', policies: 6/1m}\n")
	assert.Equal(t, plain, named)
	assert.Equal(t, plain,
		exported(t, "nginx", "key: 'named(ip, ip)'\nrules:\n- {name: a, pattern: /login, policies: 6/1m}\n"))
	assert.Len(t,
		exported(t, "nginx", "rules:\n- {name: a, stage: after-auth, key: 'named(login, user)', policies: 5/1m}\n").Gaps, 1)
}
