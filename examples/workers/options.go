package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/heedhttp/heed/examples/internal/stage"
)

// options are what the command line says.
type options struct {
	stage.Load
	limit     int64         // requests that the server admits each second
	naive     time.Duration // how long the naive loop may run
	svg       string        // where the picture goes, if anywhere
	redis     string        // where the last part's processes meet, if they do
	processes int           // how many of them there are
}

// A usageError is a command line that cannot be meant.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() + "; see -h" }

const usage = `usage: go run ./examples/workers [flags]

Workers do jobs at a server that limits them: in a naive retry loop, through
heed, and through heed paced by a shared bucket. What the server counted is
shown as a table, and as a chart of each part.

`

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("workers", flag.ContinueOnError)
	flags.IntVar(&o.Workers, "workers", 50, "`number` of workers")
	flags.IntVar(&o.Jobs, "jobs", 200, "`number` of jobs, one request each if all goes well")
	flags.Int64Var(&o.limit, "limit", 20, "`requests` that the server admits each second")
	flags.DurationVar(&o.naive, "naive", 10*time.Second, "`time` after which the naive loop is stopped")
	flags.StringVar(&o.svg, "svg", "", "write a picture of the arrivals to `file`")
	flags.StringVar(&o.redis, "redis", "", "`address` of a Redis, host:port, through which the last part's processes share")
	flags.IntVar(&o.processes, "processes", 5, "`number` of processes of the last part, with -redis")
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, usage)
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, &usageError{err}
	case flags.NArg() > 0:
		return nil, &usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	if err := o.faults(); err != nil {
		return nil, &usageError{err}
	}
	return o, nil
}

// faults are all that is wrong with o.
func (o *options) faults() error {
	return errors.Join(
		within("workers", o.Workers, 1, 1000),
		within("jobs", o.Jobs, 1, 10_000),
		within("limit", o.limit, 1, 10_000),
		within("naive", o.naive, time.Millisecond, time.Hour),
		within("processes", o.processes, 1, 100),
		o.divisible(),
	)
}

func within[N int | int64 | time.Duration](name string, n, low, high N) error {
	if n < low || n > high {
		return fmt.Errorf("-%s is %v: it must be from %v to %v", name, n, low, high)
	}
	return nil
}

// divisible reports that there are processes without a worker, or a job.
func (o *options) divisible() error {
	if o.redis != "" && o.processes > min(o.Workers, o.Jobs) {
		return fmt.Errorf("-processes is %d: there must be a worker and a job for each", o.processes)
	}
	return nil
}

// check finds out at the start what would fail at the end.
func (o *options) check(ctx context.Context) error {
	if o.svg != "" {
		if err := writable(o.svg); err != nil {
			return fmt.Errorf("-svg: %w", err)
		}
	}
	if o.redis != "" {
		if err := stage.Ping(ctx, o.redis); err != nil {
			return fmt.Errorf("-redis %s: no Redis answers there: %w", o.redis, err)
		}
	}
	return nil
}

// writable reports that there can be no file called name. It leaves no trace.
func writable(name string) error {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", name)
	}
	probe, err := os.CreateTemp(filepath.Dir(name), ".arrivals-*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (o *options) summary() string {
	return fmt.Sprintf("%s workers, %s jobs, a limit of %s requests a second",
		stage.Grouped(o.Workers), stage.Grouped(o.Jobs), stage.Grouped(int(o.limit)))
}
