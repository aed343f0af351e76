package export_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A board is the part of a dashboard that tests check.
type board struct {
	Title      string
	Templating struct{ List []struct{ Name, Type string } }
	Panels     []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Datasource  struct{ UID string }
		Targets     []struct{ RefID, Expr string }
	}
}

func boardOf(t *testing.T, text string) (b board) {
	require.NoError(t, json.Unmarshal([]byte(text), &b))
	return b
}

func TestPanelsHavePositionsAndSources(t *testing.T) {
	text, err := os.ReadFile("testdata/all.grafana.golden")
	require.NoError(t, err)
	b := boardOf(t, string(text))
	require.Equal(t, "source", b.Templating.List[0].Name)
	ids, taken := map[int]bool{}, map[[2]int]bool{}
	for _, p := range b.Panels {
		assert.False(t, ids[p.ID], "%d is there twice", p.ID)
		ids[p.ID] = true
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				assert.False(t, taken[[2]int{x, y}], "%s is on top of another", p.Title)
				taken[[2]int{x, y}] = true
			}
		}
		if p.Type == "row" {
			assert.Empty(t, p.Targets)
			continue
		}
		assert.Equal(t, "timeseries", p.Type)
		assert.Equal(t, "${source}", p.Datasource.UID)
		assert.NotEmpty(t, p.Targets)
	}
}

// Promtool reads the queries as rules that record them.
func TestPromtoolAcceptsPanelQueries(t *testing.T) {
	out := exported(t, "grafana", `
rules:
- {name: '$x "\ [[y', pattern: '/é/"$a', policies: 1/1s}`)
	var rules strings.Builder
	rules.WriteString("groups:\n- name: queries\n  rules:\n")
	for _, p := range boardOf(t, out.Text).Panels {
		for _, target := range p.Targets {
			expr, err := json.Marshal(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			require.NoError(t, err)
			assert.NotContains(t, string(expr), "$", "a variable of Grafana")
			rules.WriteString("  - {record: query" + string(rune('a'+p.ID)) + target.RefID + ", expr: " + string(expr) + "}\n")
		}
	}
	assert.True(t, utf8.ValidString(out.Text))
	promtool(t, "check", rules.String())
}

// Every alert has a panel.
func TestDashboardCoversAllAlerts(t *testing.T) {
	out := exported(t, "grafana", "rules: [{name: trial, dry_run: true, policies: 1/1s}]")
	for _, name := range []string{"rate_limit_exceeded_total", "rate_limit_redis_unavailable",
		"rate_limit_check_duration_seconds_bucket",
		"rate_limit_hot_keys_total", "rate_limit_fail_open_total", "rate_limit_would_exceed_total"} {
		assert.Contains(t, out.Text, name)
	}
	assert.Empty(t, out.Gaps)
}
