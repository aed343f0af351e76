package export_test

import (
	"flag"
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

// gaps are what an Output's gaps say.
func gaps(out export.Output) (all []string) {
	for _, g := range out.Gaps {
		all = append(all, g.Of+": "+g.Reason)
	}
	return all
}

// Each file of testdata/*.yaml is exported to each target. F014.
func TestOutputsAreThoseOfTestdata(t *testing.T) {
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

func TestEachGapStandsInTheOutputToo(t *testing.T) {
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

func TestATargetThatThereIsNotIsAnErrorThatNamesThoseThereAre(t *testing.T) {
	l := listing(t, "rules: [{policies: 1/1s}]")
	_, err := export.Export("ngnix", l, export.Options{})
	assert.ErrorContains(t, err, `no target "ngnix"`)
	for _, target := range export.Targets() {
		assert.ErrorContains(t, err, target)
	}
	_, err = export.Export("nginx", l, export.Options{Times: -1})
	assert.ErrorContains(t, err, "is -1")
}

// C36: the guard may be several times as wide as the rules.
func TestGuardsAreAsManyTimesAsWideAsIsSaid(t *testing.T) {
	out := exported(t, "nginx", "rules: [{name: api, policies: 10/1s}]", export.Options{Times: 5})
	assert.Contains(t, out.Text, "rate=50r/s")
	assert.Contains(t, out.Text, "burst=49 nodelay")
	out = exported(t, "nginx", "rules: [{name: api, policies: 10/1s}]", export.Options{Times: 1 << 48})
	assert.Equal(t, []string{`rule "api": 281474976710656 times 10 is too large`}, gaps(out))
}

// A name space is for the store: an address is one under each.
func TestAnAddressThatIsNamedIsAnAddress(t *testing.T) {
	plain := exported(t, "nginx", "rules:\n- {name: a, pattern: /login, policies: 6/1m}\n")
	named := exported(t, "nginx", "key: 'named(ip, ip)'\nrules:\n- {name: a, pattern: /login, key: 'named(login, named(b, ip))', policies: 6/1m}\n")
	assert.Equal(t, plain, named)
	assert.Equal(t, plain, exported(t, "nginx", "key: 'named(ip, ip)'\nrules:\n- {name: a, pattern: /login, policies: 6/1m}\n"))
	assert.Len(t, exported(t, "nginx", "rules:\n- {name: a, stage: after-auth, key: 'named(login, user)', policies: 5/1m}\n").Gaps, 1)
}
