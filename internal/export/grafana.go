package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// grafana makes a dashboard, of what package serverside/metrics counts.
func grafana(e *exporter) string {
	d := &dashboard{
		Title: "Limits of " + plain(filepath.Base(e.File)), Tags: []string{"rate limits"}, Schema: 39, Refresh: "30s",
		Time:       object{"from": "now-6h", "to": "now"},
		Templating: object{"list": []any{object{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}}},
	}
	d.row("All rules")
	d.graph("Decisions", "How requests were decided.", "reqps", series{"{{verdict}}", "sum by (verdict) (rate(rate_limit_decisions_total[$__rate_interval]))"})
	d.graph("Denied", "The part of all decisions that are denials. More than 5 % for long is an alarm.", "percentunit",
		series{"all", "sum(rate(rate_limit_exceeded_total[$__rate_interval])) / sum(rate(rate_limit_decisions_total[$__rate_interval]))"})
	d.graph("Time to decide", "With the wait for the Store. More than 0.1 s is an alarm.", "s",
		series{"99 %", "histogram_quantile(0.99, sum by (le) (rate(rate_limit_check_duration_seconds_bucket[$__rate_interval])))"},
		series{"50 %", "histogram_quantile(0.5, sum by (le) (rate(rate_limit_check_duration_seconds_bucket[$__rate_interval])))"})
	d.graph("Store", "Whether it fails, and what becomes of requests.", "short",
		series{"unavailable", "max(rate_limit_redis_unavailable)"},
		series{"failures a second, {{mode}}", "sum by (mode) (rate(rate_limit_store_failures_total[$__rate_interval]))"},
		series{"uncounted a second", "sum(rate(rate_limit_fail_open_total[$__rate_interval]))"})
	d.graph("Keys that are denied most", "By hashes, as in the log.", "short", series{"{{strategy}} {{key}}", "topk(10, sum by (strategy, key) (rate_limit_top_denials))"})
	d.graph("How close clients come", "The least part of a quota that was left. At 0, somebody is denied.", "percentunit",
		series{"{{strategy}}", "min by (strategy) (rate_limit_headroom_ratio)"})
	for _, r := range e.Rules {
		_, texts := policiesOf(&r)
		labels := fmt.Sprintf("{endpoint=%s, strategy=%s}[$__rate_interval]", label(endpoint(r.Rule.Pattern)), label(r.Rule.Name))
		name, limits := plain(r.Rule.Name), plain(strings.Join(texts, ", ")+", by "+r.Key)
		d.row(name)
		denied := series{"denied", "sum(rate(rate_limit_exceeded_total" + labels + "))"}
		if r.Rule.DryRun {
			denied = series{"would be denied", "sum(rate(rate_limit_would_exceed_total" + labels + "))"}
		}
		d.graph(name+": denials", limits, "reqps", denied)
		d.graph(name+": signs", limits, "reqps", series{"near the limit", "sum(rate(rate_limit_near_limit_total" + labels + "))"},
			series{"hot keys", "sum(rate(rate_limit_hot_keys_total" + labels + "))"}, series{"penalties", "sum(rate(rate_limit_penalties_total" + labels + "))"})
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		panic(err) // of plain values, it cannot be
	}
	return b.String()
}

// A dashboard is one of Grafana.
type dashboard struct {
	Title      string   `json:"title"`
	Tags       []string `json:"tags"`
	Schema     int      `json:"schemaVersion"`
	Refresh    string   `json:"refresh"`
	Time       object   `json:"time"`
	Templating object   `json:"templating"`
	Panels     []panel  `json:"panels"`

	x, y int // where the next panel begins
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description,omitempty"`
	Place       place  `json:"gridPos"`
	Source      object `json:"datasource,omitempty"`
	Fields      object `json:"fieldConfig,omitempty"`
	Targets     []any  `json:"targets,omitempty"`
}

// A place is one in a grid that is 24 columns wide.
type place struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// A series is a query, and what it is called.
type series struct{ legend, expr string }

// row begins a row.
func (d *dashboard) row(title string) {
	if d.x > 0 {
		d.x, d.y = 0, d.y+8
	}
	d.Panels = append(d.Panels, panel{ID: len(d.Panels) + 1, Type: "row", Title: title, Place: place{0, d.y, 24, 1}})
	d.y++
}

// graph adds a graph of series, two in a row.
func (d *dashboard) graph(title, description, unit string, all ...series) {
	source := object{"type": "prometheus", "uid": "${source}"}
	p := panel{ID: len(d.Panels) + 1, Type: "timeseries", Title: title, Description: description, Place: place{d.x, d.y, 12, 8}, Source: source,
		Fields: object{"defaults": object{"unit": unit, "min": 0}, "overrides": []any{}}}
	for i, s := range all {
		p.Targets = append(p.Targets, object{"refId": string(rune('A' + i)), "datasource": source, "expr": s.expr, "legendFormat": s.legend})
	}
	d.Panels = append(d.Panels, p)
	if d.x += 12; d.x == 24 {
		d.x, d.y = 0, d.y+8
	}
}

// variables are the signs by which Grafana knows its variables.
var variables = strings.NewReplacer("$", `\x24`, "[", `\x5b`)

// label is a label's value in PromQL, in which Grafana finds no variables.
func label(value string) string { return variables.Replace(quoted(value)) }

// plain is text for people, in which Grafana finds no variables.
func plain(text string) string {
	text = quoted(text)
	return strings.NewReplacer("$", "＄", "[[", "[ [").Replace(text[1 : len(text)-1])
}
