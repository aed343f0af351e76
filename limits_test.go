package heed_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The operator sets the limits. Numbers in the source are listed here with a reason. (Limits of
// vendors' stand-ins are the vendors' own.)
func TestNoLimitIsWrittenIntoTheSource(t *testing.T) {
	reasons := map[string]string{
		"quota.PerMinute(5) in serverside/login.go": "Logins is a preset, and a Rule that may be changed",
		"Quota: 80 in ratelimit/vendors.go":         "a vendor's", "Quota: 500 in ratelimit/vendors.go": "a vendor's",
		"Quota: 1e6 in cmd/heed/numbers.go":   "microseconds in a second",
		"Quota: 1e6 in serverside/penalty.go": "microseconds in a second",
	}
	found := map[string]bool{}
	elsewhere := regexp.MustCompile(
		`_test\.go$|^(examples|benchmarks|quota/quotatest|serverside/profiles|internal/\w+test)/|^testserver/vendors.go$`)
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
		assert.Contains(t, found, limit, "no longer there: delete the reason")
	}
}

var limitWords = []string{".PerSecond", ".PerMinute", ".PerHour", ".PerDay", "Quota:", "MaxInFlight:"}

// limitsIn returns the limits in a file that are written as numbers. A limit of one is not counted:
// it is only an example.
func limitsIn(t *testing.T, file string) (limits []string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	if !slices.ContainsFunc(limitWords, func(word string) bool { return bytes.Contains(text, []byte(word)) }) {
		return nil // most files need no parsing
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
