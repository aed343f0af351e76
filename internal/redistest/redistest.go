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
	"path/filepath"
	"runtime"
	"slices"
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
	path   string   // of the binary
	dir    string   // its working directory
	flags  []string // beside those of every Server; a configuration file comes first
	proc   *os.Process
	ended  chan struct{} // closed when proc has ended
	output *bytes.Buffer // what proc printed; to be read once it has ended
}

// Start starts a redis-server, or a valkey-server where there is no other. If
// there is neither, the test is skipped, or fails if CI is "true".
func Start(t testing.TB) *Server {
	t.Helper()
	return startAll(t, binary(t), 1, freePort, func([]*Server) {})[0]
}

// StartValkey starts a valkey-server. If there is none, the test is skipped.
func StartValkey(t testing.TB) *Server {
	t.Helper()
	path, err := exec.LookPath("valkey-server")
	if err != nil {
		t.Skip("redistest: NOT TESTED: valkey-server is not in PATH")
	}
	return startAll(t, path, 1, freePort, func([]*Server) {})[0]
}

// startAll starts n servers, each with a directory and a port of its own, which
// prepare is told before any is started.
func startAll(t testing.TB, path string, n int, port func(testing.TB) int, prepare func([]*Server)) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = &Server{t: t, path: path, dir: t.TempDir()}
		t.Cleanup(servers[i].Kill)
	}
	var err error
	for range 5 { // another process may be quicker to take a port
		for _, s := range servers {
			s.Addr, s.flags = net.JoinHostPort("127.0.0.1", strconv.Itoa(port(t))), nil
		}
		prepare(servers)
		if err = launchAll(servers); err == nil {
			return servers
		}
	}
	t.Fatalf("redistest: %v", err)
	return nil
}

// launchAll starts all of servers, or leaves none running.
func launchAll(servers []*Server) error {
	for i, s := range servers {
		if err := s.launch(); err != nil {
			for _, s := range servers[:i] {
				s.Kill()
			}
			return err
		}
	}
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

func (s *Server) launch() error {
	cmd := exec.Command(s.path, append(slices.Clone(s.flags), "--port", s.port(), "--bind", "127.0.0.1",
		"--dir", s.dir, "--save", "", "--appendonly", "no", "--loglevel", "warning")...)
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

func (s *Server) port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
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

// await waits until the reply to a command has text in it.
func (s *Server) await(text string, command ...string) {
	s.t.Helper()
	var reply string
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if reply, err = s.Do(command...); err == nil && strings.Contains(reply, text) {
			return
		}
	}
	s.t.Fatalf("redistest: %s does not answer %q to %q: %q, %v", s.Addr, text, command, reply, err)
}

// write puts a file where the server finds it.
func (s *Server) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
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
	if err := s.launch(); err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
}
