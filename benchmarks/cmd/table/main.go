// Command table measures heed and its rivals, prints what each costs, and whether heed meets its
// own targets.
//
//	go run ./cmd/table [-group LIST] [-rounds N] [-time D] [-svg DIRECTORY]
//
// All benchmarks run briefly, one after the other, in many rounds, so that a noisy machine is
// noisy for all of them. The program prints medians. Run it in the benchmarks directory. It takes
// about ten minutes, and fails if a target is missed. The group wrk is measured only if -group
// names it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	names := flag.String("group", "client,middleware,memory,redis", "what is measured")
	rounds := flag.Int("rounds", 0, "how often everything is measured; 0 for as often as each group needs")
	each := flag.Duration("time", 0, "how long each benchmark runs; 0 for as long as each group needs")
	pictures := flag.String("svg", "", "a directory for a picture of each group")
	flag.Parse()
	chosen, err := choose(*names)
	if err != nil || flag.NArg() > 0 || *rounds < 0 || *each < 0 {
		fmt.Fprintln(os.Stderr, "table:", err)
		flag.Usage()
		os.Exit(2)
	}
	for i := range chosen {
		chosen[i].override(*rounds, *each)
	}
	missed, err := run(chosen, *pictures)
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
	if missed > 0 {
		fmt.Printf("\n%d targets missed\n", missed)
		os.Exit(1)
	}
}

// choose returns the groups with the names of a list.
func choose(names string) (chosen []group, err error) {
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(groups, func(g group) bool { return g.name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no group %q", name)
		}
		chosen = append(chosen, groups[at])
	}
	return chosen, nil
}

// override applies -rounds and -time to all of g.
func (g *group) override(rounds int, each time.Duration) {
	g.runs = slices.Clone(g.runs)
	for i := range g.runs {
		if rounds > 0 {
			g.runs[i].rounds = rounds
		}
		if each > 0 {
			g.runs[i].each = each
		}
	}
}

func run(chosen []group, pictures string) (missed int, err error) {
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
	all, err := measure(binary, chosen)
	if err != nil {
		return 0, err
	}
	for _, g := range chosen {
		missed += g.print(os.Stdout, all)
		if g.name == client.name {
			err = outage(binary)
		}
		if err == nil && pictures != "" {
			err = os.WriteFile(filepath.Join(pictures, "benchmarks-"+g.name+".svg"), g.picture(all), 0o644)
		}
		if err != nil {
			return missed, err
		}
	}
	return missed, nil
}

// measure runs the batches of all groups in turn, until each has had its rounds.
func measure(binary string, chosen []group) (samples, error) {
	all := make(samples)
	for round, done := 1, false; !done; round++ {
		done = true
		for _, g := range chosen {
			for _, b := range g.runs {
				if round > b.rounds {
					continue
				}
				done = done && round == b.rounds
				fmt.Fprintf(os.Stderr, "\r%-12s round %d of %d", g.name, round, b.rounds)
				if err := b.run(binary, all); err != nil {
					return nil, fmt.Errorf("%s, round %d: %w", g.name, round, err)
				}
			}
		}
	}
	fmt.Fprintln(os.Stderr)
	return all, nil
}

func (b batch) run(binary string, all samples) error {
	args := []string{"-test.run=^$", "-test.bench=" + b.benchmarks, "-test.benchtime=" + b.each.String()}
	out, err := exec.Command(binary, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	all.parse(string(out))
	return nil
}

// outage prints how many requests an upstream gets while it is down. It runs a test, because the
// time is simulated.
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
