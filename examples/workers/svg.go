package main

import (
	"bytes"
	"fmt"
	"html"
	"strconv"

	"github.com/heedhttp/heed/examples/internal/stage"
)

// The measures of the picture, in pixels.
const (
	pictureWidth  = 960
	pictureHeight = 440
	plotTop       = 204 // where the bars of the scale's end would begin
	plotBottom    = 384
	plotHeight    = plotBottom - plotTop
	firstPlot     = 76 // the left side of the first panel's plot
	panelWidth    = 262
	panelGap      = 28
	labelWidth    = 18 // bars narrower than this have no figure on top
)

// style keeps the picture legible on light and dark pages: it brings its ground
// along. The colours of the bars are told apart by the colour-blind.
const style = `
	text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a }
	.title { font-size: 19px; font-weight: 600; fill: #1f2328 }
	.name { font-size: 15px; font-weight: 600; fill: #1f2328 }
	.figure { font-size: 30px; font-weight: 600 }
	.value { font-size: 10px; stroke: #ffffff; stroke-width: 3px; paint-order: stroke }
	.middle { text-anchor: middle }
	.end { text-anchor: end }
	.ground { fill: #ffffff; stroke: #d0d7de }
	.grid { stroke: #d0d7de; stroke-width: 1 }
	.axis { stroke: #57606a; stroke-width: 1 }
	.limit { stroke: #1f2328; stroke-width: 1.2; stroke-dasharray: 3 3 }
	.admitted { fill: #009e73 }
	.refused { fill: #d55e00 }
	@media (prefers-color-scheme: dark) {
		text { fill: #9198a1 }
		.title, .name { fill: #f0f6fc }
		.value { stroke: #0d1117 }
		.ground { fill: #0d1117; stroke: #3d444d }
		.grid { stroke: #2a313c }
		.axis { stroke: #9198a1 }
		.limit { stroke: #f0f6fc }
		.admitted { fill: #14b88a }
		.refused { fill: #f0762b }
	}
`

// A canvas collects the elements of a picture.
type canvas struct{ bytes.Buffer }

func (c *canvas) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(c, "<rect class=%q x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", class, x, y, width, height)
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, "<line class=%q x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2)
}

func (c *canvas) text(class string, x, y float64, text string) {
	fmt.Fprintf(c, "<text class=%q x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x, y, html.EscapeString(text))
}

// A plot is what the panels have in common: their scales.
type plot struct {
	canvas
	limit   int64
	most    int // arrivals at the upper end
	yStep   int // between two grid lines
	seconds int // at the right end
	xStep   int // between two figures
}

// picture draws the arrivals in each second: a panel for each of results, all
// to one scale.
func picture(title string, limit int64, results []stage.Result) []byte {
	p := newPlot(limit, results)
	fmt.Fprintf(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%[1]d\" height=\"%d\" role=\"img\">\n",
		pictureWidth, pictureHeight)
	fmt.Fprintf(p, "<title>Requests that arrive in each second: %s</title>\n", html.EscapeString(title))
	fmt.Fprintf(p, "<style>%s</style>\n", style)
	fmt.Fprintf(p, "<rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", pictureWidth-1, pictureHeight-1)
	p.text("title", 24, 40, title)
	p.legend()
	p.yAxis()
	for i, r := range results {
		p.panel(firstPlot+float64(i)*(panelWidth+panelGap), r)
	}
	p.WriteString("</svg>\n")
	return p.Bytes()
}

func newPlot(limit int64, results []stage.Result) *plot {
	p := &plot{limit: limit, most: int(limit)}
	for _, r := range results {
		p.most = max(p.most, r.Busiest())
		p.seconds = max(p.seconds, len(r.Seconds))
	}
	p.yStep, p.xStep = stage.RoundUp(p.most/6), stage.RoundUp(p.seconds/8)
	return p
}

func (p *plot) legend() {
	const y = 66
	p.rect("admitted", 24, y-10, 11, 11)
	p.text("", 41, y, "admitted")
	p.rect("refused", 112, y-10, 11, 11)
	p.text("", 129, y, "refused with 429")
	p.line("limit", 244, y-4, 268, y-4)
	p.text("", 275, y, "the limit")
	p.text("end", pictureWidth-24, y, "arrivals in each second, as the server counted them")
}

// yAxis has the figures of all panels' grids.
func (p *plot) yAxis() {
	for n := 0; n <= p.most; n += p.yStep {
		p.text("end", firstPlot-8, p.y(n)+4, stage.Grouped(n))
	}
	const x, y = 26, (plotTop + plotBottom) / 2
	fmt.Fprintf(p, "<text class=\"middle\" transform=\"translate(%d %d) rotate(-90)\">requests in a second</text>\n", x, y)
}

// panel draws r with its left side at x.
func (p *plot) panel(x float64, r stage.Result) {
	p.heading(x, r)
	for n := p.yStep; n <= p.most; n += p.yStep {
		p.line("grid", x, p.y(n), x+panelWidth, p.y(n))
	}
	width := panelWidth / float64(p.seconds)
	for i, s := range r.Seconds {
		p.bar(x+float64(i)*width, width, s)
	}
	limit := p.y(int(p.limit))
	p.line("limit", x, limit, x+panelWidth, limit)
	p.line("axis", x, plotBottom, x+panelWidth, plotBottom)
	for n := 0; n <= p.seconds; n += p.xStep {
		p.text("middle", x+float64(n)*width, plotBottom+18, strconv.Itoa(n))
	}
	p.text("middle", x+panelWidth/2, plotBottom+38, "seconds since the first request")
}

func (p *plot) heading(x float64, r stage.Result) {
	p.text("name", x, 106, r.Name)
	colour := "refused"
	if r.Wasted() == 0 {
		colour = "admitted"
	}
	fmt.Fprintf(p, "<text class=\"name\" x=\"%.1f\" y=\"142\"><tspan class=\"figure %s\">%s</tspan> wasted requests</text>\n",
		x, colour, stage.Grouped(r.Wasted()))
	p.text("", x, 164, fmt.Sprintf("%s requests for %s jobs, in %s", stage.Grouped(r.Requests), stage.Grouped(r.Done), stage.InSeconds(r.Took)))
}

// bar draws s, the refused on top of the admitted, and how many both are.
func (p *plot) bar(x, width float64, s stage.Second) {
	gap := min(3, width/4)
	middle, top := p.y(s.Admitted), p.y(s.Arrivals())
	if s.Admitted > 0 {
		p.rect("admitted", x+gap/2, middle, width-gap, plotBottom-middle)
	}
	if s.Refused > 0 {
		p.rect("refused", x+gap/2, top, width-gap, middle-top)
	}
	if s.Arrivals() > 0 && width >= labelWidth {
		p.text("value middle", x+width/2, min(top, p.y(int(p.limit)))-5, stage.Grouped(s.Arrivals()))
	}
}

func (p *plot) y(n int) float64 {
	return plotBottom - plotHeight*float64(n)/float64(p.most)
}
