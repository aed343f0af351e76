// The command table measures heed beside its rivals and prints one table: what
// each costs, and whether heed's own targets are met.
//
//	go run ./cmd/table [-rounds N] [-time D]
//
// All benchmarks are run one after the other, briefly, in many rounds, so that a
// noisy machine is noisy for all of them; what is printed are medians. It must be
// run in the benchmarks directory, and fails if a target is missed.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 15, "how often everything is measured")
	each := flag.Duration("time", 50*time.Millisecond, "how long each benchmark runs")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *each <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	missed, err := run(*rounds, *each)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	case missed > 0:
		fmt.Printf("\n%d targets missed\n", missed)
		os.Exit(1)
	}
}

func run(rounds int, each time.Duration) (missed int, err error) {
	dir, err := os.MkdirTemp("", "heed-benchmarks")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "benchmarks.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("building the benchmarks: %w", err)
	}
	all := make(samples)
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "\rround %d of %d", round+1, rounds)
		out, err := exec.Command(binary, "-test.run=^$", "-test.bench=.", "-test.benchtime="+each.String()).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("round %d: %w\n%s", round+1, err, out)
		}
		all.parse(string(out))
	}
	fmt.Fprintln(os.Stderr)
	return print(all), outage(binary)
}

// outage prints what an upstream has to bear that is down. It is a test, since
// its time is that of a bubble.
func outage(binary string) error {
	out, err := exec.Command(binary, "-test.run=^TestAnOutage", "-test.v").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the outage: %w\n%s", err, out)
	}
	fmt.Println("\n1000 requests started together, while the upstream answers nothing but 503:")
	for text := range strings.Lines(string(out)) {
		if _, result, ok := strings.Cut(text, ".go:"); ok {
			_, result, _ = strings.Cut(result, ": ")
			fmt.Print("  ", result)
		}
	}
	return nil
}

func print(all samples) (missed int) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, "figure\tlibrary\tns\tB\tallocs\tof bare\tof heed\ttarget\t\t")
	for _, f := range figures {
		rows := f.rows(all)
		for _, r := range rows {
			fmt.Fprintln(w, r)
		}
		for _, t := range f.targets {
			verdict := "met"
			if !t.met(rows) {
				verdict = "MISSED"
				missed++
			}
			fmt.Fprintf(w, "%s\t\t\t\t\t\t\t%s\t%s\t\n", f.title, t.text, verdict)
		}
	}
	w.Flush()
	return missed
}
