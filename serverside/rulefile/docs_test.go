package rulefile_test

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

var update = flag.Bool("update", false, "write docs/rules.md")

const page = "../../docs/rules.md"

// TestDocsHaveTheFieldsThatAreRead keeps docs/rules.md and the code together.
func TestDocsHaveTheFieldsThatAreRead(t *testing.T) {
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	tables, seen := rulefile.Tables(), 0
	block := regexp.MustCompile(`(?m)<!-- (\w+) -->\n\n?(?:\|.*\n)*`)
	want := block.ReplaceAllFunc(written, func(b []byte) []byte {
		name := string(block.FindSubmatch(b)[1])
		require.Contains(t, tables, name)
		seen++
		return []byte("<!-- " + name + " -->\n\n" + tables[name])
	})
	assert.Equal(t, len(tables), seen)
	if *update {
		require.NoError(t, os.WriteFile(page, want, 0o644))
		return
	}
	assert.Equal(t, string(want), string(written), "run go test ./serverside/rulefile -run TestDocs -update")
}

func TestDocsShowWhatIsRead(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	require.Len(t, examples, 1)
	_, err = rulefile.Parse("rules.yaml", examples[0][1], rulefile.Env{})
	assert.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| (`\\d+/.*?) \\|").FindAllSubmatch(text, -1)
	require.Len(t, rows, 8)
	for _, row := range rows {
		for _, short := range regexp.MustCompile("`(.*?)`").FindAllSubmatch(row[1], -1) {
			p, err := rulefile.ParsePolicy(string(short[1]))
			require.NoError(t, err)
			_, err = p.Compile()
			assert.NoError(t, err, string(short[1]))
		}
	}
}

// A field that serverside or quota gets is one of the file's, or stands here.
func TestAFileHasAllFieldsButThoseOfThePrograms(t *testing.T) { // B48
	ofPrograms := map[string][]string{
		"file":    {"Store", "Gate", "Audit", "Observe", "Description", "InContext"},
		"penalty": {"OnViolations"},
	}
	for name, value := range map[string]any{
		"file": serverside.Config{}, "rule": serverside.Rule{}, "tier": serverside.Tier{}, "policy": quota.Policy{},
		"penalty": serverside.Penalty{}, "allowance": serverside.Allow{},
	} {
		read := rulefile.Goes()[name]
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			assert.NotEqual(t, read[field.Name], slices.Contains(ofPrograms[name], field.Name), "%s: %s", name, field.Name)
		}
	}
}
