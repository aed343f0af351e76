// Command storm repeats experiments on retries that others have published, with heed
// among the clients, and shows what they found beside what it finds.
//
//	go run ./examples/storm
//	go run ./examples/storm -only collapse -runs 80
//	go run ./examples/storm -svg docs
//
// The heed.Transport is the real one; the network and the time are not: all of it takes
// seconds. Each experiment is a file, and an entry in the table of experiments. It exits
// with 1 if a bound is broken that heed has to keep.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

var experiments = []experiment{failures, collapse}

// An experiment is one that others have published.
type experiment struct {
	name   string // for -only
	title  string
	source string // where it is published
	about  string // what is simulated
	notes  string // what the table does not say
	run    func(t *testing.T, runs int) findings
}

// findings are a table, with what is published in it, a picture, and what heed must keep.
type findings struct {
	head    []string
	rows    [][]string
	bounds  []bound
	picture picture
}

// A bound is a figure of heed's, and the most that it may be.
type bound struct {
	what        string
	value, most float64
}

func (b bound) broken() bool { return b.value > b.most }

func (b bound) String() string {
	verdict := "kept"
	if b.broken() {
		verdict = "BROKEN"
	}
	return fmt.Sprintf("%s: %.4g, at most %g: %s", b.what, b.value, b.most, verdict)
}

func main() {
	withBubbles(func(t *testing.T) int {
		err := run(t, os.Args[1:], os.Stdout, os.Stderr)
		if err != nil && !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "storm:", strings.ReplaceAll(err.Error(), "\n", "\nstorm: "))
		}
		return exitCode(err)
	})
}

// A usageError is a command line that cannot be meant.
type usageError struct{ error }

func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		return 2
	}
	return 1
}

const defaultRuns = 20

type options struct {
	runs      int
	svg, only string
	list      bool
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("storm", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", defaultRuns, "`number` of runs of an experiment whose runs differ")
	flags.StringVar(&o.svg, "svg", "", "write a picture of each experiment into `directory`")
	flags.StringVar(&o.only, "only", "", "`name` of the one experiment to run")
	flags.BoolVar(&o.list, "list", false, "list the experiments, and run none")
	flags.SetOutput(io.Discard)
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, "usage: go run ./examples/storm [flags]\n\nRepeats published experiments on retries, with heed among the clients.\n\n")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return o, err
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.runs < 1 || o.runs > 200:
		err = fmt.Errorf("-runs is %d: it must be from 1 to 200", o.runs)
	case o.only != "" && !slices.ContainsFunc(experiments, func(e experiment) bool { return e.name == o.only }):
		err = fmt.Errorf("-only is %q: there is no such experiment; -list lists them", o.only)
	}
	if err != nil {
		return o, usageError{fmt.Errorf("%w; see -h", err)}
	}
	return o, nil
}

// run is the whole program. Its error says why it must not exit with 0.
func run(t *testing.T, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if info, err := os.Stat(o.svg); o.svg != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("-svg: there is no directory %s", o.svg)
	}
	for _, e := range experiments {
		switch {
		case o.list:
			fmt.Fprintf(stdout, "%-10s %s\n", e.name, e.title)
		case o.only == "" || o.only == e.name:
			f := e.run(t, o.runs)
			e.print(stdout, f)
			err = errors.Join(err, f.broken(), f.picture.save(o.svg))
		}
	}
	return err
}

func (f findings) broken() (err error) {
	for _, b := range f.bounds {
		if b.broken() {
			err = errors.Join(err, errors.New(b.String()))
		}
	}
	return err
}

func (p picture) save(dir string) error {
	if dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, p.file), p.svg(), 0o644)
}

func (e experiment) print(w io.Writer, f findings) {
	fmt.Fprintf(w, "%s\n%s\n\n%s\n\n", strings.ToUpper(e.title), e.source, e.about)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{f.head}, f.rows...) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	table.Flush()
	fmt.Fprintf(w, "\n%s\n\n", e.notes)
	f.picture.draw(w)
	for _, b := range f.bounds {
		fmt.Fprintln(w, "bound:", b)
	}
	fmt.Fprintln(w)
}
