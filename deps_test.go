package heed_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// policy says which packages may import which, besides the standard library. Do not change it only
// to make a build pass. Tests may import anything.
const policy = `
	.                    < ratelimit internal/cool internal/hostkey internal/jwt internal/keyed internal/scope
	internal/cool        < ratelimit internal/adaptive internal/scope
	internal/lab         < . ratelimit
	internal/hostkey     <
	internal/jwt         <
	internal/keyed       < internal/hostkey
	internal/adaptive    <
	internal/scope       < ratelimit internal/hostkey internal/keyed
	ratelimit            < github.com/dunglas/httpsfv
	quota                <
	quota/quotatest      < quota
	contract             <
	testserver           < contract
	pace                 < . quota ratelimit internal/hostkey internal/keyed internal/adaptive internal/scope
	pace                 < internal/remote golang.org/x/time/rate
	redisstore           < quota internal/hostkey internal/keyed internal/remote github.com/redis/go-redis/v9
	serverside           < quota ratelimit internal/remote
	serverside/profiles  < serverside serverside/rulefile quota ratelimit
	serverside/live      < serverside ratelimit internal/explain internal/topk
	serverside/rulefile  < serverside quota ratelimit internal/spelling go.yaml.in/yaml/v3 github.com/fsnotify/fsnotify
	retryable            < . github.com/hashicorp/go-retryablehttp
	internal/testenv     <
	internal/daemon      <
	internal/redistest   < internal/daemon internal/testenv
	internal/gatewaytest < internal/daemon internal/testenv
	internal/load        <
	internal/explain     < ratelimit
	internal/faults      <
	internal/remote      <
	internal/spelling    <
	internal/topk        <
	internal/export      < serverside/rulefile serverside quota ratelimit internal/spelling go.yaml.in/yaml/v3
	cmd/...              < ...
	examples/...         < ...
`

const module = "github.com/heedhttp/heed"

func TestPackagesImportWhatThePolicyAllows(t *testing.T) {
	allowed := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(policy)) {
		name, imports, found := strings.Cut(line, "<")
		require.True(t, found, line)
		name = strings.TrimSpace(name)
		allowed[name] = append(allowed[name], strings.Fields(imports)...)
	}
	for dir, imports := range importsOf(t) {
		may, found := allowed[dir]
		if !found {
			top, _, _ := strings.Cut(dir, "/")
			may, found = allowed[top+"/..."]
		}
		if !assert.True(t, found, "the policy does not name package %s", dir) {
			continue
		}
		for _, name := range imports {
			assert.True(t, slices.Contains(may, name) || slices.Contains(may, "..."), "package %s may not import %s", dir, name)
		}
	}
}

// importsOf lists the imports of each package of the module, without its tests and the standard
// library.
func importsOf(t *testing.T) map[string][]string {
	all := map[string][]string{}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (isModule(name) || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir := path.Dir(filepath.ToSlash(name))
		all[dir] = append(all[dir], fileImports(t, name)...)
		return nil
	}))
	require.Contains(t, all, "ratelimit")
	return all
}

func isModule(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, "go.mod"))
	return len(found) > 0
}

func fileImports(t *testing.T, name string) (imports []string) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		switch within, ours := strings.CutPrefix(name, module); {
		case ours && within == "":
			imports = append(imports, ".")
		case ours:
			imports = append(imports, within[1:])
		case strings.Contains(strings.SplitN(name, "/", 2)[0], "."):
			imports = append(imports, name)
		}
	}
	return imports
}
