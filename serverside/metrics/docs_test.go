package metrics_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/metrics/clientside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const page = "../../docs/metrics.md"

// TestDocsAreWhatAScrapeShows keeps the page that people read.
func TestDocsAreWhatAScrapeShows(t *testing.T) {
	want := markdown(t)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go test -run TestDocs -update")
}

func TestAScrapeShowsAllThatIsDescribed(t *testing.T) {
	s := busy(t)
	descs := make(chan *prometheus.Desc)
	go func() {
		s.metrics.Describe(descs)
		close(descs)
	}()
	var described []string
	for d := range descs {
		described = append(described, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	var shown []string
	for _, f := range families(t, s.reg) {
		shown = append(shown, f.GetName())
	}
	assert.ElementsMatch(t, described, shown)
}

// A rules file, as far as it is read here.
type ruleFile struct {
	Groups []struct {
		Rules []alert
	}
}

type alert struct {
	Record, Alert, Expr, For string
	Annotations              struct{ Summary, Description string }
}

// alerts are the rules that are exported to Prometheus: those of alarms, and what is
// recorded.
func alerts(t *testing.T) (all []alert, recorded map[string]string) {
	var rules ruleFile
	require.NoError(t, yaml.Unmarshal([]byte(exported(t, "prometheus", "rules: [{policies: 1/1s}]", export.Options{})), &rules))
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

// exported is what rules are in the language of a target.
func exported(t testing.TB, target, rules string, o export.Options) string {
	l, err := rulefile.List("rules.yaml", []byte(rules), rulefile.Env{})
	require.NoError(t, err)
	out, err := export.Export(target, l, o)
	require.NoError(t, err)
	return out.Text
}

func TestAlarmsAskForWhatAScrapeShows(t *testing.T) {
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
			assert.True(t, shown[name] || ours, "%s is in no scrape, and not recorded", name)
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

// The queries of the dashboard are held to the same.
func TestTheDashboardAsksForWhatAScrapeShows(t *testing.T) {
	var text strings.Builder
	for series := range busy(t).scrape() {
		text.WriteString(series + "\n")
	}
	board := exported(t, "grafana", "rules: [{name: api, pattern: /v1/, policies: 1/1h}, {name: trial, dry_run: true, policies: 1/1h}]", export.Options{})
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

// busy is a site at which everything has happened.
func busy(t *testing.T) *site {
	store := &switched{}
	s := open(t, serverside.Config{Rules: []serverside.Rule{rule("api", "/v1/", quota.PerHour(1))}, Store: store})
	s.ask(2, "/v1/x")
	store.off.Store(true)
	s.ask(1, "/v1/x")
	return s
}

// busyClient has what a client shows to which everything has happened.
func busyClient(t *testing.T) *prometheus.Registry {
	reg := prometheus.NewPedanticRegistry()
	m, err := clientside.New(reg, clientside.Options{})
	require.NoError(t, err)
	req := httptest.NewRequest("GET", "http://example.com/", nil)
	m.Trace(nil).Decided(heed.Attempt{Request: req, Err: io.EOF, Cause: heed.CauseBackoff}, heed.Again, time.Second)
	m.Trace(nil).Refused(req, &heed.OverdueError{Cause: heed.CausePace})
	return reg
}

func families(t *testing.T, reg *prometheus.Registry) []*dto.MetricFamily {
	all, err := reg.Gather()
	require.NoError(t, err)
	return all
}

func markdown(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# What to watch of a limiter

` + "`serverside/metrics`" + ` counts for Prometheus what limiters of ` + "`serverside`" + ` do. It is a module of its own, so that
heed itself does not depend on a client of Prometheus.

` + "```go" + `
m, err := metrics.New(prometheus.DefaultRegisterer, metrics.Options{})
limiter, err := serverside.New(m.Instrument(cfg))
` + "```" + `

## Metrics

`)
	table(&b, families(t, busy(t).reg))
	b.WriteString(`
- ` + "`endpoint`" + ` is the pattern of a rule, ` + "`/`" + ` where it has none: never the path of a request.
- ` + "`strategy`" + ` is the name of a rule, or of an entry of the allow-list.
- ` + "`key`" + ` is a hash of whose quota it was, the same as in the log. An address can be guessed: who has the hash can confirm it.
- ` + "`verdict`" + ` is ` + "`admitted`, `refused`, `uncounted`" + ` (admitted because the Store failed) or ` + "`trusted`" + ` (the allow-list).
- ` + "`mode`" + ` is ` + "`open`, `closed` or `local`" + `; ` + "`result`" + ` is ` + "`applied` or `rejected`" + `.

There are as many series as there are rules, and at most ten keys for each (` + "`Options.TopKeys`" + `), whatever is sent.
Beyond a thousand rules, which only many changes of the configuration can bring, the others are counted as ` + "`other`" + `.
The top keys change with who is denied; if your Prometheus keeps series for long, turn them off and read the log.

Of each rule 128 keys are watched: one that has more than 1/128 of its denials is among them, and the count that is shown is
never too high. A key that stopped is forgotten after ten minutes.

## Questions

| Question | Answer |
|---|---|
| What part is denied? | ` + "`rate_limit:hit_ratio:rate5m`" + `, or ` + "`endpoint:rate_limit_hit_ratio:rate5m`" + `, which the alarms' file records |
| How bad does it get? | ` + "`endpoint:rate_limit_hit_ratio:p99_1h`" + `: below it 99 % of the time |
| Who is denied most? | ` + "`topk(10, sum by (strategy, key) (rate_limit_top_denials))`" + `: addresses by the rules of addresses, users by those of users |
| How close do clients come? | ` + "`rate_limit_headroom_ratio`, `rate_limit_near_limit_total`" + `; for most, ` + "`histogram_quantile(0.05, sum by (le, endpoint) (rate(rate_limit_remaining_ratio_bucket[5m])))`" + ` |
| What would a new rule do? | set DryRun and look at ` + "`rate_limit_would_exceed_total`" + ` |
| Who was denied by mistake? | no server knows. Count the support tickets that name a 429, beside ` + "`rate_limit_exceeded_total`" + ` by strategy |

## Alarms

` + "`heed rules export prometheus FILE`" + ` prints them ([alerts.yml](../internal/export/alerts.yml)), with ` + "`-window`" + ` for rates over
another time than five minutes. Tests see to it that they ask for nothing that is not there, and have a Prometheus raise
and end them.

| Alarm | When | For | Meaning |
|---|---|---|---|
`)
	all, _ := alerts(t)
	for _, a := range all {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", a.Alert, a.Expr, cmp.Or(a.For, "at once"), a.Annotations.Description)
	}
	b.WriteString(`
## Clients

` + "`serverside/metrics/clientside`" + ` counts what a ` + "`heed.Transport`" + ` does.

` + "```go" + `
m, err := clientside.New(prometheus.DefaultRegisterer, clientside.Options{})
client := &http.Client{Transport: &heed.Transport{Trace: m.Trace(nil)}}
` + "```" + `

`)
	table(&b, families(t, busyClient(t)))
	b.WriteString(`
- ` + "`host`" + ` is one of the first hundred hosts (` + "`Options.Hosts`" + `), or ` + "`other`" + `.
- ` + "`outcome`" + ` is the class of the status, such as ` + "`5xx`, but `429` and `503`" + ` on their own, or ` + "`error`" + `.
- ` + "`verdict`" + ` is what followed, in the words of ` + "`heed.Verdict`" + `: ` + "`sum(heed_attempts_total{verdict=\"again\"})`" + ` are the retries.
- ` + "`cause`" + ` is why a request waited, or would have had to: ` + "`hint`, `backoff`, `cool-down` or `pace`" + `.
`)
	b.WriteString("\nThis page is generated from a scrape: `cd serverside/metrics && go test -run TestDocs -update`.\n")
	return b.String()
}

// table lists families by name.
func table(b *strings.Builder, all []*dto.MetricFamily) {
	b.WriteString("| Name | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, f := range all {
		var labels []string
		for _, label := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		slices.Sort(labels)
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
}
