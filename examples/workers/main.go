// Command workers shows what a rate limit makes of many workers: how they storm
// a server when each retries on its own, and how they queue when they heed it.
//
//	go run ./examples/workers
//	go run ./examples/workers -svg arrivals.svg
//	go run ./examples/workers -redis localhost:6379
//
// Fifty workers do two hundred jobs at a server of its own, over TCP, that
// admits twenty requests a second: first in a loop that retries until it works,
// then through heed, then through heed paced by a bucket that they share. With
// -redis, the last part is done by several processes, whose bucket and retry
// budget are in Redis.
//
// All that it shows was counted by the server. It exits with 1 if heed hands a
// 429 to a job, or if a job is lost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/heedhttp/heed/examples/internal/stage"
)

var errInterrupted = errors.New("interrupted")

func main() {
	stage.Obey[order]()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	complain(os.Stderr, err)
	os.Exit(exitCode(err))
}

// complain says what err is about, a fault a line.
func complain(w io.Writer, err error) {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(w, "workers:", strings.TrimSpace(line))
	}
}

func exitCode(err error) int {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		return 2
	case errors.Is(err, errInterrupted):
		return 130
	}
	return 1
}

// run is the whole program. Its error says why it must not exit with 0.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := o.check(ctx); err != nil {
		return err
	}
	s := stage.NewScreen(stdout)
	fmt.Fprintf(s, "%s.\n\n", o.summary())
	results, err := perform(ctx, o, s)
	if len(results) > 0 {
		stage.WriteTable(s, results)
		stage.WriteCharts(s, results)
	}
	return errors.Join(err, verdict(s, results), save(o, results))
}

// save writes the picture, if one was asked for and there is something to see.
func save(o *options, results []stage.Result) error {
	if o.svg == "" || len(results) == 0 {
		return nil
	}
	return os.WriteFile(o.svg, picture(o.summary(), o.limit, results), 0o644)
}
