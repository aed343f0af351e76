package export

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// alerts are recording and alerting rules for the metrics of package serverside/metrics, with rates
// over alertsWindow.
//
//go:embed alerts.yml
var alerts string

const alertsWindow = 5 * time.Minute

var duration = regexp.MustCompile(`(\d+)([mh])\b`)

// prometheus writes alerts, with all durations scaled to Window, and the labels of the rules.
func prometheus(e *exporter) string {
	lines := []string{
		"Alerts for Prometheus on the limits of " + e.source() + ", made by heed rules export: name this",
		"file in rule_files. They use the metrics of package serverside/metrics. Adapt the thresholds.",
		"",
		"The label endpoint is a rule's pattern, and strategy its name. These rules have",
	}
	for _, r := range e.Rules {
		lines = append(lines,
			fmt.Sprintf("- endpoint=%s, strategy=%s", quoted(endpoint(r.Rule.Pattern)), quoted(r.Rule.Name)))
	}
	return e.comment(lines...) + duration.ReplaceAllStringFunc(alerts, e.scaled)
}

// endpoint returns the label of metrics for a pattern.
func endpoint(pattern string) string {
	return strings.ToValidUTF8(cmp.Or(pattern, "/"), "\uFFFD")
}

// scaled returns a duration of alerts in proportion to Window, as Prometheus writes it: without
// fractions.
func (e *exporter) scaled(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text // duration matches nothing else
	}
	ms := d.Milliseconds() * e.Window.Milliseconds() / alertsWindow.Milliseconds()
	if ms%1000 != 0 {
		return fmt.Sprintf("%dms", ms)
	}
	return brief(time.Duration(ms) * time.Millisecond)
}
