package stage

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Column is one of a table of results. Its heading has two lines.
type Column struct {
	Above, Below string
	Cell         func(r Result) string
}

var columns = []Column{
	{"", "", func(r Result) string { return r.Name }},
	{"jobs", "done", func(r Result) string { return Grouped(r.Done) + "/" + Grouped(r.Jobs) }},
	{"", "requests", func(r Result) string { return Grouped(r.Requests) }},
	{"", "429s", func(r Result) string { return Grouped(r.Refused) }},
	{"retries", "per job", func(r Result) string { return fmt.Sprintf("%.2f", r.RetriesPerJob()) }},
	{"wasted", "requests", func(r Result) string { return fmt.Sprintf("%s (%d %%)", Grouped(r.Wasted()), r.WastedPercent()) }},
	{"", "time", func(r Result) string { return InSeconds(r.Took) }},
}

// WriteTable shows the figures of results, a line each, and more of them than
// those that every example has.
func WriteTable(s *Screen, results []Result, more ...Column) {
	all := slices.Concat(columns, more)
	rows := make([][]string, 2+len(results))
	for _, c := range all {
		rows[0], rows[1] = append(rows[0], c.Above), append(rows[1], c.Below)
		for i, r := range results {
			rows[2+i] = append(rows[2+i], c.Cell(r))
		}
	}
	widths := widthsOf(rows)
	fmt.Fprintln(s)
	for i, row := range rows {
		line := aligned(row, widths)
		if i < 2 {
			line = s.paint(bold, line)
		}
		fmt.Fprintln(s, line)
	}
}

func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// aligned is row with its first cell to the left and the others to the right.
func aligned(row []string, widths []int) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%-*s", widths[0], row[0])
	for i, cell := range row[1:] {
		fmt.Fprintf(&line, "  %*s", widths[i+1], cell)
	}
	return strings.TrimRight(line.String(), " ")
}
