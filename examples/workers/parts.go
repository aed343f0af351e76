package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// A part is one of the ways to do the load.
type part struct {
	name  string
	heeds bool // no job may be lost, or handed a 429
	do    func(ctx context.Context, url string) (outcome, error)
}

// A result is what came of a part.
type result struct {
	part
	tally
	outcome
	jobs int // that were to be done
	err  error
}

func parts(o *options) []part {
	all := []part{
		{"naive retry loop", false, func(ctx context.Context, url string) (outcome, error) {
			return naive(ctx, o.load, url, o.naive), nil
		}},
		{"heed", true, func(ctx context.Context, url string) (outcome, error) {
			return heeded(ctx, o.load, url), nil
		}},
	}
	if o.redis != "" {
		return append(all, part{fmt.Sprintf("heed, %d processes", o.processes), true,
			func(ctx context.Context, url string) (outcome, error) { return processes(ctx, o, url) }})
	}
	return append(all, part{"heed, shared bucket", true, func(ctx context.Context, url string) (outcome, error) {
		return paced(ctx, o.load, url, o.limit), nil
	}})
}

// perform plays one part after the other. If ctx ends, it returns the results
// of those that were finished.
func perform(ctx context.Context, o *options, s *screen) (results []result, err error) {
	for _, p := range parts(o) {
		r, err := p.perform(ctx, o, s)
		if ctx.Err() != nil {
			return results, fmt.Errorf("%w during %q", errInterrupted, p.name)
		}
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// perform plays p at a server of its own.
func (p part) perform(ctx context.Context, o *options, s *screen) (result, error) {
	srv, err := serve(o.limit)
	if err != nil {
		return result{}, err
	}
	stop := s.follow(p.name, o.Jobs, srv.log.tally)
	out, err := p.do(ctx, srv.url)
	srv.close()
	stop()
	return result{p, srv.log.tally(), out, o.Jobs, err}, nil
}

// verdict is what must not be; if all is well, it says so.
func verdict(w io.Writer, results []result) error {
	var errs []error
	jobs := 0
	for _, r := range results {
		if r.Degraded > 0 {
			fmt.Fprintf(w, "Redis did not answer %d times; meanwhile each process kept to its share.\n", r.Degraded)
		}
		if r.heeds {
			errs = append(errs, r.fault())
			jobs += r.jobs
		}
	}
	err := errors.Join(errs...)
	if err == nil && jobs > 0 {
		fmt.Fprintf(w, "heed did all of its %s jobs and handed none of them a 429.\n", grouped(jobs))
	}
	return err
}

// fault is what r's jobs did not deserve.
func (r result) fault() error {
	errs := []error{r.err}
	if r.Throttled > 0 {
		errs = append(errs, fmt.Errorf("%s: %s handed a 429", r.name, were(r.Throttled)))
	}
	if lost := r.jobs - r.done; lost > 0 {
		errs = append(errs, fmt.Errorf("%s: %s not done", r.name, were(lost)))
	}
	if r.Failed > 0 {
		errs = append(errs, fmt.Errorf("%s: %s handed an error: %s", r.name, were(r.Failed), r.Reason))
	}
	return errors.Join(errs...)
}

// were begins a sentence about n jobs.
func were(n int) string {
	if n == 1 {
		return "1 job was"
	}
	return grouped(n) + " jobs were"
}
