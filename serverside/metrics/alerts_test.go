package metrics_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/metrics"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// described are the names of all metrics.
func described(t *testing.T) (names []string) {
	m, err := metrics.New(nil, metrics.Options{})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc)
	go func() {
		m.Describe(descs)
		close(descs)
	}()
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range descs {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	return names
}

func TestAScrapeShowsAllThatIsDescribed(t *testing.T) {
	families, err := busy(t).reg.Gather()
	require.NoError(t, err)
	var shown []string
	for _, f := range families {
		shown = append(shown, f.GetName())
	}
	assert.ElementsMatch(t, described(t), shown)
}

// A ruleFile is a rules file for Prometheus, as far as these tests read it.
type ruleFile struct {
	Groups []struct {
		Rules []alert
	}
}

type alert struct {
	Record, Alert, Expr, For string
	Annotations              struct{ Summary, Description string }
}

// alerts returns the rules that are exported for Prometheus: alert rules, and expressions
// that are recorded.
func alerts(t *testing.T) (all []alert, recorded map[string]string) {
	var rules ruleFile
	text := exported(t, "prometheus", "rules: [{policies: 1/1s}]", export.Options{})
	require.NoError(t, yaml.Unmarshal([]byte(text), &rules))
	recorded = map[string]string{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				recorded[rule.Record] = rule.Expr
				continue
			}
			all = append(all, rule)
		}
	}
	return all, recorded
}

// exported returns rules in the language of a target.
func exported(t testing.TB, target, rules string, o export.Options) string {
	l, err := rulefile.List("rules.yaml", []byte(rules), rulefile.Env{})
	require.NoError(t, err)
	out, err := export.Export(target, l, o)
	require.NoError(t, err)
	return out.Text
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	shown, labels := map[string]bool{}, map[string]bool{}
	for series := range busy(t).scrape() {
		name, rest, _ := strings.Cut(series, "{")
		shown[name] = true
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(rest, -1) {
			labels[label[1]] = true
		}
	}
	all, recorded := alerts(t)
	check := func(expr, text string) {
		for _, name := range regexp.MustCompile(`[\w:]*rate_limit[\w:]*`).FindAllString(expr, -1) {
			_, ours := recorded[name]
			assert.True(t, shown[name] || ours, "%s is neither in a scrape nor recorded", name)
		}
		for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(by[1], ", ") {
				assert.True(t, labels[label], "there is no label %s", label)
			}
		}
		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
			assert.True(t, labels[label[1]], "there is no label %s", label[1])
		}
	}
	for _, expr := range recorded {
		check(expr, "")
	}
	names := map[string]string{}
	for _, a := range all {
		check(a.Expr, a.Annotations.Summary+a.Annotations.Description)
		names[a.Alert] = a.Expr
	}
	assert.Equal(t, "rate(rate_limit_exceeded_total[5m]) > 10", names["HighRateLimitViolations"])
	assert.Equal(t, "rate_limit_redis_unavailable > 0", names["RateLimitRedisDown"])
	assert.Contains(t, names["RateLimitHighLatency"], "> 0.1")
	assert.Contains(t, names, "RateLimitHitRatio")
	assert.Contains(t, names, "RateLimitHotKey")
}

func TestTheDashboardAsksForMetricsThatExist(t *testing.T) {
	var text strings.Builder
	for series := range busy(t).scrape() {
		text.WriteString(series + "\n")
	}
	board := exported(t, "grafana", `rules:
  - {name: api, pattern: /v1/, policies: 1/1h}
  - {name: trial, dry_run: true, policies: 1/1h}
`, export.Options{})
	names := regexp.MustCompile(`rate_limit_\w+`).FindAllString(board, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		assert.Regexp(t, "(?m)^"+name+"(\\{|$)", text.String(), "%s is in no scrape", name)
	}
	assert.Contains(t, board, `{endpoint=\"/v1/\", strategy=\"api\"}`)
	assert.Contains(t, text.String(), `{endpoint="/v1/",strategy="api"}`)
	for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(board, -1) {
		for label := range strings.SplitSeq(by[1], ", ") {
			assert.Contains(t, text.String(), label+`="`)
		}
	}
}

// busy is a site whose metrics all have a series.
func busy(t *testing.T) *site {
	store := &switched{}
	s := open(t, serverside.Config{Rules: []serverside.Rule{rule("api", "/v1/", quota.PerHour(1))}, Store: store})
	s.ask(2, "/v1/x")
	store.off.Store(true)
	s.ask(1, "/v1/x")
	return s
}
