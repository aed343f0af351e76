// Package chart draws what the examples measure: panels side by side, to one scale, in a
// terminal and as SVG.
package chart

import "slices"

// A Picture is some panels with a title above them.
type Picture struct {
	Title, Note string
	Percent     bool // the scale shows 1 as 100 %
	Panels      []Panel
}

// A Panel has lines, or bars, over one axis.
type Panel struct {
	Name          string // the heading
	Figure, Words string // the result in large type, and its unit
	Note          string
	Kind          Kind // the colour of Figure
	X             string
	Ticks         []float64 // the labelled points of the axis; the first and the last are its ends
	Labels        []string  // one for each of Ticks
	Xs            []float64 // the points of all lines and bars
	Most          float64   // the end of the scale
	From, To      float64   // the shaded part of the axis, if any
	Shade         string    // the label of that part
	Lines         []Line
	Bars          []Bar
	Limit         float64 // a dashed line at this height, if positive
}

// A Line without a name is one of several runs, and drawn faintly.
type Line struct {
	Name string
	Kind Kind
	Ys   []float64
}

// A Bar has two parts. The bad one is on top.
type Bar struct{ Good, Bad float64 }

// A Kind is a colour.
type Kind string

// The kinds.
const (
	Ours  Kind = "ours"
	Bad   Kind = "bad"
	Other Kind = "other"
)

// named returns the lines that have a name.
func (p Panel) named() []Line {
	return slices.DeleteFunc(slices.Clone(p.Lines), func(l Line) bool { return l.Name == "" })
}

// Median returns, for each point, the median of lines that have equally many.
func Median(lines []Line) (ys []float64) {
	for i := range lines[0].Ys {
		var all []float64
		for _, l := range lines {
			all = append(all, l.Ys[i])
		}
		slices.Sort(all)
		ys = append(ys, all[len(all)/2])
	}
	return ys
}
