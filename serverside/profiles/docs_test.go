package profiles_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/serverside/profiles"
)

var update = flag.Bool("update", false, "write docs/profiles.md")

const page = "../../docs/profiles.md"

// TestDocsAreWhatIsMeasured keeps docs/profiles.md as the files, the servers and the
// matrix have it.
func TestDocsAreWhatIsMeasured(t *testing.T) {
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	parts := map[string]string{"rules": rulesOfAll(t), "denials": denialsOfAll(t), "clients": clientsTable(), "matrix": matrixTables(inMemory(t))}
	seen := 0
	block := regexp.MustCompile(`(?s)<!-- (\w+) -->\n.*?<!-- end -->`)
	want := block.ReplaceAllFunc(written, func(b []byte) []byte {
		name := string(block.FindSubmatch(b)[1])
		require.Contains(t, parts, name)
		seen++
		return []byte("<!-- " + name + " -->\n\n" + parts[name] + "\n<!-- end -->")
	})
	require.Equal(t, len(parts), seen)
	if *update {
		require.NoError(t, os.WriteFile(page, want, 0o644))
		return
	}
	assert.Equal(t, string(want), string(written), "run go test ./serverside/profiles -run TestDocs -update")
}

// What a profile says that it follows, by number, is on the page.
func TestDocsExplainEveryNumber(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	number := regexp.MustCompile(`\bC\d\d\b`)
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (C\d\d) \|`).FindAllStringSubmatch(string(text), -1) {
		rows[row[1]] = true
	}
	sources, err := filepath.Glob("[a-z]*.go")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, file := range sources {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, c := range number.FindAllString(string(source), -1) {
			named[c] = true
		}
	}
	assert.Equal(t, slices.Sorted(maps.Keys(named)), slices.Sorted(maps.Keys(rows)))
}

// A ruleText is a rule as a file has it.
type ruleText struct {
	Name, Pattern, If, Stage, Key, Limits string
	Policies                              any
	Tiers                                 []struct {
		Name     string
		Policies any
	}
	MaxInFlight  int    `yaml:"max_in_flight"`
	Status       int    `yaml:"status"`
	OnStoreError string `yaml:"on_store_error"`
	Penalty      map[string]string
}

// rulesOfAll is a table for each file.
func rulesOfAll(t *testing.T) string {
	var b strings.Builder
	for _, p := range all {
		var file struct {
			Key, Style, Body string
			Rules            []ruleText
		}
		require.NoError(t, yaml.Unmarshal(profiles.File(p.file), &file))
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "### %s\n\n[%s](../serverside/profiles/%[2]s): fields `%s`, body `%s`.\n\n", p.name, p.file, file.Style, file.Body)
		b.WriteString("| requests | asked | whose | limit |\n|---|---|---|---|\n")
		for _, r := range file.Rules {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.requests(), r.asked(), r.whose(file.Key), r.limit())
		}
	}
	return b.String()
}

var conditions = map[string]string{
	"": "", "no_token": " without a token", "has_token": " with a token", "writing": ", except reads", "has_user": " of users", "no_user": " without a user", "no_user_writing": " without a user, except reads", "has_api_key": " with an API key",
}

func (r ruleText) requests() string {
	if r.Pattern == "" {
		return "all" + conditions[r.If]
	}
	return "`" + r.Pattern + "`" + conditions[r.If]
}

func (r ruleText) asked() string {
	if r.Stage == "" {
		return "before-auth"
	}
	return r.Stage
}

func (r ruleText) whose(otherwise string) string {
	switch {
	case r.Stage == "overload":
		return "all together"
	case r.Key == "":
		return "`" + otherwise + "`"
	default:
		return "`" + r.Key + "`"
	}
}

func (r ruleText) limit() string {
	parts := []string{policies(r.Policies)}
	for _, tier := range r.Tiers {
		parts = append(parts, tier.Name+": "+policies(tier.Policies))
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	if r.Limits != "" {
		parts = []string{"what `" + r.Limits + "` says; while it fails " + parts[0]}
	}
	if r.MaxInFlight > 0 {
		parts = append(parts, fmt.Sprintf("%d at the same time", r.MaxInFlight))
	}
	if r.Penalty != nil {
		parts = append(parts, fmt.Sprintf("only failures, and %s more of them are a wait of %s, then twice that", r.Penalty["after"], r.Penalty["first"]))
	}
	if r.Status != 0 {
		parts = append(parts, fmt.Sprintf("or %d", r.Status))
	}
	if r.OnStoreError != "" {
		parts = append(parts, r.OnStoreError+" while the store fails")
	}
	return strings.Join(parts, "; ")
}

// policies are policies in their short form.
func policies(p any) string {
	switch p := p.(type) {
	case string:
		return "`" + p + "`"
	case map[string]any:
		return fmt.Sprintf("`%v/%v%v`", p["quota"], p["window"], map[any]string{"fixed-window": " fixed", nil: ""}[p["algorithm"]])
	case []any:
		var all []string
		for _, one := range p {
			all = append(all, policies(one))
		}
		return strings.Join(all, ", ")
	}
	return ""
}

// denialsOfAll is what each profile answers to one request too many.
func denialsOfAll(t *testing.T) string {
	var b strings.Builder
	for _, j := range slow {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 1e8, time.UTC)))
			h := limited(t, j.config(options()))
			_, w := spend(h, 1000, j.what, append(j.fields, "X-Request-Id", "01HXY")...)
			fmt.Fprintf(&b, "%s, `%s`:\n\n```http\nHTTP/1.1 429 Too Many Requests\n", j.profile, j.what)
			for _, name := range slices.Sorted(maps.Keys(w.Header())) {
				fmt.Fprintf(&b, "%s: %s\n", name, w.Header().Get(name))
			}
			fmt.Fprintf(&b, "\n%s```\n\n", w.Body.String())
		})
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func clientsTable() string {
	var b strings.Builder
	b.WriteString("| client | makes |\n|---|---|\n")
	for _, c := range clients {
		fmt.Fprintf(&b, "| %s | %s |\n", c.name, c.does)
	}
	return b.String()
}

// matrixTables is a table for each profile, and one of what the clients break.
func matrixTables(results []result) string {
	var b strings.Builder
	cells, breaks := map[string]string{}, map[string]map[string]bool{}
	for _, r := range results {
		cells[r.profile+r.client+r.proxy] = r.short()
		if breaks[r.client] == nil {
			breaks[r.client] = map[string]bool{}
		}
		for _, id := range r.breaks {
			breaks[r.client]["`"+id+"`"] = true
		}
	}
	for _, j := range slow {
		fmt.Fprintf(&b, "%s, %d times `%s`:\n\n| client | Retry-After as it is | a date | stripped |\n|---|---|---|---|\n", j.profile, j.n, j.what)
		for _, c := range clients {
			fmt.Fprintf(&b, "| %s |", c.name)
			for _, p := range proxies {
				fmt.Fprintf(&b, " %s |", cells[j.profile+c.name+p.name])
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	b.WriteString("| client | clauses of [the contract](contract.md) that it breaks in one or other of these runs |\n|---|---|\n")
	for _, c := range clients {
		fmt.Fprintf(&b, "| %s | %s |\n", c.name, orNone(slices.Sorted(maps.Keys(breaks[c.name]))))
	}
	return b.String()
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
