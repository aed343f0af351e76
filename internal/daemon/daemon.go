// Package daemon runs the servers of others for tests.
package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// startTimeout is how long a daemon may take to get ready.
const startTimeout = time.Minute

// A Daemon is a process that was started, and ends with this one.
type Daemon struct {
	Process *os.Process

	ended  chan struct{} // closed when it has ended
	output bytes.Buffer  // what it printed; to be read once it has ended
}

// Start starts cmd, and waits until ready says that it is.
func Start(cmd *exec.Cmd, ready func(*Daemon) bool) (*Daemon, error) {
	d := &Daemon{ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &d.output, &d.output, dieWithParent()
	cmd.WaitDelay = time.Second // for what it has started, and may outlive it, to let go of its output
	started := make(chan error)
	go func() {
		// On Linux a child's parent is the thread, and this one must live as long.
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
			return fmt.Errorf("the server ended: %s", &d.output)
		case <-time.After(5 * time.Millisecond):
		}
		if ready(d) {
			return nil
		}
	}
	d.Kill()
	return errors.New("the server did not get ready")
}

// Kill ends the process, and waits until it has ended. A nil Daemon has.
func (d *Daemon) Kill() {
	if d != nil {
		d.Process.Kill()
		<-d.ended
	}
}

// FreePort returns a port that nobody listened on a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("daemon: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
