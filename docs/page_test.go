package docs_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// section is what stands under a heading of the page, up to the next of its rank.
func section(t *testing.T, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, page), "\n"+title+"\n")
	require.True(t, found, title)
	rank, _, _ := strings.Cut(title, " ")
	for rank != "" {
		rest, _, _ = strings.Cut(rest, "\n"+rank+" ")
		rank = rank[1:]
	}
	return rest
}

// rows are the cells of a section's tables, without their heads.
func rows(text string) (all [][]string) {
	for _, table := range regexp.MustCompile(`(?m)(?:^\|.*\n)+`).FindAllString(text, -1) {
		for _, row := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
			all = append(all, strings.Split(strings.Trim(row, "| "), " | "))
		}
	}
	return all
}

// steps are the headings of the seven steps.
func steps(t *testing.T) []string {
	t.Helper()
	all := regexp.MustCompile(`(?m)^### \d\. .*$`).FindAllString(read(t, page), -1)
	require.Len(t, all, 7)
	return all
}

// Each step is shown, and what it shows of a program is a line of the quickstart, which
// runs, or of the example of package metrics. F205, F206, F208.
func TestTheStepsShowWhatRuns(t *testing.T) {
	quickstart := read(t, "../examples/quickstart/main.go")
	example := strings.ReplaceAll(read(t, "../serverside/metrics/example_test.go"), "prometheus.NewRegistry()", "prometheus.DefaultRegisterer")
	for _, step := range steps(t) {
		all := blocks(section(t, step))
		assert.NotEmpty(t, all, step)
		for _, b := range all {
			for line := range strings.Lines(b.text) {
				if b.language == "go" {
					assert.Contains(t, quickstart+example, strings.TrimSpace(line), step)
				}
			}
		}
	}
	assert.NotRegexp(t, `\d/\d*[smhd]\b|quota\.`, quickstart, "a limit in the source")
}

// What the steps say of each rule, put together, is the quickstart's rules. F205, F206.
func TestTheStepsMakeTheQuickstartsRules(t *testing.T) {
	made, rules := map[string]any{}, map[any]map[string]any{}
	for _, step := range steps(t) {
		for _, b := range blocks(section(t, step)) {
			if b.language == "yaml" {
				put(t, b.text, made, rules)
			}
		}
	}
	want, wanted := map[string]any{}, map[any]map[string]any{}
	file := read(t, "../examples/quickstart/rules.yaml")
	put(t, file, want, wanted)
	assert.Equal(t, want, made)
	assert.Equal(t, wanted, rules)

	cfg, err := rulefile.Parse("rules.yaml", []byte(file), rulefile.Env{Lenient: true})
	require.NoError(t, err)
	_, err = serverside.New(cfg)
	assert.NoError(t, err)
	assert.Len(t, rules, 4)
}

// put adds what a part of a rule file says to what is known of it and of its rules.
func put(t *testing.T, part string, file map[string]any, rules map[any]map[string]any) {
	t.Helper()
	var said map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(part), &said))
	for _, rule := range said["rules"].([]any) {
		name := rule.(map[string]any)["name"]
		if rules[name] == nil {
			rules[name] = map[string]any{}
		}
		maps.Copy(rules[name], rule.(map[string]any))
	}
	delete(said, "rules")
	maps.Copy(file, said)
}

func TestThePageHasAFirstLookForEachAlarm(t *testing.T) { // F193, F195, C45
	var alarms, explained []string
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(read(t, "../internal/export/alerts.yml"), -1) {
		alarms = append(alarms, "`"+m[1]+"`")
	}
	text := section(t, "## What to watch")
	for _, row := range rows(text) {
		explained = append(explained, row[0])
		assert.Regexp(t, `^\[.*\]\(#[\w-]+\)$`, row[2])
	}
	assert.Equal(t, alarms, explained)
	assert.Contains(t, text, "**False positives**")
}

// What the page calls a metric is one. F195, B46.
func TestThePageNamesMetricsThatThereAre(t *testing.T) {
	known := read(t, "metrics.md")
	named := regexp.MustCompile(`\brate_limit_\w+`).FindAllString(read(t, page), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		assert.Contains(t, known, "| `"+name+"` |")
	}
	log := read(t, "../serverside/log.go")
	for _, m := range regexp.MustCompile(`\brate_limit\.\w+`).FindAllString(read(t, page), -1) {
		assert.Contains(t, log, `"`+m+`"`)
	}
}

func TestTheChecklistBeforeGoingLiveHasTenItemsWithCode(t *testing.T) { // F199
	items := regexp.MustCompile(`(?m)^\d+\. (?:.*\n?(?:   .*\n)*)`).FindAllString(section(t, "### Before going live"), -1)
	require.Len(t, items, 10)
	for _, item := range items {
		assert.Regexp(t, `\]\([\w./#-]+\)`, item)
	}
	assert.Len(t, regexp.MustCompile(`(?m)^\d+\. `).FindAllString(section(t, "### In an incident"), -1), 6)
}

func TestThePageMapsTheRisksOfOWASP(t *testing.T) { // F197
	text := section(t, "## What it is for among the risks that OWASP lists")
	for _, risk := range []string{"API2", "API4", "API6", "API8", "API10", "A02", "A07", "A09", "A10"} {
		assert.Regexp(t, `\b`+risk+`\s`, text)
	}
	assert.Contains(t, text, "heed does none of this")
}
