package lab

import (
	"flag"
	"fmt"
	"io"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// A Table is a choice of scenarios, loads and clients.
type Table struct {
	Clients  []Client
	Seeds    int
	Parallel int // runs at the same time

	// Regular expressions choose what is run: the first matches a part of the name, the others all of
	// it. An empty one is everything.
	Scenario, Load, Client string
}

// Flags defines the flags that choose what is run.
func (b *Table) Flags(f *flag.FlagSet) {
	f.StringVar(&b.Scenario, "run", b.Scenario, "a `regexp` that a part of the scenario's name matches")
	f.StringVar(&b.Load, "loads", b.Load, "a `regexp` for the whole name of the load")
	f.StringVar(&b.Client, "clients", b.Client, "a `regexp` for the whole name of the client")
	f.IntVar(&b.Seeds, "seeds", max(1, b.Seeds), "`runs` of each row, which shows their medians; fewer if they have many calls")
	f.IntVar(&b.Parallel, "parallel", max(1, b.Parallel), "`runs`, and processors, at the same time")
}

// A Row is the result of one client under one load.
type Row struct {
	Load   Load
	Client Client
	Result
}

// Run measures the choice. It calls done for each scenario, with its rows by load and then by client.
func (b *Table) Run(t *testing.T, done func(s Scenario, rows []Row)) error {
	run, err := regexp.Compile(b.Scenario)
	if err != nil {
		return err
	}
	loads, err := whole(b.Load)
	if err != nil {
		return err
	}
	clients, err := whole(b.Client)
	if err != nil {
		return err
	}
	for _, s := range Scenarios() {
		if !run.MatchString(s.Name) {
			continue
		}
		var rows []Row
		for _, l := range s.Loads {
			for _, c := range b.Clients {
				if loads.MatchString(l.Name) && clients.MatchString(c.Name) {
					rows = append(rows, Row{Load: l, Client: c})
				}
			}
		}
		if len(rows) > 0 {
			b.measure(t, s, rows)
			done(s, rows)
		}
	}
	return nil
}

// whole returns a regular expression that matches the whole of a name; nothing matches all.
func whole(expr string) (*regexp.Regexp, error) {
	if expr == "" {
		expr = ".*"
	}
	return regexp.Compile("^(?:" + expr + ")$")
}

// measure runs each row with some seeds.
func (b *Table) measure(t *testing.T, s Scenario, rows []Row) {
	results := make([][]Result, len(rows))
	var work []func()
	for i, r := range rows {
		results[i] = make([]Result, b.runs(s, r.Load))
		for seed := range results[i] {
			work = append(work, func() { results[i][seed] = s.Run(t, r.Client, r.Load, uint64(seed)) })
		}
	}
	b.inParallel(work)
	for i := range rows {
		rows[i].Result = Medians(results[i])
	}
}

// runs returns Seeds, or as many as have 60,000 calls if these are fewer, but at least three.
func (b *Table) runs(s Scenario, l Load) int {
	seeds := max(1, b.Seeds)
	if calls := l.PerSecond() * s.Lasts.Seconds(); calls > 0 {
		seeds = min(seeds, max(3, int(60_000/calls)))
	}
	return seeds
}

func (b *Table) inParallel(work []func()) {
	if b.Parallel > 1 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(b.Parallel))
	}
	next := make(chan func())
	var workers sync.WaitGroup
	for range max(1, b.Parallel) {
		workers.Go(func() {
			for f := range next {
				f()
			}
		})
	}
	for _, f := range work {
		next <- f
	}
	close(next)
	workers.Wait()
}

// columns are the headings of the metrics, and how they are written.
var columns = [metrics]struct {
	name   string
	format func(float64) string
}{
	Lost:     {"lost", percent},
	Requests: {"requests", ratio},
	Dials:    {"dials", ratio},
	Second:   {"1 s after", times},
	Tenth:    {"100 ms after", times},
	WaitHalf: {"wait 50%", seconds},
	WaitMost: {"wait 99%", seconds},
	Longest:  {"longest", seconds},
	InFlight: {"in flight", func(x float64) string { return fmt.Sprintf("%.0f", x) }},
	FailHalf: {"failed 50%", seconds},
	Admitted: {"admitted", percent},
	Down:     {"stay down", percent},
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
func ratio(x float64) string   { return fmt.Sprintf("%.2f", x) }
func times(x float64) string   { return fmt.Sprintf("%.1fx", x) }

func seconds(x float64) string {
	if x < 1 {
		return fmt.Sprintf("%.0f ms", 1000*x)
	}
	return fmt.Sprintf("%.1f s", x)
}

// Format writes a value as the table does.
func (m Metric) Format(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return columns[m].format(x)
}

// String is the heading of the column.
func (m Metric) String() string { return columns[m].name }

// cells returns a heading and the rows, without the columns of which nothing was measured.
func cells(rows []Row) (all [][]string) {
	all = [][]string{{"load", "client"}}
	for _, r := range rows {
		all = append(all, []string{r.Load.Name, r.Client.Name})
	}
	for m := range metrics {
		measured := func(r Row) bool { return r.Result[m] > 0 || r.Result[m] == 0 && m != Dials }
		if !slices.ContainsFunc(rows, measured) {
			continue
		}
		all[0] = append(all[0], m.String())
		for i, r := range rows {
			all[i+1] = append(all[i+1], m.Format(r.Result[m]))
		}
	}
	return all
}

// Print writes the rows of a scenario as text.
func Print(w io.Writer, s Scenario, rows []Row) {
	fmt.Fprintf(w, "\n%s\n", s.Name)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range cells(rows) {
		fmt.Fprintf(table, "  %s\n", strings.Join(row, "\t"))
	}
	table.Flush()
}
