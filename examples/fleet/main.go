// Command fleet shows what several processes make of one limit when they share
// what they know: a pace, a retry budget and a board of cool-downs, in Redis.
//
//	go run ./examples/fleet
//	go run ./examples/fleet -redis localhost:6379 -for 20s
//
// Four processes of three workers each ask a server of this one, over TCP, that
// admits twenty requests a second. At half-time the server tells one of them,
// once, to wait for two seconds: all of them do.
//
// All that it shows was counted by the server. It exits with 1 if the server had
// to refuse another request, or if a job was handed a 429 or an error.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/examples/internal/stage"
)

const (
	processes = 4
	workers   = 3 // of each
	limit     = 20
	coolDown  = 2 * time.Second
)

func main() {
	stage.Obey[order]()
	addr := flag.String("redis", "localhost:6379", "`address` of a Redis, host:port, where the processes meet")
	lasting := flag.Duration("for", 12*time.Second, "`time` in which jobs are begun")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, stage.NewScreen(os.Stdout), *addr, *lasting); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run is the whole program.
func run(ctx context.Context, s *stage.Screen, addr string, lasting time.Duration) error {
	if err := stage.Ping(ctx, addr); err != nil {
		return fmt.Errorf("-redis %s: no Redis answers there: %w", addr, err)
	}
	r, err := perform(ctx, s, addr, lasting)
	if err != nil {
		return err
	}
	stage.WriteTable(s, []stage.Result{r})
	stage.WriteCharts(s, []stage.Result{r})
	return newReport(r).write(s)
}

// perform has the processes work.
func perform(ctx context.Context, s *stage.Screen, addr string, lasting time.Duration) (stage.Result, error) {
	limiter, err := stage.Limited(limit)
	if err != nil {
		return stage.Result{}, err
	}
	half := halfTime{over: lasting / 2}
	part := stage.Part{Name: "fleet", Heeds: true, Do: func(ctx context.Context, url string) (stage.Outcome, error) {
		return stage.Processes(ctx, orders(url, addr, lasting))
	}}
	jobs := max(1, int((lasting-coolDown).Seconds()*limit)) // or a few more
	r, err := part.Perform(ctx, s, func(h http.Handler) http.Handler { return half.refuse(limiter(h)) }, jobs)
	r.Jobs = r.Begun
	return r, err
}

// halfTime refuses one request.
type halfTime struct {
	over  time.Duration
	begun atomic.Pointer[time.Time] // the first request
	done  atomic.Bool
}

// refuse has the first request refused that comes when half of the time is over.
func (t *halfTime) refuse(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		t.begun.CompareAndSwap(nil, &now)
		if now.Sub(*t.begun.Load()) < t.over || !t.done.CompareAndSwap(false, true) {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", fmt.Sprint(int(coolDown.Seconds())))
		http.Error(w, "half-time", http.StatusTooManyRequests)
	})
}
