package export

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// alerts are the alarms, for rates over five minutes. They hold for all rules.
//
//go:embed alerts.yml
var alerts string

// window is that of alerts.
const window = 5 * time.Minute

var duration = regexp.MustCompile(`(\d+)([mh])\b`)

// prometheus makes rules for Prometheus, on what package serverside/metrics counts.
func prometheus(e *exporter) string {
	lines := []string{
		"Alarms for Prometheus on the limits of " + e.source() + ", made by heed rules export: name the",
		"file in rule_files. They ask for what package serverside/metrics counts. Adapt the",
		"thresholds.",
		"",
		"The label endpoint is the pattern of a rule, and strategy its name. These rules have",
	}
	for _, r := range e.Rules {
		lines = append(lines, fmt.Sprintf("- endpoint=%s, strategy=%s", quoted(endpoint(r.Rule.Pattern)), quoted(r.Rule.Name)))
	}
	return hashed(e.comment(lines...)) + duration.ReplaceAllStringFunc(alerts, e.inProportion)
}

// endpoint is the label of a pattern.
func endpoint(pattern string) string {
	if pattern == "" {
		return "/"
	}
	return strings.ToValidUTF8(pattern, "\uFFFD")
}

// inProportion is a duration of alerts in proportion to Window, as Prometheus writes
// it, which has no fractions.
func (e *exporter) inProportion(text string) string {
	n, _ := strconv.Atoi(text[:len(text)-1])
	d := time.Duration(n) * map[byte]time.Duration{'m': time.Minute, 'h': time.Hour}[text[len(text)-1]]
	d = d / time.Minute * e.Window / (window / time.Minute)
	if d%time.Second != 0 {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return brief(d)
}
