// Command storms runs the scenarios of examples/storm with other libraries among the clients:
//
//	go run ./cmd/storms -run '^refused' -loads M
//	go run ./cmd/storms -seeds 20 -parallel 2 -write ../docs/storms.md
//
// The second command writes all results into the document, between its two marker comments. It
// computes for about a quarter of an hour.
package main

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/heedhttp/heed/internal/lab"
)

func main() {
	table := lab.Table{Clients: clients()}
	table.Flags(flag.CommandLine)
	write := flag.String("write", "", "a Markdown `file` to write the results into")
	flag.Parse()
	lab.Main(func(t *testing.T) int {
		var all []measured
		err := table.Run(t, func(s lab.Scenario, rows []lab.Row) {
			lab.Print(os.Stdout, s, rows)
			all = append(all, measured{s, rows})
		})
		if err == nil && *write != "" {
			err = writeInto(*write, markdown(all, table.Seeds))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "storms:", err)
			return 1
		}
		return 0
	})
}

// measured are the rows of one scenario.
type measured struct {
	lab.Scenario
	rows []lab.Row
}
