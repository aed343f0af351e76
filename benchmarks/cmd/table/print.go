package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes the table of the group and its targets, and returns how many are missed.
func (g group) print(out io.Writer, all samples) (missed int) {
	fmt.Fprintf(out, "\n%s\n\n", g.title)
	columns := g.measured(all)
	comparisons := g.comparisons(all)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, heading(columns, comparisons))
	for _, f := range g.figures {
		rs := f.rows(all)
		for _, r := range rs {
			fmt.Fprintln(w, f.line(columns, comparisons, rs, r))
		}
	}
	w.Flush()
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range g.figures {
		rs := f.rows(all)
		for _, t := range f.targets {
			verdict := "met"
			if !t.met(rs) {
				verdict = "MISSED"
				missed++
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", verdict, f.title, t.text, t.figures(rs))
		}
	}
	w.Flush()
	return missed
}

// measured returns the columns that have a value.
func (g group) measured(all samples) []metric {
	return slices.DeleteFunc(slices.Clone(g.columns), func(m metric) bool {
		return !g.contains(all, func(r row) bool { return !math.IsNaN(m.of(r)) })
	})
}

// comparisons returns the libraries that all others are compared with.
func (g group) comparisons(all samples) []string {
	if g.contains(all, func(r row) bool { return r.library == bare }) {
		return []string{bare, heed}
	}
	return []string{heed}
}

func (g group) contains(all samples, found func(row) bool) bool {
	return slices.ContainsFunc(g.figures, func(f figure) bool { return slices.ContainsFunc(f.rows(all), found) })
}

func heading(columns []metric, comparisons []string) string {
	titles := []string{"figure", "library"}
	for _, m := range columns {
		titles = append(titles, m.title)
	}
	for _, library := range comparisons {
		titles = append(titles, "of "+library)
	}
	return strings.Join(titles, "\t") + "\t"
}

// line returns the values of a library, and how its first compares with others.
func (f figure) line(columns []metric, comparisons []string, rs rows, r row) string {
	cells := []string{f.title, r.library}
	for _, m := range columns {
		cells = append(cells, m.text(r))
	}
	for _, library := range comparisons {
		cells = append(cells, ratio(columns[0].of(r)/columns[0].of(rs.of(library))))
	}
	return strings.Join(cells, "\t") + "\t"
}

// figures returns the value of heed and its bound.
func (t target) figures(rs rows) string {
	v, bound := t.metric.of(rs.of(heed)), t.bound(rs)
	if math.IsNaN(v) || math.IsNaN(bound) {
		return "not measured"
	}
	return fmt.Sprintf("%s of %s", t.metric.show(v), t.metric.show(bound))
}
