package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/redisstore"
)

// processEnv is set in the environment of the processes that this one starts
// from its own executable.
const processEnv = "HEED_EXAMPLES_WORKERS_PROCESS"

// An order is what one of several processes is to do. It is sent to its standard
// input, which stays open for as long as it is wanted; its outcome comes back
// from its standard output.
type order struct {
	load
	URL       string
	Redis     string
	Name      string // of what is shared, in Redis
	Limit     int64
	Processes int
}

// processes does the load of o in several processes, which share a bucket and a
// budget.
func processes(ctx context.Context, o *options, url string) (outcome, error) {
	var (
		started sync.WaitGroup
		mu      sync.Mutex // guards all and errs
		all     outcome
		errs    []error
		name    = fmt.Sprintf("heed:workers:%d:%d", os.Getpid(), time.Now().UnixNano())
	)
	for i := range o.processes {
		order := order{o.share(i, o.processes), url, o.redis, name, o.limit, o.processes}
		started.Go(func() {
			out, err := order.start(ctx)
			mu.Lock()
			defer mu.Unlock()
			all, errs = all.plus(out), append(errs, err)
		})
	}
	started.Wait()
	return all, errors.Join(errs...)
}

// start runs the process to its end. When ctx ends, its input does.
func (o order) start(ctx context.Context) (outcome, error) {
	self, err := os.Executable()
	if err != nil {
		return outcome{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), processEnv+"=1")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return outcome{}, err
	}
	cmd.Cancel, cmd.WaitDelay = stdin.Close, 5*time.Second
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	sent := json.NewEncoder(stdin).Encode(o)
	if err := cmd.Wait(); err != nil {
		return outcome{}, fmt.Errorf("a process: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var out outcome
	return out, errors.Join(sent, json.Unmarshal(stdout.Bytes(), &out))
}

// runProcess is the main of such a process. A Ctrl-C reaches it too, and is left
// to the one that started it.
func runProcess() int {
	signal.Ignore(os.Interrupt)
	if err := obey(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// obey does what the order on stdin says, until it is done or stdin ends.
func obey(stdin io.Reader, stdout io.Writer) error {
	var o order
	if err := json.NewDecoder(stdin).Decode(&o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, stdin)
		cancel()
	}()
	return json.NewEncoder(stdout).Encode(o.obey(ctx))
}

func (o order) obey(ctx context.Context) outcome {
	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	var degraded atomic.Int64
	count := func(error) { degraded.Add(1) }

	pacer := bucket(&redisstore.Store{Client: client, Prefix: o.Name + ":"}, o.Limit)
	pacer.Processes, pacer.Degraded = o.Processes, count
	budget := &redisstore.Budget{Client: client, Key: o.Name, Degraded: count}
	out := through(ctx, &heed.Transport{Pacer: pacer, Budget: budget}, o.load, o.URL)
	out.Degraded = int(degraded.Load())
	return out
}

// ping finds out whether there is a Redis at addr.
func ping(ctx context.Context, addr string) error {
	logging.Disable() // what it would say is said below
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: 2 * time.Second})
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("-redis %s: no Redis answers there: %w", addr, err)
	}
	return nil
}
