package heed_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The acceptance list: every row names tests that carry its id, or says why it
// is not shown.

var updateFeatures = flag.Bool("update-features", false, "write the names of tests into docs/features.md")

const (
	features = "docs/features.md"
	remedy   = "go test -run Acceptance -update-features . enters who carries it"
)

// A feature is a row of the list.
type feature struct{ id, fact, shown string }

func (f feature) String() string { return fmt.Sprintf("| %s | %s | %s |", f.id, f.fact, f.shown) }

// reason is why f is not shown, if that is what stands there.
func (f feature) reason() (reason string, open bool) { return strings.CutPrefix(f.shown, "not: ") }

var (
	featureRow = regexp.MustCompile(`(?m)^\| ([FB]\d+) \| (.*) \| (.*) \|$`)
	shownBy    = regexp.MustCompile(`\[(\w+)\]\(\.\./([\w/]+_test\.go)\)`)
)

func readFeatures(t *testing.T) (page string, rows []feature) {
	b, err := os.ReadFile(features)
	require.NoError(t, err)
	for _, m := range featureRow.FindAllStringSubmatch(string(b), -1) {
		rows = append(rows, feature{m[1], m[2], m[3]})
	}
	return string(b), rows
}

func TestTheAcceptanceListHasEachRowOnce(t *testing.T) {
	_, rows := readFeatures(t)
	var want, got []string
	for i := range 220 {
		want = append(want, fmt.Sprintf("F%03d", i+1))
	}
	for i := range 77 {
		want = append(want, fmt.Sprintf("B%02d", i+1))
	}
	for _, row := range rows {
		got = append(got, row.id)
		assert.NotEmpty(t, row.fact, row.id)
	}
	assert.Equal(t, want, got)
}

func TestEachRowOfTheAcceptanceListIsShownOrSaysWhyNot(t *testing.T) {
	carried := ownersOfIDs(t)
	if *updateFeatures {
		writeFeatures(t, carried)
	}
	_, rows := readFeatures(t)
	open := 0
	for _, row := range rows {
		if reason, is := row.reason(); is {
			assert.Greater(t, len(reason), 20, "%s is not shown: why?", row.id)
			open++
			continue
		}
		tests := shownBy.FindAllStringSubmatch(row.shown, -1)
		assert.NotEmpty(t, tests, "%s names no test: %s", row.id, remedy)
		for _, m := range tests {
			assert.True(t, carried[row.id][owner{m[2], m[1]}], "%s of %s does not carry %s: %s", m[1], m[2], row.id, remedy)
		}
	}
	t.Logf("%d rows, %d of them shown", len(rows), len(rows)-open)
}

func TestNoTestCarriesAnIDThatIsNotInTheAcceptanceList(t *testing.T) {
	_, rows := readFeatures(t)
	known := map[string]bool{}
	for _, row := range rows {
		known[row.id] = true
	}
	for id, owners := range ownersOfIDs(t) {
		assert.True(t, known[id], "%s, in %v", id, slices.Collect(maps.Keys(owners)))
	}
}

// An owner is a test, fuzz target, example or benchmark, in a file.
type owner struct{ file, name string }

// ownersOfIDs finds who carries which id, in all modules: in a name, as in
// TestF074…, or in a comment before or within.
func ownersOfIDs(t *testing.T) map[string]map[owner]bool {
	carried, err := owners()
	require.NoError(t, err)
	return carried
}

// owners reads the files once, for all tests.
var owners = sync.OnceValues(func() (map[string]map[owner]bool, error) {
	carried := map[string]map[owner]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found, err := idsOf(path)
		for name, ids := range found {
			for _, id := range ids {
				if carried[id] == nil {
					carried[id] = map[owner]bool{}
				}
				carried[id][owner{filepath.ToSlash(path), name}] = true
			}
		}
		return err
	})
	return carried, err
})

var (
	idInComment = regexp.MustCompile(`\b[FB]\d{2,3}\b`)
	idsInName   = regexp.MustCompile(`^(?:Test|Fuzz|Example|Benchmark)((?:[FB]\d{2,3})*)`)
	idInName    = regexp.MustCompile(`[FB]\d+`)
)

// mayHaveID reports whether a letter of ids is before a digit.
func mayHaveID(text []byte) bool {
	for i, c := range text[:max(0, len(text)-1)] {
		if (c == 'F' || c == 'B') && '0' <= text[i+1] && text[i+1] <= '9' {
			return true
		}
	}
	return false
}

// idsOf is what each function of a file carries that is one of testing's.
func idsOf(path string) (map[string][]string, error) {
	text, err := os.ReadFile(path)
	if err != nil || !mayHaveID(text) { // which spares most of the parsing
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	ids := map[string][]string{}
	for _, decl := range file.Decls {
		f, isFunc := decl.(*ast.FuncDecl)
		if !isFunc || f.Recv != nil {
			continue
		}
		m := idsInName.FindStringSubmatch(f.Name.Name)
		if m == nil {
			continue
		}
		ids[f.Name.Name] = idInName.FindAllString(m[1], -1)
		begin := f.Pos()
		if f.Doc != nil {
			begin = f.Doc.Pos()
		}
		for _, c := range file.Comments {
			if begin <= c.Pos() && c.Pos() < f.End() {
				ids[f.Name.Name] = append(ids[f.Name.Name], idInComment.FindAllString(c.Text(), -1)...)
			}
		}
	}
	return ids, nil
}

// writeFeatures names in each row the tests that carry its id, if there are any.
func writeFeatures(t *testing.T, carried map[string]map[owner]bool) {
	page, rows := readFeatures(t)
	for _, row := range rows {
		var names []string
		for o := range carried[row.id] {
			names = append(names, fmt.Sprintf("[%s](../%s)", o.name, o.file))
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		page = strings.Replace(page, row.String(), feature{row.id, row.fact, strings.Join(names, "<br>")}.String(), 1)
	}
	require.NoError(t, os.WriteFile(features, []byte(page), 0o644))
}
