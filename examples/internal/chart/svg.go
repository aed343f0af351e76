package chart

import (
	"bytes"
	"cmp"
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

// style is legible on light and dark pages, with colours that the colour-blind can tell apart.
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
	.limit { stroke: #1f2328; stroke-width: 1.2; stroke-dasharray: 3 3 }
	.value { font-size: 10px; text-anchor: middle }
	rect.ours, rect.bad { fill: currentColor }
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
		.limit { stroke: #f0f6fc }
		.ours { color: #14b88a }
		.bad { color: #f0762b }
		.other { color: #9198a1 }
	}
`

// A canvas collects the elements of a picture.
type canvas struct{ bytes.Buffer }

func (c *canvas) text(class string, x, y float64, text string) {
	fmt.Fprintf(c, `<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

func (c *canvas) stroke(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
}

func (c *canvas) rect(class string, x, y, width, height float64) {
	if width > 0 && height > 0 {
		fmt.Fprintf(c, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", class, x, y, width, height)
	}
}

// SVG returns the picture as an SVG document.
func (p Picture) SVG() []byte {
	var c canvas
	fmt.Fprintf(&c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%d" role="img">`,
		width, height)
	fmt.Fprintln(&c)
	fmt.Fprintf(&c, "<title>%s</title>\n<style>%s</style>\n", html.EscapeString(p.Title), style)
	fmt.Fprintf(&c, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	c.text("title", 24, 40, p.Title)
	c.text("", 24, 64, p.Note)
	n := len(p.Panels)
	wide := float64(width-left-right-(n-1)*gap) / float64(n)
	for i, q := range p.Panels {
		f := frame{&c, q, left + float64(i)*(wide+gap), 130, wide}
		if q.Figure != "" {
			f.top = 192
		}
		if len(q.named()) > 1 {
			f.wide -= labels
		}
		f.heading()
		f.axes(i == 0, p.Percent)
		f.curves()
		f.bars()
	}
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// A frame is where a panel is.
type frame struct {
	*canvas
	Panel
	left, top, wide float64
}

func (f frame) atX(x float64) float64 {
	first, last := f.Ticks[0], f.Ticks[len(f.Ticks)-1]
	return f.left + f.wide*(x-first)/(last-first)
}

func (f frame) atY(y float64) float64 { return bottom - (bottom-f.top)*min(y/f.Most, 1) }

func (f frame) heading() {
	f.text("name", f.left, 106, f.Name)
	if f.Figure != "" {
		fmt.Fprintf(f, `<text x="%.1f" y="140"><tspan class="figure %s">%s</tspan> %s</text>`+"\n",
			f.left, f.Kind, f.Figure, f.Words)
		f.text("", f.left, 162, f.Note)
	}
}

func (f frame) axes(first, percent bool) {
	if f.To > f.From {
		f.rect("shade", f.atX(f.From), f.top, f.atX(f.To)-f.atX(f.From), bottom-f.top)
		f.text("middle", f.atX((f.From+f.To)/2), f.top-6, f.Shade)
	}
	for i := range 5 {
		y := f.Most * float64(i) / 4
		f.stroke("grid", f.left, f.atY(y), f.left+f.wide, f.atY(y))
		switch {
		case first && percent:
			f.text("end", f.left-8, f.atY(y)+4, fmt.Sprintf("%.0f %%", 100*y))
		case first:
			f.text("end", f.left-8, f.atY(y)+4, fmt.Sprintf("%g", y))
		}
	}
	f.stroke("axis", f.left, bottom, f.left+f.wide, bottom)
	for i, tick := range f.Ticks {
		f.text("middle", f.atX(tick), bottom+18, f.Labels[i])
	}
	f.text("middle", f.left+f.wide/2, bottom+38, f.X)
}

// curves draws the lines, and their names at their ends if there are several.
func (f frame) curves() {
	for _, l := range f.Lines {
		var d strings.Builder
		for i, y := range l.Ys {
			fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], f.atX(f.Xs[i]), f.atY(y))
		}
		class := string(l.Kind)
		if l.Name == "" {
			class = "run " + class
		}
		fmt.Fprintf(f, "<path class=%q d=%q/>\n", class, d.String())
		if l.Name != "" && len(f.named()) == 1 {
			fmt.Fprintf(f, `<path class="area %s" d="%sV%dH%.1fZ"/>`+"\n", class, d.String(), bottom, f.atX(f.Xs[0]))
		}
	}
	named := f.named()
	if len(named) < 2 {
		return
	}
	slices.SortFunc(named, func(a, b Line) int { return cmp.Compare(a.Ys[len(a.Ys)-1], b.Ys[len(b.Ys)-1]) })
	below := math.Inf(1)
	for _, l := range named { // from the lowest on, so that no name is upon another
		last := l.Ys[len(l.Ys)-1]
		below = min(f.atY(last)+4, below-labelHeight)
		f.text(string(l.Kind), f.left+f.wide+8, below, fmt.Sprintf("%s %.2f", l.Name, last))
	}
}

// bars draws the bars, each a unit of the axis wide, and its height if there is room for it.
func (f frame) bars() {
	wide := f.atX(1) - f.atX(0)
	for i, b := range f.Bars {
		x, good, top := f.atX(f.Xs[i])+wide*0.1, f.atY(b.Good), f.atY(b.Good+b.Bad)
		f.rect("ours", x, good, wide*0.8, bottom-good)
		f.rect("bad", x, top, wide*0.8, good-top)
		if b.Good+b.Bad > 0 && wide >= 18 {
			f.text("value", x+wide*0.4, min(top, f.atY(f.Limit))-5, fmt.Sprintf("%g", b.Good+b.Bad))
		}
	}
	if f.Limit > 0 {
		f.stroke("limit", f.left, f.atY(f.Limit), f.left+f.wide, f.atY(f.Limit))
	}
}
