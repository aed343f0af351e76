package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The measures of a picture, in pixels.
const (
	pictureWidth = 960
	margin       = 24
	columnWidth  = 456 // from one column of charts to the other
	labels       = 96  // at the left, for the names of libraries
	plotWidth    = 260 // of the longest bar
	rowHeight    = 18
	barHeight    = 12
	chartHead    = 40 // of a chart's title
	pictureHead  = 76 // of the picture's own
)

// clip is how many times longer than the bar of heed, or its target, a bar may be before it is cut.
const clip = 6

// style is legible on light and dark pages.
const style = `
	text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a }
	.title { font-size: 19px; font-weight: 600; fill: #1f2328 }
	.name { font-size: 14px; font-weight: 600; fill: #1f2328 }
	.ours { font-weight: 600; fill: #1f2328 }
	.value { stroke: #ffffff; stroke-width: 3px; paint-order: stroke }
	.end { text-anchor: end }
	.ground { fill: #ffffff; stroke: #d0d7de }
	.heed { fill: #009e73 }
	.rival { fill: #afb8c1 }
	.cut { stroke: #ffffff; stroke-width: 3 }
	.target { stroke: #d55e00; stroke-width: 1.5; stroke-dasharray: 4 3 }
	@media (prefers-color-scheme: dark) {
		text { fill: #9198a1 }
		.title, .name, .ours { fill: #f0f6fc }
		.value { stroke: #0d1117 }
		.ground { fill: #0d1117; stroke: #3d444d }
		.heed { fill: #14b88a }
		.rival { fill: #545d68 }
		.cut { stroke: #0d1117 }
		.target { stroke: #f0762b }
	}
`

// A chart is one figure by one metric.
type chart struct {
	title   string
	metric  metric
	rows    rows    // that have a value
	target  float64 // NaN if there is none
	longest float64 // the value at the right end
}

// charts returns a chart for each measured figure.
func (g group) charts(all samples) (charts []chart) {
	for _, f := range g.figures {
		drawn := f.drawn
		if drawn == nil {
			drawn = g.columns[:1]
		}
		rs := f.rows(all)
		for _, m := range drawn {
			if c := newChart(f, m, rs); len(c.rows) > 0 {
				charts = append(charts, c)
			}
		}
	}
	return charts
}

func newChart(f figure, m metric, rs rows) chart {
	c := chart{title: f.title + ": " + m.title, metric: m, target: math.NaN()}
	for _, t := range f.targets {
		if t.metric.title == m.title {
			c.target = t.bound(rs)
		}
	}
	most := 0.0
	for _, r := range rs {
		if v := m.of(r); !math.IsNaN(v) {
			c.rows = append(c.rows, r)
			most = max(most, v)
		}
	}
	c.longest = max(most, zero(c.target))
	if worth := max(zero(m.of(rs.of(heed))), zero(c.target)); worth > 0 && !m.rate {
		c.longest = min(c.longest, clip*worth)
	}
	return c
}

// zero returns v, or 0 if v is not a number.
func zero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

func (c chart) height() int { return chartHead + len(c.rows)*rowHeight }

// picture draws all charts in two columns.
func (g group) picture(all samples) []byte {
	var b strings.Builder
	columns := [2]int{pictureHead, pictureHead} // how far each is filled
	for _, c := range g.charts(all) {
		shorter := 0
		if columns[1] < columns[0] {
			shorter = 1
		}
		c.draw(&b, margin+shorter*columnWidth, columns[shorter])
		columns[shorter] += c.height()
	}
	height := max(columns[0], columns[1]) + margin
	var page strings.Builder
	fmt.Fprintf(&page,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img">`,
		pictureWidth, height)
	fmt.Fprintln(&page)
	fmt.Fprintf(&page, "<title>%s</title>\n<style>%s</style>\n", html.EscapeString(g.title), style)
	fmt.Fprintf(&page, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n",
		pictureWidth-1, height-1)
	text(&page, "title", margin, 40, g.title)
	const legend = "Medians of one run. The dashed line is heed's target. " +
		"More per second is better, and less of everything else."
	text(&page, "", margin, 62, legend)
	return []byte(page.String() + b.String() + "</svg>\n")
}

func text(b *strings.Builder, class string, x, y float64, text string) {
	fmt.Fprintf(b, "<text class=%q x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x, y, html.EscapeString(text))
}

// draw writes the chart, with its upper left corner at left and top.
func (c chart) draw(b *strings.Builder, left, top int) {
	text(b, "name", float64(left), float64(top)+26, c.title)
	x, y := float64(left+labels), float64(top+chartHead)
	for i, r := range c.rows {
		c.bar(b, x, y+float64(i*rowHeight), r)
	}
	if !math.IsNaN(c.target) {
		at := x + c.length(c.target)
		fmt.Fprintf(b, "<line class=\"target\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
			at, y-6, at, y+float64(len(c.rows)*rowHeight))
	}
	for i, r := range c.rows {
		c.label(b, x, y+float64(i*rowHeight)+barHeight-2, r)
	}
}

// bar draws the bar of a library, with a cut through it if it is too long.
func (c chart) bar(b *strings.Builder, x, y float64, r row) {
	class := "rival"
	if r.library == heed {
		class = "heed"
	}
	v := c.metric.of(r)
	length := c.length(v)
	fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`+"\n", class, x, y, length, barHeight)
	if v > c.longest {
		fmt.Fprintf(b, "<line class=\"cut\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
			x+length-22, y+barHeight+2, x+length-14, y-2)
	}
}

// label writes the name of a library and its value on both sides of the bar.
func (c chart) label(b *strings.Builder, x, y float64, r row) {
	ours := ""
	if r.library == heed {
		ours = " ours"
	}
	v := c.metric.of(r)
	text(b, "end"+ours, x-8, y, r.library)
	text(b, "value"+ours, x+c.length(v)+6, y, c.metric.show(v))
}

// length returns the length of a bar of v.
func (c chart) length(v float64) float64 {
	if c.longest == 0 {
		return 0
	}
	return plotWidth * min(1, v/c.longest)
}
