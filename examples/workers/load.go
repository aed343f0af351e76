package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// A load is work to be done: jobs, which are numbered on from First, and the
// workers who take them one by one.
type load struct {
	Workers, Jobs, First int
}

// A task does a job, and says how it was answered in the end.
type task func(ctx context.Context, job int) (status int, err error)

// An outcome is what the jobs of a load were handed.
type outcome struct {
	Throttled int    // jobs that were handed a 429
	Failed    int    // jobs that were handed an error or another status
	Reason    string // what one of those was
	Degraded  int    // times that Redis did not answer
}

// do has the workers do all jobs. Those under way when ctx ends are left.
func (l load) do(ctx context.Context, t task) outcome {
	var (
		next    atomic.Int64
		workers sync.WaitGroup
		mu      sync.Mutex // guards all
		all     outcome
	)
	for range l.Workers {
		workers.Go(func() {
			for job := next.Add(1); job <= int64(l.Jobs) && ctx.Err() == nil; job = next.Add(1) {
				one := outcomeOf(t(ctx, l.First+int(job)))
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				all = all.plus(one)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return all
}

func outcomeOf(status int, err error) outcome {
	switch {
	case err != nil:
		return outcome{Failed: 1, Reason: err.Error()}
	case status == http.StatusTooManyRequests:
		return outcome{Throttled: 1}
	case status != http.StatusOK:
		return outcome{Failed: 1, Reason: fmt.Sprint("status ", status)}
	}
	return outcome{}
}

func (o outcome) plus(p outcome) outcome {
	if o.Reason == "" {
		o.Reason = p.Reason
	}
	o.Throttled += p.Throttled
	o.Failed += p.Failed
	o.Degraded += p.Degraded
	return o
}

// share is the i-th of n parts of l, which differ by one at most.
func (l load) share(i, n int) load {
	first := i * l.Jobs / n
	return load{
		Workers: (i+1)*l.Workers/n - i*l.Workers/n,
		Jobs:    (i+1)*l.Jobs/n - first,
		First:   l.First + first,
	}
}

// connections is a transport that keeps a connection for each worker.
func (l load) connections() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: l.Workers}
}

// get is the task of asking the server at url, once, through client.
func get(client *http.Client, url string) task {
	return func(ctx context.Context, job int) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(url, "/jobs/", job), nil)
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
}
