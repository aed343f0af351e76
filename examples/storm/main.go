// Command storm repeats two published experiments on retries, with heed among the clients. Then it
// shows what a client loses in one trouble after another, and what its retries cost the server:
//
//	go run ./examples/storm
//	go run ./examples/storm -svg docs
//	go run ./examples/storm -table -run '^refused' -loads M -seeds 5
//	go run ./examples/storm -table -clients '.*'
//	go run ./examples/storm -table -goals -seeds 3
//
// The heed.Transport is the real one. The network and the time are simulated, so minutes take
// seconds. The experiments give nearly the same figures each time. docs/storms.md explains them.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/heedhttp/heed/examples/internal/chart"
	"github.com/heedhttp/heed/internal/lab"
)

func main() {
	table := lab.Table{Clients: lab.Clients(), Client: "no retry|four attempts|AWS standard|heed"}
	table.Flags(flag.CommandLine)
	runs := flag.Int("runs", 20, "how many `times` to repeat the spike of load")
	svg := flag.String("svg", "", "write the pictures as SVG into a `directory`")
	only := flag.Bool("table", false, "show the table without the pictures")
	judged := flag.Bool("goals", false, "show the goals instead of the table, and whether heed meets them")
	flag.Parse()
	lab.Main(func(t *testing.T) int {
		if !*only {
			retries(t).show(*svg, "storm-retries.svg")
			collapse(t, max(1, *runs)).show(*svg, "storm-collapse.svg")
		}
		show := func(s lab.Scenario, rows []lab.Row) { lab.Print(os.Stdout, s, rows) }
		if *judged {
			table.Client = "heed|four attempts"
			show = judge
		}
		if err := table.Run(t, show); err != nil {
			fmt.Fprintln(os.Stderr, "storm:", err)
			return 2
		}
		return 0
	})
}

// A report is what an experiment prints.
type report struct {
	about, notes string
	table        [][]string
	picture      chart.Picture
}

func (r report) show(dir, file string) {
	fmt.Printf("%s\n\n%s\n\n", strings.ToUpper(r.picture.Title), r.about)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range r.table {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush()
	fmt.Printf("\n%s\n\n", r.notes)
	r.picture.Draw(os.Stdout)
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, file), r.picture.SVG(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}
