package heed_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
)

// textOf is a file's, without regard to where its lines end.
func textOf(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.Join(strings.Fields(string(b)), " ")
}

// section is what stands below a heading of docs/deployment.md.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(textOf(t, "docs/deployment.md"), "## "+heading+" ")
	require.True(t, found, heading)
	text, _, _ := strings.Cut(rest, " ## ")
	return text
}

func TestTheDocumentationSaysWhenNoLimiterIsNeeded(t *testing.T) { // F026
	text := section(t, "When you do not need this")
	for _, when := range []string{"**Before launch.**", "**Internal, behind the company's VPN.**", "**Entirely behind an edge that limits**, such as Cloudflare's or Vercel's."} {
		assert.Contains(t, text, "- "+when)
	}
	assert.Contains(t, textOf(t, "README.md"), "**When do I not need a limiter?** [Before launch, behind a VPN, behind an edge that limits](docs/deployment.md)")
}

func TestTheDocumentationShowsWhereToCount(t *testing.T) { // F075, F096
	text := section(t, "Four places to count")
	for place, with := range map[string]string{
		"memory":     "`" + reflect.TypeFor[quota.Memory]().String() + "`",
		"Redis":      "`" + reflect.TypeFor[redisstore.Store]().String() + "`",
		"gateway":    "`heed rules export` makes [its configuration](exports.md) of your rules",
		"middleware": "`" + reflect.TypeFor[serverside.Limiter]().String() + "`",
	} {
		assert.Regexp(t, `\| `+place+` \| [^|]+ \| [^|]+ \| `+regexp.QuoteMeta(with), text)
	}
	for _, picture := range []string{"clients ──► service └─ quota.Memory", "──► service ──┼──► Redis", "clients ──► gateway ──► services ──► Redis"} {
		assert.Contains(t, text, picture)
	}
}

func TestTheDocumentationSaysWhoLimitsWhat(t *testing.T) { // F202
	text := section(t, "What belongs to the gateway, and what to the application")
	assert.Contains(t, text, "The gateway is the outer defence, and coarse")
	assert.Contains(t, text, "The application is the inner one: users, tenants and tokens")
	assert.Contains(t, text, "**Never the same limit in both.**")
}

func TestTheDocumentationNamesTheAlternatives(t *testing.T) { // F185
	text := section(t, "What else there is")
	for _, name := range []string{"golang.org/x/time/rate", "limit_req_zone", "express-rate-limit", "@fastify/rate-limit", "hono-rate-limiter", "httprate"} {
		assert.Contains(t, text, "`"+name+"`")
	}
	assert.Contains(t, fileImports(t, "pace/with.go"), "golang.org/x/time/rate", "which heed uses as well")
}

// F138, F139: RFC 6585 has defined the status and nothing else; RFC 7231 is obsolete.
func TestStandardsAreCitedForWhatTheyDefine(t *testing.T) {
	assert.Contains(t, textOf(t, "README.md"), "The status 429 is RFC 6585's; `Retry-After` is section 10.2.3 of RFC 9110, which has replaced RFC 7231")
	of429 := regexp.MustCompile(`429|RFC 6585 section 4`) // which is that of 429
	for _, file := range filesWith(t, ".go", ".md", ".lua") {
		if strings.HasSuffix(file, "_test.go") || file == features {
			continue
		}
		text := textOf(t, file)
		for _, at := range regexp.MustCompile(`6585`).FindAllStringIndex(text, -1) {
			assert.Regexp(t, of429, text[max(0, at[0]-60):min(len(text), at[1]+60)], file)
		}
		for _, at := range regexp.MustCompile(`RFC 723[0-5]`).FindAllStringIndex(text, -1) {
			assert.Contains(t, text[max(0, at[0]-40):at[1]], "replaced", "%s: cite RFC 9110", file)
		}
	}
}

// filesWith are all files with one of suffixes, in all modules.
func filesWith(t *testing.T, suffixes ...string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		for _, suffix := range suffixes {
			if strings.HasSuffix(path, suffix) {
				files = append(files, filepath.ToSlash(path))
			}
		}
		return nil
	}))
	return files
}

func TestNoLinkOfTheDocumentationLeadsNowhere(t *testing.T) { // F209
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchors := map[string][]string{} // of the pages that were linked to
	seen := 0
	for _, file := range filesWith(t, ".md") {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			seen++
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(path); !assert.NoError(t, err, "%s links to %s", file, m[1]) || anchor == "" {
				continue
			}
			if anchors[path] == nil {
				anchors[path] = anchorsOf(t, path)
			}
			assert.Contains(t, anchors[path], anchor, "%s links to %s", file, m[1])
		}
	}
	assert.Greater(t, seen, 50)
}

var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchorsOf is what GitHub makes of a page's headings.
func anchorsOf(t *testing.T, page string) (anchors []string) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		kept := notInAnchor.ReplaceAllString(strings.ToLower(h[1]), "")
		anchors = append(anchors, strings.ReplaceAll(kept, " ", "-"))
	}
	return anchors
}

// F208: limits come from whoever runs the program. What is written into the source
// stands here, with the reason. (Those of vendors, which stand-ins have, are the vendors'.)
func TestNoLimitIsWrittenIntoTheSource(t *testing.T) {
	reasons := map[string]string{
		"quota.PerMinute(5) in serverside/penalty.go":     "Logins is a preset, and a Rule that may be changed",
		"Quota: 1e6 in serverside/penalty.go":             "microseconds in a second",
		"Quota: 1_000_000 in redisstore/lease_holders.go": "counts who shares a lease, and limits nobody",
	}
	found := map[string]bool{}
	elsewhere := regexp.MustCompile(`_test\.go$|^(examples|benchmarks|quota/quotatest|serverside/profiles|internal/\w+test)/|^testserver/vendors.go$`)
	for _, file := range filesWith(t, ".go") {
		if elsewhere.MatchString(file) {
			continue
		}
		for _, limit := range limitsIn(t, file) {
			found[limit+" in "+file] = true
		}
	}
	for limit := range found {
		assert.Contains(t, reasons, limit)
	}
	for limit := range reasons {
		assert.Contains(t, found, limit, "is gone: strike the reason")
	}
}

var limitWords = []string{".PerSecond", ".PerMinute", ".PerHour", ".PerDay", "Quota:", "MaxInFlight:"}

// limitsIn are the policies in a file that have a number of units, but for those of
// one: they stand for any.
func limitsIn(t *testing.T, file string) (limits []string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	if !slices.ContainsFunc(limitWords, func(word string) bool { return bytes.Contains(text, []byte(word)) }) {
		return nil // which spares most of the parsing
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
	require.NoError(t, err)
	per := regexp.MustCompile(`^Per(Second|Minute|Hour|Day)$`)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name, isName := n.Fun.(*ast.SelectorExpr)
			if !isName || !per.MatchString(name.Sel.Name) || len(n.Args) != 1 {
				return true
			}
			if number, isNumber := n.Args[0].(*ast.BasicLit); isNumber && number.Value != "1" {
				limits = append(limits, fmt.Sprintf("quota.%s(%s)", name.Sel.Name, number.Value))
			}
		case *ast.KeyValueExpr:
			key, isKey := n.Key.(*ast.Ident)
			number, isNumber := n.Value.(*ast.BasicLit)
			if isKey && isNumber && number.Value != "1" && (key.Name == "Quota" || key.Name == "MaxInFlight") {
				limits = append(limits, key.Name+": "+number.Value)
			}
		}
		return true
	})
	return limits
}
