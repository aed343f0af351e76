package redistest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/daemon"
)

// goodbye is how long a shared server waits for a test's clients to leave it. If they
// do not, it is not used again.
const goodbye = time.Second

// shared are the servers that Shared and SharedCluster have started and no test uses now.
var shared struct {
	sync.Mutex
	idle     []*Server
	clusters [][]*Server
}

// Shared is Start, but the redis-server may be one that an earlier test had, which
// spares the time to start it. As long as the test runs it is nobody else's, and it is
// as new: without data, scripts and statistics. Two calls give two servers, so that
// parallel tests may each have their own.
//
// What the test does to it matters to no other: a server that was stopped or killed,
// whose configuration or users are not as they were, or that clients have not left at
// the end of the test, is not used again.
//
// The TestMain of a package that uses it calls EndShared. On Linux the servers end with
// the process in any case.
func Shared(t testing.TB) *Server {
	t.Helper()
	path := binary(t)
	s := take(&shared.idle)
	if s == nil {
		s = launched(t, daemon.FreePort, []*Server{newShared(t, path)}, func([]*Server) {})[0]
		remember(t, s)
	}
	lent := s.lend(t)
	t.Cleanup(func() { giveBack(&shared.idle, lent, lent) })
	return lent
}

// SharedCluster is StartCluster as Shared is Start. It spares more: Redis lets two seconds
// pass before a cluster that was started serves. If one of the servers is not used again,
// none of them is.
func SharedCluster(t testing.TB) []*Server {
	t.Helper()
	path := binary(t)
	nodes := take(&shared.clusters)
	if nodes == nil {
		dir, err := os.MkdirTemp("", "redistest")
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		for i := range masters {
			node := newShared(t, path)
			node.dir = filepath.Join(dir, strconv.Itoa(i))
			if err := os.Mkdir(node.dir, 0o700); err != nil {
				t.Fatalf("redistest: %v", err)
			}
			nodes = append(nodes, node)
		}
		joined(t, launched(t, freePortPair, nodes, prepareCluster(2*time.Second)))
		remember(t, nodes...)
	}
	lent := make([]*Server, len(nodes))
	for i, node := range nodes {
		lent[i] = node.lend(t)
	}
	t.Cleanup(func() { giveBack(&shared.clusters, lent, lent...) })
	return lent
}

// EndShared ends the servers that Shared and SharedCluster have started.
func EndShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, s := range append(slices.Concat(shared.clusters...), shared.idle...) {
		s.discard()
	}
	shared.idle, shared.clusters = nil, nil
}

// take takes one of those that are idle, or a zero value.
func take[T any](idle *[]T) (taken T) {
	shared.Lock()
	defer shared.Unlock()
	if n := len(*idle); n > 0 {
		taken, *idle = (*idle)[n-1], (*idle)[:n-1]
	}
	return taken
}

// giveBack makes whole, which is servers, one of those that are idle if all are as new.
func giveBack[T any](idle *[]T, whole T, servers ...*Server) {
	asNew := true
	for _, s := range servers {
		asNew = asNew && s.renew()
	}
	if !asNew {
		for _, s := range servers {
			s.discard()
		}
		return
	}
	shared.Lock()
	defer shared.Unlock()
	*idle = append(*idle, whole)
}

// newShared is a server that will not end with a test.
func newShared(t testing.TB, path string) *Server {
	return &Server{t: t, path: path, dir: os.TempDir(), spoilt: new(atomic.Bool)}
}

// lend is s for one test.
func (s *Server) lend(t testing.TB) *Server {
	lent := *s
	lent.t, lent.spoilt = t, new(atomic.Bool)
	return &lent
}

// discard ends the server for good.
func (s *Server) discard() {
	s.Kill()
	if s.dir != os.TempDir() {
		os.RemoveAll(filepath.Dir(s.dir))
	}
}

// remember takes note of how servers are that were just started.
func remember(t testing.TB, servers ...*Server) {
	t.Helper()
	for _, s := range servers {
		var err error
		if s.asNew, err = s.settings(); err != nil {
			t.Fatalf("redistest: %v", err)
		}
	}
}

// settings are what a test may have changed and renew does not change back.
func (s *Server) settings() (string, error) {
	config, err := s.Do("CONFIG", "GET", "*")
	if err != nil {
		return "", err
	}
	users, err := s.Do("ACL", "LIST")
	if err != nil || !slices.Contains(s.flags, "--cluster-enabled") {
		return config + "\n" + users, err
	}
	slots, err := s.Do("CLUSTER", "SLOTS")
	return config + "\n" + users + "\n" + slots, err
}

// renew makes the server as new, or reports that it cannot.
func (s *Server) renew() bool {
	if s.spoilt.Load() {
		return false
	}
	for _, command := range [][]string{
		{"CLIENT", "UNPAUSE"}, {"SCRIPT", "FLUSH"}, {"FLUSHALL"}, {"CONFIG", "RESETSTAT"},
	} {
		if !s.left() {
			return false
		}
		if _, err := s.Do(command...); err != nil {
			return false
		}
	}
	settings, err := s.settings()
	return err == nil && settings == s.asNew
}

// left reports whether no connection is left but the one that asks.
func (s *Server) left() bool {
	for deadline := time.Now().Add(goodbye); ; time.Sleep(time.Millisecond) {
		clients, err := s.Do("INFO", "clients")
		switch {
		case err != nil:
			return false
		case strings.Contains(clients, "connected_clients:1\r\n"):
			return true
		case time.Now().After(deadline):
			return false
		}
	}
}
