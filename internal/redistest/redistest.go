// Package redistest runs a real Redis for tests, and fakes that misbehave.
//
// It speaks the protocol itself, so that a test chooses its own client.
package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const startTimeout = 10 * time.Second

// A Server is a redis-server on a loopback port, without persistence. It ends
// with its test.
type Server struct {
	Addr string // host:port

	t      testing.TB
	flags  []string
	proc   *os.Process
	ended  chan struct{} // closed when proc has ended
	output *bytes.Buffer // what proc printed; to be read once it has ended
}

// Start starts a redis-server, or a valkey-server where there is no other. If
// there is neither, the test is skipped, or fails if CI is "true".
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, freePort)
}

func start(t testing.TB, port func(testing.TB) int, flags ...string) *Server {
	t.Helper()
	s := &Server{t: t, flags: append(flags, "--dir", t.TempDir())}
	t.Cleanup(s.Kill)
	var err error
	for range 5 { // another process may be quicker to take the port
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port(t)))
		if err = s.launch(binary(t)); err == nil {
			return s
		}
	}
	t.Fatalf("redistest: %v", err)
	return nil
}

func binary(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "redistest: NOT TESTED: neither redis-server nor valkey-server is in PATH"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// freePort returns a port that nobody listened on a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *Server) launch(path string) error {
	_, port, _ := net.SplitHostPort(s.Addr)
	cmd := exec.Command(path, append([]string{"--port", port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--loglevel", "warning"}, s.flags...)...)
	s.output, s.ended = new(bytes.Buffer), make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = s.output, s.output, dieWithParent()
	started := make(chan error)
	go func() {
		// On Linux a child's parent is the thread, and this one must live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.proc = cmd.Process
	return s.awaitReady()
}

func (s *Server) awaitReady() error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		select {
		case <-s.ended:
			return fmt.Errorf("the server ended: %s", s.output)
		case <-time.After(5 * time.Millisecond):
		}
		if s.ready() {
			return nil
		}
	}
	s.Kill()
	return errors.New("the server did not get ready")
}

// ready reports whether it is this very process that answers.
func (s *Server) ready() bool {
	info, err := s.Do("INFO", "server")
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", s.proc.Pid))
}

// Stop suspends the process: connections stay open and nothing answers.
func (s *Server) Stop() { s.t.Helper(); s.signal("STOP") }

// Cont lets a suspended process go on.
func (s *Server) Cont() { s.t.Helper(); s.signal("CONT") }

func (s *Server) signal(name string) {
	s.t.Helper()
	if err := exec.Command("kill", "-"+name, strconv.Itoa(s.proc.Pid)).Run(); err != nil {
		s.t.Fatalf("redistest: kill -%s: %v", name, err)
	}
}

// Kill ends the process, and with it everything that was stored.
func (s *Server) Kill() {
	if s.proc == nil {
		return
	}
	s.proc.Kill()
	<-s.ended
}

// Restart kills the server and starts an empty one at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.launch(binary(s.t)); err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
}
