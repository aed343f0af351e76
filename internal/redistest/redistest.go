// Package redistest starts real Redis servers for tests, and fakes that misbehave. It implements the
// protocol itself, so that a test may use any client.
package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/daemon"
	"github.com/heedhttp/heed/internal/testenv"
)

// startTimeout is how long await waits for a server.
const startTimeout = time.Minute

// A Server is a redis-server on a loopback port, without persistence. It ends with its test.
type Server struct {
	Addr string // host:port

	t      testing.TB
	path   string   // of the binary
	dir    string   // its working directory
	flags  []string // in addition to those of every Server; a configuration file comes first
	daemon *daemon.Daemon

	reserved io.Closer // keeps its port, also while the server is killed

	initial string       // settings of a shared server when it was started
	spoilt  *atomic.Bool // it was stopped or killed
}

// Start starts a redis-server, or a valkey-server if there is no redis-server. If there is neither, the
// test is skipped, or fails if the environment variable CI is "true".
func Start(t testing.TB) *Server {
	t.Helper()
	return startAll(t, binary(t), 1, daemon.FreePort, func([]*Server) {})[0]
}

// StartValkey starts a valkey-server. If there is none, the test is skipped.
func StartValkey(t testing.TB) *Server {
	t.Helper()
	path, err := exec.LookPath("valkey-server")
	if err != nil {
		t.Skip("redistest: NOT TESTED: valkey-server is not in PATH")
	}
	return startAll(t, path, 1, daemon.FreePort, func([]*Server) {})[0]
}

// startAll starts n servers, each with its own directory and port. It calls prepare with them before
// it starts any.
func startAll(t testing.TB, path string, n int, port func(testing.TB) int, prepare func([]*Server)) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = &Server{t: t, path: path, dir: t.TempDir(), spoilt: new(atomic.Bool)}
		t.Cleanup(servers[i].end)
	}
	return launch(t, port, servers, prepare)
}

// launch starts servers, each with its own port. It calls prepare with them before it starts any.
func launch(t testing.TB, port func(testing.TB) int, servers []*Server, prepare func([]*Server)) []*Server {
	t.Helper()
	var err error
	for range 5 { // another process may take a port first
		for _, s := range servers {
			if err = s.setPort(port(t)); err != nil {
				break
			}
		}
		if err != nil {
			continue
		}
		prepare(servers)
		if err = launchAll(servers); err == nil {
			return servers
		}
	}
	t.Fatalf("redistest: %v", err)
	return nil
}

// setPort gives s a port, and returns an error if another process uses it.
func (s *Server) setPort(port int) (err error) {
	s.release()
	s.Addr, s.flags = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
	s.reserved, err = reserve(port)
	return err
}

// release gives up the port.
func (s *Server) release() {
	if s.reserved != nil {
		s.reserved.Close()
	}
	s.reserved = nil
}

// end ends the process for good.
func (s *Server) end() {
	s.Kill()
	s.release()
}

// Nowhere returns an address that refuses connections until the test ends.
func Nowhere(t testing.TB) (addr string) {
	t.Helper()
	s := &Server{t: t}
	t.Cleanup(s.release)
	for range 5 { // another process may take a port first
		if s.setPort(daemon.FreePort(t)) == nil {
			return s.Addr
		}
	}
	t.Fatal("redistest: no free port")
	return ""
}

// launchAll starts all servers, or none.
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
	return testenv.Redis(t)
}

func (s *Server) launch() error {
	cmd := exec.Command(s.path, append(slices.Clone(s.flags), "--port", s.port(), "--bind", "127.0.0.1",
		"--dir", s.dir, "--save", "", "--appendonly", "no", "--loglevel", "warning")...)
	var err error
	s.daemon, err = daemon.Start(cmd, s.ready)
	return err
}

func (s *Server) port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

// ready reports whether the process of d answers, and not another one at the same port.
func (s *Server) ready(d *daemon.Daemon) bool {
	info, err := s.Do("INFO", "server")
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", d.Process.Pid))
}

// await waits until the reply to a command contains text.
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

// set sends a command that must succeed.
func (s *Server) set(command ...string) {
	s.t.Helper()
	if _, err := s.Do(command...); err != nil {
		s.t.Fatalf("redistest: %q: %v", command, err)
	}
}

// write writes a file to the server's directory.
func (s *Server) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
}

// Stop suspends the process: connections stay open, but nothing answers.
func (s *Server) Stop() { s.t.Helper(); s.must("stop", s.daemon.Stop()) }

// Cont continues a suspended process.
func (s *Server) Cont() { s.t.Helper(); s.must("continue", s.daemon.Cont()) }

func (s *Server) must(what string, err error) {
	s.t.Helper()
	s.spoilt.Store(true)
	if err != nil {
		s.t.Fatalf("redistest: %s: %v", what, err)
	}
}

// Kill ends the process, and loses its data.
func (s *Server) Kill() { s.spoilt.Store(true); s.daemon.Kill() }

// Restart kills the server and starts an empty one at the same address.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
}
