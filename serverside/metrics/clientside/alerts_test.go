package clientside_test

import (
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/serverside/metrics/clientside"
)

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command(testenv.Program(t, "promtool"), args...).CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

func TestPromtoolAcceptsTheAlerts(t *testing.T) {
	promtool(t, "check", "rules", "alerts.yml")
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "test", "rules", "testdata/alerts_test.yml")
}

// all is the text of a scrape in which each metric has each label.
func all(t *testing.T) string {
	m, reg := open(t, clientside.Options{})
	m.Watch(new(heed.LocalBudget))
	req, err := http.NewRequest("GET", "http://example.com", nil)
	require.NoError(t, err)
	trace := m.Trace(nil)
	trace.Waited(req, heed.CausePace, time.Second)
	for v := heed.Final; v <= heed.NotReplayable; v++ {
		trace.Decided(heed.Attempt{Number: 1, Request: req, Response: &http.Response{StatusCode: 429}}, v, 0)
	}
	trace.Refused(req, &heed.OverdueError{Cause: heed.CausePace})
	return shown(t, reg)
}

func TestAlertsAskForMetricsThatExist(t *testing.T) {
	scrape := all(t)
	expr := regexp.MustCompile(`(?s)expr: (.*?)\n +for:`)
	alerts := expr.FindAllStringSubmatch(clientside.Alerts, -1)
	require.Len(t, alerts, strings.Count(clientside.Alerts, "- alert:"))
	for _, alert := range alerts {
		for _, name := range regexp.MustCompile(`heed_\w+`).FindAllString(alert[1], -1) {
			assert.Regexp(t, `(?m)^`+name+`[{ ]`, scrape)
		}
		for _, pair := range regexp.MustCompile(`\w+="[^"]*"`).FindAllString(alert[1], -1) {
			assert.Contains(t, scrape, pair)
		}
		for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(alert[1], -1) {
			for label := range strings.SplitSeq(by[1], ", ") {
				assert.Contains(t, scrape, label+`="`)
			}
		}
	}
}

func TestAScrapeShowsEachMetric(t *testing.T) {
	m, err := clientside.New(nil, clientside.Options{})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc)
	go func() {
		m.Describe(descs)
		close(descs)
	}()
	scrape := all(t)
	for desc := range descs {
		name := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(desc.String())[1]
		assert.Regexp(t, `(?m)^`+name, scrape)
	}
}
