package stage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// A Part is one of the ways to do the work.
type Part struct {
	Name  string
	Heeds bool // no job may be lost, or handed a 429
	Do    func(ctx context.Context, url string) (Outcome, error)
}

// A Result is what came of a Part.
type Result struct {
	Part
	Tally
	Outcome
	Log  []Arrival
	Jobs int   // that were to be done
	Err  error // that kept the Part from being played as it should
}

// Perform plays p at a Server of its own, and shows how many of jobs are done.
func (p Part) Perform(ctx context.Context, s *Screen, limiter func(http.Handler) http.Handler, jobs int) (Result, error) {
	srv, err := Serve(limiter)
	if err != nil {
		return Result{}, err
	}
	stop := s.Follow(p.Name, jobs, func() Tally { return TallyOf(srv.Log()) })
	out, err := p.Do(ctx, srv.URL)
	srv.Close()
	stop()
	log := srv.Log()
	return Result{p, TallyOf(log), out, log, jobs, err}, nil
}

// Fault is what the jobs did not deserve.
func (r Result) Fault() error {
	errs := []error{r.Err}
	if r.Throttled > 0 {
		errs = append(errs, fmt.Errorf("%s: %s handed a 429", r.Name, were(r.Throttled)))
	}
	if lost := r.Jobs - r.Done; lost > 0 {
		errs = append(errs, fmt.Errorf("%s: %s not done", r.Name, were(lost)))
	}
	if r.Failed > 0 {
		errs = append(errs, fmt.Errorf("%s: %s handed an error: %s", r.Name, were(r.Failed), r.Reason))
	}
	return errors.Join(errs...)
}

// were begins a sentence about n jobs.
func were(n int) string {
	if n == 1 {
		return "1 job was"
	}
	return Grouped(n) + " jobs were"
}
