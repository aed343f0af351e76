package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The measures of the picture, in pixels.
const (
	width, height = 960, 400
	left, right   = 66, 24 // of the first and the last plot
	gap           = 24     // between panels
	bottom        = 344
	labels        = 132 // for the names of lines, at the end of a plot that has several
	labelHeight   = 15
)

// style keeps the picture legible on light and dark pages: it brings its ground along. The
// two colours are told apart by the colour-blind.
const style = `
	text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a }
	.title { font-size: 20px; font-weight: 600; fill: #1f2328 }
	.name { font-size: 15px; font-weight: 600; fill: #1f2328 }
	.figure { font-size: 26px }
	.middle { text-anchor: middle }
	.end { text-anchor: end }
	.ground { fill: #ffffff; stroke: #d0d7de }
	.grid { stroke: #d0d7de; stroke-width: 1 }
	.axis { stroke: #57606a; stroke-width: 1 }
	.shade { fill: #57606a; fill-opacity: 0.2 }
	path { fill: none; stroke: currentColor; stroke-width: 3; stroke-linejoin: round; stroke-linecap: round }
	path.run { stroke-width: 1; stroke-opacity: 0.35 }
	path.area { fill: currentColor; fill-opacity: 0.12; stroke: none }
	text.ours, text.bad, text.other, .figure { fill: currentColor; font-weight: 600 }
	.ours { color: #00805c }
	.bad { color: #c24e00 }
	.other { color: #57606a }
	@media (prefers-color-scheme: dark) {
		text { fill: #9198a1 }
		.title, .name { fill: #f0f6fc }
		.ground { fill: #0d1117; stroke: #3d444d }
		.grid { stroke: #2a313c }
		.axis { stroke: #9198a1 }
		.shade { fill: #9198a1 }
		.ours { color: #14b88a }
		.bad { color: #f0762b }
		.other { color: #9198a1 }
	}
`

// A canvas collects the elements of a picture.
type canvas struct{ bytes.Buffer }

func (c *canvas) text(class string, x, y float64, text string) {
	fmt.Fprintf(c, "<text class=%q x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x, y, html.EscapeString(text))
}

func (c *canvas) stroke(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, "<line class=%q x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2)
}

func (p picture) svg() []byte {
	var c canvas
	fmt.Fprintf(&c, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%[1]d\" height=\"%d\" role=\"img\">\n", width, height)
	fmt.Fprintf(&c, "<title>%s</title>\n<style>%s</style>\n", html.EscapeString(p.title), style)
	fmt.Fprintf(&c, "<rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width-1, height-1)
	c.text("title", 24, 40, p.title)
	c.text("", 24, 64, p.note)
	n := len(p.panels)
	wide := float64(width-left-right-(n-1)*gap) / float64(n)
	for i, q := range p.panels {
		f := frame{&c, q, left + float64(i)*(wide+gap), 130, wide}
		if q.figure != "" {
			f.top = 192
		}
		if len(q.named()) > 1 {
			f.wide -= labels
		}
		f.heading()
		f.axes(i == 0, p.percent)
		f.curves()
	}
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// A frame is where a panel is.
type frame struct {
	*canvas
	panel
	left, top, wide float64
}

func (f frame) atX(x float64) float64 {
	first, last := f.ticks[0].at, f.ticks[len(f.ticks)-1].at
	return f.left + f.wide*(x-first)/(last-first)
}

func (f frame) atY(y float64) float64 { return bottom - (bottom-f.top)*min(y/f.most, 1) }

func (f frame) heading() {
	f.text("name", f.left, 106, f.name)
	if f.figure != "" {
		fmt.Fprintf(f, "<text x=\"%.1f\" y=\"140\"><tspan class=\"figure %s\">%s</tspan> %s</text>\n", f.left, f.kind, f.figure, f.words)
		f.text("", f.left, 162, f.note)
	}
}

func (f frame) axes(first, percent bool) {
	if f.to > f.from {
		fmt.Fprintf(f, "<rect class=\"shade\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", f.atX(f.from), f.top, f.atX(f.to)-f.atX(f.from), bottom-f.top)
		f.text("middle", f.atX((f.from+f.to)/2), f.top-6, f.shade)
	}
	for i := range 5 {
		y := f.most * float64(i) / 4
		f.stroke("grid", f.left, f.atY(y), f.left+f.wide, f.atY(y))
		switch {
		case first && percent:
			f.text("end", f.left-8, f.atY(y)+4, fmt.Sprintf("%.0f %%", 100*y))
		case first:
			f.text("end", f.left-8, f.atY(y)+4, fmt.Sprintf("%g", y))
		}
	}
	f.stroke("axis", f.left, bottom, f.left+f.wide, bottom)
	for _, t := range f.ticks {
		f.text("middle", f.atX(t.at), bottom+18, t.label)
	}
	f.text("middle", f.left+f.wide/2, bottom+38, f.x)
}

// curves draws the lines, and their names at their ends if there are several.
func (f frame) curves() {
	for _, l := range f.lines {
		var d strings.Builder
		for i, y := range l.ys {
			fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], f.atX(f.xs[i]), f.atY(y))
		}
		class := string(l.kind)
		if l.name == "" {
			class = "run " + class
		}
		fmt.Fprintf(f, "<path class=%q d=%q/>\n", class, d.String())
		if l.name != "" && len(f.named()) == 1 {
			fmt.Fprintf(f, "<path class=\"area %s\" d=\"%sV%dH%.1fZ\"/>\n", class, d.String(), bottom, f.atX(f.xs[0]))
		}
	}
	named := f.named()
	if len(named) < 2 {
		return
	}
	slices.SortFunc(named, func(a, b line) int { return int(math.Copysign(1, a.ys[len(a.ys)-1]-b.ys[len(b.ys)-1])) })
	below := math.Inf(1)
	for _, l := range named { // from the lowest on, so that no name is upon another
		last := l.ys[len(l.ys)-1]
		below = min(f.atY(last)+4, below-labelHeight)
		f.text(string(l.kind), f.left+f.wide+8, below, fmt.Sprintf("%s %.2f", l.name, last))
	}
}
