package stage

import (
	"fmt"
	"strings"
)

const (
	admittedCell = "█"
	refusedCell  = "░"
	chartWidth   = 58 // cells of the longest bar, at most
)

// WriteCharts shows the arrivals of each second: a chart for each of results,
// all to one scale.
func WriteCharts(s *Screen, results []Result) {
	cell := scaleOf(results)
	fmt.Fprintf(s, "\nArrivals in each second: %s admitted, %s refused; a cell is up to %s.\n",
		s.paint(green, admittedCell), s.paint(red, refusedCell), plural(cell, "request"))
	for _, r := range results {
		fmt.Fprintf(s, "\n%s\n", s.paint(bold, r.Name))
		for i, sec := range r.Seconds {
			fmt.Fprintf(s, "%4d s %5s +%5s  %s%s\n", i, Grouped(sec.Admitted), Grouped(sec.Refused),
				s.paint(green, bar(admittedCell, sec.Admitted, cell)),
				s.paint(red, bar(refusedCell, sec.Refused, cell)))
		}
	}
	fmt.Fprintln(s)
}

// bar is long enough that no request is left out.
func bar(glyph string, n, cell int) string {
	return strings.Repeat(glyph, (n+cell-1)/cell)
}

// scaleOf is how many requests a cell stands for: a round number.
func scaleOf(results []Result) int {
	most := 0
	for _, r := range results {
		most = max(most, r.Busiest())
	}
	return RoundUp(most / (chartWidth - 1)) // either kind may end with a part of a cell
}

// RoundUp returns the least 1, 2 or 5 times a power of ten that is more than n.
func RoundUp(n int) int {
	for unit := 1; ; unit *= 10 {
		for _, step := range []int{unit, 2 * unit, 5 * unit} {
			if step > n {
				return step
			}
		}
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return Grouped(n) + " " + noun + "s"
}
