package chart

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

const cells = 42 // the length of the longest row, about

// Draw shows the picture in a terminal: each line with a name as a row of cells, and each
// bar as a row of its own.
func (p Picture) Draw(w io.Writer) {
	width := 0
	for _, q := range p.Panels {
		for _, l := range q.named() {
			width = max(width, utf8.RuneCountInString(l.Name))
		}
	}
	fmt.Fprintf(w, "%s%s\n", strings.ToUpper(p.Note[:1]), p.Note[1:])
	for i, q := range p.Panels {
		switch {
		case len(q.Bars) > 0:
			q.drawBars(w)
		case len(q.named()) > 1:
			fmt.Fprintf(w, "\n%*s   %s\n", width, "", q.Name)
			q.drawLines(w, width, true)
		default: // panels of one line each share an axis
			q.drawLines(w, width, i == len(p.Panels)-1)
		}
	}
	fmt.Fprintln(w)
}

func (p Panel) drawBars(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", p.Name)
	for i, b := range p.Bars {
		good, bad := math.Ceil(b.Good/p.Most*cells), math.Ceil(b.Bad/p.Most*cells)
		fmt.Fprintf(w, "%4g %5g +%5g  %s%s\n", p.Xs[i], b.Good, b.Bad,
			strings.Repeat("█", int(good)), strings.Repeat("░", int(bad)))
	}
}

func (p Panel) drawLines(w io.Writer, width int, axis bool) {
	wide := max(1, cells/len(p.Xs)) // cells of a point
	for _, l := range p.named() {
		row := fmt.Sprintf("%-*s  │%s│ %s", width, l.Name, spark(l.Ys, p.Most, wide), p.Figure)
		fmt.Fprintln(w, strings.TrimRight(row, " "))
	}
	if axis {
		x := p.X
		if p.Shade != "" {
			x += ", ─ is " + p.Shade
		}
		fmt.Fprintf(w, "%*s   %s  %s\n", width, "", p.axis(wide), x)
	}
}

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// spark returns a bar for each value, as wide as so many cells.
func spark(ys []float64, most float64, wide int) string {
	var b strings.Builder
	for _, y := range ys {
		n := int(math.Round(y / most * 8))
		b.WriteString(strings.Repeat(string(eighths[max(0, min(n, 8))]), wide))
	}
	return b.String()
}

// axis returns the labels of the ticks below their points, and dashes below what is shaded.
func (p Panel) axis(wide int) string {
	row := []rune(strings.Repeat(" ", wide*len(p.Xs)))
	for i, x := range p.Xs {
		if p.From < x && x < p.To {
			copy(row[i*wide:], []rune(strings.Repeat("─", wide)))
		}
	}
	for i, tick := range p.Ticks {
		at := slices.IndexFunc(p.Xs, func(x float64) bool { return x >= tick })
		if at < 0 {
			at = len(p.Xs) - 1
		}
		label := []rune(p.Labels[i])
		copy(row[min(at*wide, len(row)-len(label)):], label)
	}
	return string(row)
}
