package stage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Load is work to be done: jobs, which are numbered on from First, and the
// workers who take them one by one.
type Load struct {
	Workers, Jobs, First int
	For                  time.Duration // if positive, no job is begun later
}

// A Task does a job, and says how it was answered in the end.
type Task func(ctx context.Context, job int) (status int, err error)

// An Outcome is what the jobs of a Load were handed.
type Outcome struct {
	Throttled int    // jobs that were handed a 429
	Failed    int    // jobs that were handed an error or another status
	Reason    string // what one of those was
	Degraded  int    // times that Redis did not answer
}

// Do has the workers do the jobs. Those under way when ctx ends are left.
func (l Load) Do(ctx context.Context, t Task) Outcome {
	var (
		next    atomic.Int64
		workers sync.WaitGroup
		mu      sync.Mutex // guards all
		all     Outcome
		start   = time.Now()
	)
	for range l.Workers {
		workers.Go(func() {
			for job := next.Add(1); job <= int64(l.Jobs) && ctx.Err() == nil && !l.over(start); job = next.Add(1) {
				one := outcomeOf(t(ctx, l.First+int(job)))
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				all = all.Plus(one)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return all
}

func (l Load) over(start time.Time) bool { return l.For > 0 && time.Since(start) >= l.For }

func outcomeOf(status int, err error) Outcome {
	switch {
	case err != nil:
		return Outcome{Failed: 1, Reason: err.Error()}
	case status == http.StatusTooManyRequests:
		return Outcome{Throttled: 1}
	case status != http.StatusOK:
		return Outcome{Failed: 1, Reason: fmt.Sprint("status ", status)}
	}
	return Outcome{}
}

// Plus is what both were handed.
func (o Outcome) Plus(p Outcome) Outcome {
	if o.Reason == "" {
		o.Reason = p.Reason
	}
	o.Throttled += p.Throttled
	o.Failed += p.Failed
	o.Degraded += p.Degraded
	return o
}

// Share is the i-th of n parts of l, which differ by one at most.
func (l Load) Share(i, n int) Load {
	first := i * l.Jobs / n
	return Load{
		Workers: (i+1)*l.Workers/n - i*l.Workers/n,
		Jobs:    (i+1)*l.Jobs/n - first,
		First:   l.First + first,
		For:     l.For,
	}
}

// Connections is a transport that keeps a connection for each worker.
func (l Load) Connections() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: l.Workers}
}

// Get is the task of asking the server at url, once, through client.
func Get(client *http.Client, url string) Task {
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
