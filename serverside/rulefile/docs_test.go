package rulefile_test

import (
	"maps"
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

const page = "../../docs/rules.md"

// Each block of YAML in the docs is a rule file.
func TestDocsShowWhatIsRead(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		l, err := rulefile.List("rules.yaml", block[1], rulefile.Env{})
		require.NoError(t, err, string(block[1]))
		assert.Empty(t, l.Warnings, string(block[1]))
	}
}

func TestFileHasAllConfigFieldsExceptFunctions(t *testing.T) {
	ofPrograms := map[string][]string{
		"file":    {"Store", "Gate", "Audit", "Observe", "Description", "InContext", "Memory"},
		"penalty": {"OnViolations"},
		"policy":  {"MaxDebt"},
	}
	for name, value := range map[string]any{
		"file": serverside.Config{}, "rule": serverside.Rule{}, "tier": serverside.Tier{}, "policy": quota.Policy{},
		"penalty": serverside.Penalty{}, "login": serverside.Login{}, "allowance": serverside.Allow{},
	} {
		read := slices.Collect(maps.Values(rulefile.Fields()[name]))
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			isRead, isOfProgram := slices.Contains(read, field.Name), slices.Contains(ofPrograms[name], field.Name)
			assert.NotEqual(t, isRead, isOfProgram, "%s: %s", name, field.Name)
		}
	}
}
