package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

var headings = [][]string{
	{"", "jobs", "", "", "retries", "wasted", ""},
	{"", "done", "requests", "429s", "per job", "requests", "time"},
}

// writeTable shows the figures of results, a line each.
func writeTable(s *screen, results []result) {
	rows := slices.Clone(headings)
	for _, r := range results {
		rows = append(rows, r.row())
	}
	widths := widthsOf(rows)
	fmt.Fprintln(s)
	for i, row := range rows {
		line := aligned(row, widths)
		if i < len(headings) {
			line = s.paint(bold, line)
		}
		fmt.Fprintln(s, line)
	}
}

func (r result) row() []string {
	return []string{
		r.name,
		grouped(r.done) + "/" + grouped(r.jobs),
		grouped(r.requests),
		grouped(r.refused),
		fmt.Sprintf("%.2f", r.retriesPerJob()),
		fmt.Sprintf("%s (%d %%)", grouped(r.wasted()), r.wastedPercent()),
		seconds(r.took),
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
