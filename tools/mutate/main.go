// The command mutate shows what the tests catch. It makes small changes, mutants, to the code of packages, and runs
// the tests with each:
//
//	go -C tools run ./mutate -dir .. -n 60 -seed 1 -out mutants.jsonl ./quota/... ./redisstore
//
// A mutant changes a comparison, an arithmetic or logical operator or a constant, drops a statement, or makes the
// condition of an if statement always true or false. Embedded Lua files are changed as well; generated files and tests
// are not. The tests of the mutant's package run first. If they pass, those of the packages that import it follow. The
// source tree stays as it is: the mutants are overlays of go test. The flags are:
//
//	-dir      the root of the module, by default the working directory
//	-n        how many mutants to test; those that do not compile do not count
//	-seed     which mutants: a seed is one order of all mutants of the same code and packages
//	-out      the file of results, one JSON object per line
//	-summary  print the table of the results in -out, and test nothing
//
// The arguments are packages, as for go list. A package whose name begins or ends with "test" is left out unless an
// argument is its path. A run that was ended goes on when it is started again with the same flags.
//
// Tests may take three times as long as without a mutant, and 30 seconds more. Their processes are then killed. To use
// one core, set GOMAXPROCS=1 and GOFLAGS=-p=1; to bound what a mutant may allocate, call ulimit -v. The command needs
// the process groups of Unix.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	dir := flag.String("dir", ".", "the root `directory` of the module")
	n := flag.Int("n", 60, "how many `mutants` to test")
	seed := flag.Uint64("seed", 1, "which mutants")
	out := flag.String("out", "mutants.jsonl", "the `file` of results")
	summary := flag.Bool("summary", false, "only print the table of the results in -out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if !*summary {
		err = run(ctx, os.Stdout, *dir, *n, *seed, *out, flag.Args())
	}
	if err == nil {
		err = printTable(os.Stdout, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// run tests n mutants of the packages that patterns name, without those that already have a result in the file out.
func run(ctx context.Context, log io.Writer, dir string, n int, seed uint64, out string, patterns []string) error {
	t, err := newTester(dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(t.temp)
	all, err := t.mutants(ctx, patterns)
	if err != nil {
		return err
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	results, err := readResults(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for number := 0; n > 0 && number < len(all); number++ {
		m := all[number]
		if number == len(results) {
			began := time.Now()
			v, err := t.try(ctx, m)
			if err != nil {
				return err
			}
			r := result{seed, number, m.change, v, time.Since(began).Seconds()}
			if err := r.appendTo(out); err != nil {
				return err
			}
			fmt.Fprintf(log, "%d %s: %s: %v\n", number, r.place(), r.Kind, v)
			results = append(results, r)
		}
		r := results[number]
		if r.Seed != seed || r.change != m.change {
			return fmt.Errorf("%s has results of other flags or other code", out)
		}
		if r.Outcome != notCompiled {
			n--
		}
	}
	return nil
}
