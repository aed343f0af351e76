// Package daemon runs server programs for tests.
package daemon

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// startTimeout is how long a daemon may take to become ready.
const startTimeout = time.Minute

// A Daemon is a process that ends with this one.
type Daemon struct {
	Process *os.Process

	ended  chan struct{} // closed when the process has ended
	output bytes.Buffer  // its output; read it only after ended
}

// Start starts cmd and waits until ready returns true.
func Start(cmd *exec.Cmd, ready func(*Daemon) bool) (*Daemon, error) {
	d := &Daemon{ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &d.output, &d.output, dieWithParent()
	cmd.WaitDelay = time.Second // child processes that outlive cmd may still hold its output
	started := make(chan error)
	go func() {
		// On Linux a child's parent is this thread, which must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(d.ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	d.Process = cmd.Process
	return d, d.await(ready)
}

func (d *Daemon) await(ready func(*Daemon) bool) error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		select {
		case <-d.ended:
			return fmt.Errorf("daemon: the process ended before it was ready: %s", &d.output)
		case <-time.After(5 * time.Millisecond):
		}
		if ready(d) {
			return nil
		}
	}
	d.Kill()
	return fmt.Errorf("daemon: not ready after %v", startTimeout)
}

// Kill ends the process and waits until it has ended. It does nothing for a nil Daemon.
func (d *Daemon) Kill() {
	if d != nil {
		d.Process.Kill()
		<-d.ended
	}
}

// FreePort returns a port that was free a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("daemon: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
