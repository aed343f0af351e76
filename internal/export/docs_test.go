package export_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/export"
)

const page = "../../docs/exports.md"

// TestDocsShowWhatIsExported keeps the examples of docs/exports.md: what stands
// behind <!-- TARGET --> is made of the rules before it, without the first comment.
func TestDocsShowWhatIsExported(t *testing.T) { // F014, F202
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml\n([^`]*)```\n\n<!-- (\\w+) -->\n```(\\w*)\n.*?```\n")
	var seen []string
	want := example.ReplaceAllStringFunc(string(written), func(found string) string {
		part := example.FindStringSubmatch(found)
		seen = append(seen, part[2])
		out := exported(t, part[2], part[1])
		return "```yaml\n" + part[1] + "```\n\n<!-- " + part[2] + " -->\n```" + part[3] + "\n" + shown(t, part[2], out.Text) + "```\n"
	})
	assert.Equal(t, export.Targets(), seen)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(written), "run go test ./internal/export -run TestDocs -update")
}

// shown is what of an output stands in the documentation: of a dashboard, its queries.
func shown(t *testing.T, target, text string) string {
	if target != "grafana" {
		return afterHeader(text)
	}
	var b strings.Builder
	for _, p := range boardOf(t, text).Panels {
		if p.Type == "row" {
			b.WriteString("\n" + p.Title + "\n")
		}
		for _, target := range p.Targets {
			b.WriteString("  " + p.Title + ": " + target.Expr + "\n")
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// afterHeader is text without the comment that it begins with.
func afterHeader(text string) string {
	for strings.HasPrefix(text, "#") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.TrimLeft(text, "\n")
}
