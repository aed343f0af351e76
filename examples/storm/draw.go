package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A picture is drawn in the terminal, and as SVG: panels side by side, to one scale.
type picture struct {
	file        string // its name, as SVG
	title, note string
	percent     bool // the scale is one of shares
	panels      []panel
}

// A panel has lines over a common axis.
type panel struct {
	name          string // above it
	figure, words string // what it shows, as a number, and of what
	note          string
	kind          kind // of the figure
	x             string
	ticks         []tick // of the axis; the first and the last are its ends
	xs            []float64
	most          float64 // the end of the scale
	from, to      float64 // what is shaded, if anything
	shade         string  // and why
	lines         []line
}

// A line without a name is one of several runs, and drawn faintly.
type line struct {
	name string
	kind kind
	ys   []float64
}

// A kind of line has a colour.
type kind string

const (
	ours  kind = "ours"
	bad   kind = "bad"
	other kind = "other"
)

// A tick is a figure of an axis.
type tick struct {
	at    float64
	label string
}

// named are the lines that have a name.
func (p panel) named() []line {
	return slices.DeleteFunc(slices.Clone(p.lines), func(l line) bool { return l.name == "" })
}

const cells = 42 // of the longest bar, about

// draw shows the picture in a terminal: a row for each line that has a name. Panels of one
// row each share an axis.
func (p picture) draw(w io.Writer) {
	width := 0
	for _, q := range p.panels {
		for _, l := range q.named() {
			width = max(width, utf8.RuneCountInString(l.name))
		}
	}
	fmt.Fprintf(w, "%s%s\n", strings.ToUpper(p.note[:1]), p.note[1:])
	for i, q := range p.panels {
		wide := max(1, cells/len(q.xs)) // cells of a point
		if len(q.named()) > 1 {
			fmt.Fprintf(w, "\n%*s   %s\n", width, "", q.name)
		}
		for _, l := range q.named() {
			fmt.Fprintf(w, "%-*s  │%s│ %s\n", width, l.name, spark(l.ys, q.most, wide), q.figure)
		}
		if len(q.named()) > 1 || i == len(p.panels)-1 {
			x := q.x
			if q.shade != "" {
				x += ", ─ is " + q.shade
			}
			fmt.Fprintf(w, "%*s   %s  %s\n", width, "", q.axis(wide), x)
		}
	}
	fmt.Fprintln(w)
}

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// spark is a bar for each value, as wide as so many cells.
func spark(ys []float64, top float64, wide int) string {
	var b strings.Builder
	for _, y := range ys {
		n := int(math.Round(y / top * 8))
		b.WriteString(strings.Repeat(string(eighths[max(0, min(n, 8))]), wide))
	}
	return b.String()
}

// axis has the labels of the ticks below the points that they belong to, and what is
// shaded as a line of dashes.
func (p panel) axis(wide int) string {
	row := []rune(strings.Repeat(" ", wide*len(p.xs)))
	for i, x := range p.xs {
		if p.from < x && x < p.to {
			copy(row[i*wide:], []rune(strings.Repeat("─", wide)))
		}
	}
	for _, t := range p.ticks {
		at := slices.IndexFunc(p.xs, func(x float64) bool { return x >= t.at })
		if at < 0 {
			at = len(p.xs) - 1
		}
		label := []rune(t.label)
		copy(row[min(at*wide, len(row)-len(label)):], label)
	}
	return string(row)
}
