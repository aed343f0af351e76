package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/heedhttp/heed/internal/lab"
)

const (
	begin = "<!-- begin of what benchmarks/cmd/storms wrote -->\n"
	end   = "<!-- end of what benchmarks/cmd/storms wrote -->\n"
)

// writeInto replaces what is between the markers of a file.
func writeInto(name, text string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(old, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s has no lines %q and %q", name, begin, end)
	}
	return os.WriteFile(name, slices.Concat(before, []byte(begin+"\n"+text+"\n"+end), after), 0o644)
}

// sections are the tables of the document, each of one metric.
var sections = []struct {
	metric lab.Metric
	title  string
}{
	{lab.Lost, "Calls lost, of those that began in the trouble"},
	{lab.Requests, "Requests that reached the server in the trouble, for each call"},
	{lab.Dials, "Dials and look-ups that failed in it, for each call"},
	{lab.Second, "The busiest second of the three after it, of the ordinary rate"},
	{lab.Tenth, "The busiest 100 ms of these"},
	{lab.WaitMost, "What calls took without their last attempt, 99th percentile"},
	{lab.Longest, "The longest call"},
	{lab.FailHalf, "How long failed calls took that began after a minute of the trouble, median"},
	{lab.Admitted, "Requests admitted, of the limit or of the ordinary number"},
	{lab.Down, "Runs that stay down"},
}

// markdown has a table for each section. A cell has the values of several loads.
func markdown(all []measured, seeds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians of %d runs, or of fewer that have 60,000 calls.\n", max(1, seeds))
	for _, section := range sections {
		var lines []string
		var heading []string
		for _, s := range all {
			for _, loads := range groups(s.Loads, s.rows) {
				line, names := cellsOf(s, loads, section.metric)
				if line != "" {
					lines, heading = append(lines, line), names
				}
			}
		}
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n| trouble | load | %s |\n|---|---|%s\n", section.title, strings.Join(heading, " | "),
			strings.Repeat("---|", len(heading)))
		for _, line := range lines {
			b.WriteString(line)
		}
	}
	return b.String()
}

// groups returns the names of loads that share a row: those that differ in nothing but their size.
func groups(loads []lab.Load, rows []lab.Row) (all [][]string) {
	last := ""
	for _, l := range loads {
		if !slices.ContainsFunc(rows, func(r lab.Row) bool { return r.Load.Name == l.Name }) {
			continue
		}
		kind := fmt.Sprint(l.Deadline, l.Starts == nil)
		if kind != last {
			all, last = append(all, nil), kind
		}
		all[len(all)-1] = append(all[len(all)-1], l.Name)
	}
	return all
}

// cellsOf returns one line of a table, and the clients of its columns. The line is empty if there is
// nothing to show.
func cellsOf(s measured, loads []string, m lab.Metric) (line string, clients []string) {
	values := map[string][]string{}
	anything := false
	for _, load := range loads {
		for _, r := range s.rows {
			if r.Load.Name != load {
				continue
			}
			if !slices.Contains(clients, r.Client.Name) {
				clients = append(clients, r.Client.Name)
			}
			x := r.Result[m]
			anything = anything || !math.IsNaN(x) && (x != 0 || m == lab.Lost || m == lab.Down)
			values[r.Client.Name] = append(values[r.Client.Name], m.Format(x))
		}
	}
	if !anything {
		return "", nil
	}
	line = "| " + s.Name + " | " + strings.Join(loads, " / ")
	for _, c := range clients {
		line += " | " + joined(values[c])
	}
	return line + " |\n", clients
}

// joined writes a unit that all values have only once.
func joined(values []string) string {
	unit := ""
	if i := strings.IndexAny(values[0], " x"); i >= 0 {
		unit = values[0][i:]
	}
	var all []string
	for _, v := range values {
		number, found := strings.CutSuffix(v, unit)
		if !found {
			return strings.Join(values, " / ")
		}
		if unit == " %" {
			number = strings.TrimSuffix(number, ".0")
		}
		all = append(all, number)
	}
	return strings.Join(all, " / ") + unit
}
