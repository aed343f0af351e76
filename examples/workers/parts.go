package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/heedhttp/heed/examples/internal/stage"
)

func parts(o *options) []stage.Part {
	all := []stage.Part{
		{Name: "naive retry loop", Do: func(ctx context.Context, url string) (stage.Outcome, error) {
			return naive(ctx, o.Load, url, o.naive), nil
		}},
		{Name: "heed", Heeds: true, Do: func(ctx context.Context, url string) (stage.Outcome, error) {
			return heeded(ctx, o.Load, url), nil
		}},
	}
	if o.redis != "" {
		return append(all, stage.Part{Name: fmt.Sprintf("heed, %d processes", o.processes), Heeds: true,
			Do: func(ctx context.Context, url string) (stage.Outcome, error) { return processes(ctx, o, url) }})
	}
	return append(all, stage.Part{Name: "heed, shared bucket", Heeds: true,
		Do: func(ctx context.Context, url string) (stage.Outcome, error) {
			return paced(ctx, o.Load, url, o.limit), nil
		}})
}

// perform plays one part after the other. If ctx ends, it returns the results
// of those that were finished.
func perform(ctx context.Context, o *options, s *stage.Screen) (results []stage.Result, err error) {
	for _, p := range parts(o) {
		r, err := play(ctx, p, o, s)
		if ctx.Err() != nil {
			return results, fmt.Errorf("%w during %q", errInterrupted, p.Name)
		}
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

func play(ctx context.Context, p stage.Part, o *options, s *stage.Screen) (stage.Result, error) {
	limiter, err := stage.Limited(o.limit)
	if err != nil {
		return stage.Result{}, err
	}
	return p.Perform(ctx, s, limiter, o.Jobs)
}

// verdict is what must not be; if all is well, it says so.
func verdict(w io.Writer, results []stage.Result) error {
	var errs []error
	jobs := 0
	for _, r := range results {
		if r.Degraded > 0 {
			fmt.Fprintf(w, "Redis did not answer %d times; meanwhile each process kept to its share.\n", r.Degraded)
		}
		if r.Heeds {
			errs = append(errs, r.Fault())
			jobs += r.Jobs
		}
	}
	err := errors.Join(errs...)
	if err == nil && jobs > 0 {
		fmt.Fprintf(w, "heed did all of its %s jobs and handed none of them a 429.\n", stage.Grouped(jobs))
	}
	return err
}
