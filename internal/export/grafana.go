package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// grafana writes a dashboard of the metrics of package serverside/metrics: a row for all rules, and one
// for each rule.
func grafana(e *exporter) string {
	d := &dashboard{
		Title: "Limits of " + title(filepath.Base(e.File)), Tags: []string{"rate limits"}, Schema: 39, Refresh: "30s",
		Time: object{"from": "now-6h", "to": "now"},
		Templating: object{"list": []any{
			object{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
		}},
	}
	d.all()
	for i := range e.Rules {
		r := &e.Rules[i]
		d.rule(title(r.Rule.Name), title(limitsOf(r)), label(endpoint(r.Rule.Pattern)), label(r.Rule.Name), r.Rule.DryRun)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		panic(err) // cannot happen: d has only strings, numbers, lists and maps
	}
	return b.String()
}

// all adds the row of all rules.
func (d *dashboard) all() {
	d.row("All rules")
	d.graph("Decisions", "How requests were decided.", "reqps",
		series{"{{verdict}}", "sum by (verdict) (" + rate("decisions_total") + ")"})
	d.graph("Denied", "The part of all decisions that are denials. More than 5 % for long is an alert.", "percentunit",
		series{"all", "sum(" + rate("exceeded_total") + ") / sum(" + rate("decisions_total") + ")"})
	d.graph("Time to decide", "With the wait for the store. More than 0.1 s is an alert.", "s",
		series{"99 %", "histogram_quantile(0.99, sum by (le) (" + rate("check_duration_seconds_bucket") + "))"},
		series{"50 %", "histogram_quantile(0.5, sum by (le) (" + rate("check_duration_seconds_bucket") + "))"})
	d.graph("Store", "Whether it fails, and what happens to requests then.", "short",
		series{"unavailable", "max(rate_limit_redis_unavailable)"},
		series{"failures a second, {{mode}}", "sum by (mode) (" + rate("store_failures_total") + ")"},
		series{"uncounted a second", "sum(" + rate("fail_open_total") + ")"})
	d.graph("Keys that are denied most", "By their hashes, as in the log.", "short",
		series{"{{strategy}} {{key}}", "topk(10, sum by (strategy, key) (rate_limit_top_denials))"})
	d.graph("How close clients come", "The least part of a quota that was left. At 0, it denies.", "percentunit",
		series{"{{strategy}}", "min by (strategy) (rate_limit_headroom_ratio)"})
}

// rule adds the row of a rule, which two labels identify in metrics.
func (d *dashboard) rule(name, limits, endpoint, strategy string, dryRun bool) {
	sum := func(metric string) string {
		return "sum(" + rate(fmt.Sprintf("%s{endpoint=%s, strategy=%s}", metric, endpoint, strategy)) + ")"
	}
	denied := series{"denied", sum("exceeded_total")}
	if dryRun {
		denied = series{"would be denied", sum("would_exceed_total")}
	}
	d.row(name)
	d.graph(name+": denials", limits, "reqps", denied)
	d.graph(name+": signs", limits, "reqps", series{"near the limit", sum("near_limit_total")},
		series{"hot keys", sum("hot_keys_total")}, series{"penalties", sum("penalties_total")})
}

// rate returns a query for the rate of a counter.
func rate(counter string) string { return "rate(rate_limit_" + counter + "[$__rate_interval])" }

// A dashboard is a Grafana dashboard.
type dashboard struct {
	Title      string   `json:"title"`
	Tags       []string `json:"tags"`
	Schema     int      `json:"schemaVersion"`
	Refresh    string   `json:"refresh"`
	Time       object   `json:"time"`
	Templating object   `json:"templating"`
	Panels     []panel  `json:"panels"`

	x, y int // where the next panel is placed
}

type panel struct {
	ID          int      `json:"id"`
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description,omitempty"`
	Position    position `json:"gridPos"`
	Source      object   `json:"datasource,omitempty"`
	Fields      object   `json:"fieldConfig,omitempty"`
	Targets     []any    `json:"targets,omitempty"`
}

// A position is a position in a grid that is 24 columns wide.
type position struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// A series is a query and the name of its graph.
type series struct{ legend, query string }

// row begins a row.
func (d *dashboard) row(title string) {
	if d.x > 0 {
		d.x, d.y = 0, d.y+8
	}
	d.add(panel{Type: "row", Title: title, Position: position{0, d.y, 24, 1}})
	d.y++
}

// graph adds a graph. Two fit side by side.
func (d *dashboard) graph(title, description, unit string, all ...series) {
	source := object{"type": "prometheus", "uid": "${source}"}
	fields := object{"defaults": object{"unit": unit, "min": 0}, "overrides": []any{}}
	var targets []any
	for i, s := range all {
		id := string(rune('A' + i))
		targets = append(targets, object{"refId": id, "datasource": source, "expr": s.query, "legendFormat": s.legend})
	}
	d.add(panel{Type: "timeseries", Title: title, Description: description, Position: position{d.x, d.y, 12, 8},
		Source: source, Fields: fields, Targets: targets})
	if d.x += 12; d.x == 24 {
		d.x, d.y = 0, d.y+8
	}
}

func (d *dashboard) add(p panel) {
	p.ID = len(d.Panels) + 1
	d.Panels = append(d.Panels, p)
}

// Grafana replaces $name and [[name]] by the values of variables, in queries and in titles.

// label returns the value of a label for a query, without variables.
func label(value string) string {
	return strings.NewReplacer("$", `\x24`, "[", `\x5b`).Replace(quoted(value))
}

// title returns text for a title, without variables. It replaces the characters that make one, because
// titles have no escapes.
func title(text string) string {
	text = quoted(text)
	return strings.NewReplacer("$", "＄", "[[", "[ [").Replace(text[1 : len(text)-1])
}
