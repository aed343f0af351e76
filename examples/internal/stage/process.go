package stage

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
	"time"
)

// processEnv is set in the environment of the processes that this one starts
// from its own executable.
const processEnv = "HEED_EXAMPLES_PROCESS"

// An Order is what one of several processes is to do. It is sent to its standard
// input as JSON; its Outcome comes back from its standard output.
type Order interface {
	Obey(ctx context.Context) Outcome
}

// Processes has each of orders obeyed by a process of its own.
func Processes[O Order](ctx context.Context, orders []O) (Outcome, error) {
	var (
		started sync.WaitGroup
		mu      sync.Mutex // guards all and errs
		all     Outcome
		errs    []error
	)
	for _, order := range orders {
		started.Go(func() {
			out, err := start(ctx, order)
			mu.Lock()
			defer mu.Unlock()
			all, errs = all.Plus(out), append(errs, err)
		})
	}
	started.Wait()
	return all, errors.Join(errs...)
}

// start runs the process to its end. Its input stays open for as long as it is
// wanted, which is until ctx ends.
func start(ctx context.Context, order any) (Outcome, error) {
	self, err := os.Executable()
	if err != nil {
		return Outcome{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), processEnv+"=1")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Outcome{}, err
	}
	cmd.Cancel, cmd.WaitDelay = stdin.Close, 5*time.Second
	if err := cmd.Start(); err != nil {
		return Outcome{}, err
	}
	sent := json.NewEncoder(stdin).Encode(order)
	if err := cmd.Wait(); err != nil {
		return Outcome{}, fmt.Errorf("a process: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var out Outcome
	return out, errors.Join(sent, json.Unmarshal(stdout.Bytes(), &out))
}

// Obey ends the process if it is one that was started to obey an O. A main calls
// it first. A Ctrl-C reaches such a process too, and is left to the one that
// started it.
func Obey[O Order]() {
	if os.Getenv(processEnv) == "" {
		return
	}
	signal.Ignore(os.Interrupt)
	if err := obey[O](os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// obey does what the order on stdin says, until it is done or stdin ends.
func obey[O Order](stdin io.Reader, stdout io.Writer) error {
	var o O
	if err := json.NewDecoder(stdin).Decode(&o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, stdin)
		cancel()
	}()
	return json.NewEncoder(stdout).Encode(o.Obey(ctx))
}
