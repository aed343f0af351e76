// Command batch sends a thousand jobs to a server, as fast as that allows, and
// goes on where it was when it is started again:
//
//	go run ./examples/batch
//	go run ./examples/batch -server https://api.example.com/jobs -rate 10
//
// Ctrl-C, or SIGTERM, lets the jobs end that were sent, and sends no other; what was
// answered is in the journal, a file, and is not sent again. If the process is killed, or the machine, the server
// may have done jobs whose answers were not written down: they are sent once
// more, with the same Idempotency-Key, by which a server that keeps to it knows
// them. With one that does not, no client can tell what became of them.
//
// Without -server, it has one of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/pace"
)

// A batch is what there is to do.
type batch struct {
	server  string
	jobs    int
	workers int
	journal *journal
	client  *http.Client
}

func main() {
	server := flag.String("server", "", "`URL` to which jobs are sent, as POST URL/1 and so on")
	path := flag.String("journal", "batch.journal", "`file` in which it stands what is done")
	jobs := flag.Int("jobs", 1000, "`number` of jobs")
	workers := flag.Int("workers", 20, "`number` of jobs in hand at a time")
	limit := flag.Float64("rate", 100, "`requests` a second that the server allows")
	flag.Parse()
	if *server == "" {
		own := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer own.Close()
		*server = own.URL
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once

	journal, err := openJournal(*path)
	if err == nil {
		b := &batch{server: *server, jobs: *jobs, workers: *workers, journal: journal}
		b.client = b.newClient(rate.Limit(*limit))
		err = errors.Join(b.run(ctx), journal.close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nbatch:", err)
		os.Exit(1)
	}
}

// newClient returns a client that paces itself, waits as long as it takes, and
// draws how far the batch is.
func (b *batch) newClient(limit rate.Limit) *http.Client {
	bar := &bar{jobs: b.jobs, done: b.journal.count}
	return &http.Client{Transport: &heed.Transport{
		Pacer: &pace.Queue{Pacer: pace.PerHost(limit, 1), Max: b.workers, Progress: bar.draw},
		Retry: heed.RetryPolicy{MaxWait: time.Hour, MaxElapsed: -1},
	}}
}

// run does the jobs that are not in the journal, until ctx ends. The error joins
// those of all jobs that failed.
func (b *batch) run(ctx context.Context) error {
	var (
		todo = make(chan int)
		errs = make(chan error, b.jobs)
		all  sync.WaitGroup
	)
	for range b.workers {
		all.Go(func() {
			for id := range todo {
				// What was sent is brought to its end, and what was not is left for the next time.
				err := b.do(heed.WithDrain(context.WithoutCancel(ctx), ctx), id)
				if err != nil && !errors.Is(err, heed.ErrNotSent) {
					errs <- fmt.Errorf("job %d: %w", id, err)
				}
			}
		})
	}
	stopped := b.feed(ctx, todo)
	all.Wait()
	close(errs)
	for err := range errs {
		stopped = errors.Join(stopped, err)
	}
	fmt.Printf("\n%d of %d jobs are done\n", b.journal.count(), b.jobs)
	return stopped
}

// feed hands out the jobs that are not done yet.
func (b *batch) feed(ctx context.Context, todo chan<- int) error {
	defer close(todo)
	for id := 1; id <= b.jobs; id++ {
		if b.journal.has(id) {
			continue
		}
		select {
		case todo <- id:
		case <-ctx.Done():
			return errors.New("stopped: start it again to go on")
		}
	}
	return nil
}

// do sends a job, and writes down that it was done.
func (b *batch) do(ctx context.Context, id int) error {
	req, err := http.NewRequestWithContext(ctx, "POST", fmt.Sprintf("%s/%d", b.server, id), nil)
	if err != nil {
		return err
	}
	// The same in each attempt, also after a restart: it is made of the job.
	req.Header.Set("Idempotency-Key", fmt.Sprintf("batch-%d", id))
	resp, err := b.client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return b.journal.add(id)
}
