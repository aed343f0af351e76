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

// disconnectAsks is how many times a shared server is asked, about once a millisecond, whether a test's
// clients have disconnected. If they have not, it is not used again. A time limit could end after a single
// answer, if the server was suspended.
const disconnectAsks = 500

// shared holds the servers of Shared and SharedCluster that no test uses now.
var shared struct {
	sync.Mutex
	idle     []*Server
	clusters [][]*Server
}

// Shared is Start, but it may return a redis-server that an earlier test has used, which saves the time
// to start one. While the test runs, no other test uses the server. It has no data, scripts or
// statistics of earlier tests. Each call returns another server, so parallel tests do not share one.
//
// A test may do anything to its server: one that was stopped or killed, has changed settings or users,
// or still has clients at the end of the test, is not used again.
//
// The TestMain of a package that calls Shared must call EndShared. On Linux the servers end with the
// process in any case.
func Shared(t testing.TB) *Server {
	t.Helper()
	path := binary(t)
	s := take(&shared.idle)
	if s == nil {
		s = launch(t, daemon.FreePort, []*Server{newShared(t, path)}, func([]*Server) {})[0]
		recordSettings(t, s)
	}
	used := s.forTest(t)
	t.Cleanup(func() { giveBack(&shared.idle, used, used) })
	return used
}

// SharedCluster is StartCluster with servers of earlier tests, like Shared. It saves more time: a new
// cluster takes two seconds to serve. If one of its servers cannot be used again, the whole cluster is
// not.
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
		awaitCluster(t, launch(t, freePortPair, nodes, prepareCluster))
		recordSettings(t, nodes...)
	}
	used := make([]*Server, len(nodes))
	for i, node := range nodes {
		used[i] = node.forTest(t)
	}
	t.Cleanup(func() { giveBack(&shared.clusters, used, used...) })
	return used
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

// take takes an idle server or cluster, or returns a zero value.
func take[T any](idle *[]T) (taken T) {
	shared.Lock()
	defer shared.Unlock()
	if n := len(*idle); n > 0 {
		taken, *idle = (*idle)[n-1], (*idle)[:n-1]
	}
	return taken
}

// giveBack makes item, which consists of servers, idle again if all of them can be reset.
func giveBack[T any](idle *[]T, item T, servers ...*Server) {
	clean := true
	for _, s := range servers {
		clean = clean && s.reset()
	}
	if !clean {
		for _, s := range servers {
			s.discard()
		}
		return
	}
	shared.Lock()
	defer shared.Unlock()
	*idle = append(*idle, item)
}

// newShared returns a server that does not end with the test.
func newShared(t testing.TB, path string) *Server {
	return &Server{t: t, path: path, dir: os.TempDir(), spoilt: new(atomic.Bool)}
}

// forTest returns s for the use of one test.
func (s *Server) forTest(t testing.TB) *Server {
	copied := *s
	copied.t, copied.spoilt = t, new(atomic.Bool)
	return &copied
}

// discard ends the server.
func (s *Server) discard() {
	s.end()
	if s.dir != os.TempDir() {
		os.RemoveAll(filepath.Dir(s.dir))
	}
}

// recordSettings stores the settings of new servers.
func recordSettings(t testing.TB, servers ...*Server) {
	t.Helper()
	for _, s := range servers {
		var err error
		if s.initial, err = s.settings(); err != nil {
			t.Fatalf("redistest: %v", err)
		}
	}
}

// settings returns what a test may have changed and reset does not change back.
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

// reset removes the traces of a test. It returns false if that is impossible.
func (s *Server) reset() bool {
	if s.spoilt.Load() {
		return false
	}
	for _, command := range [][]string{
		{"CLIENT", "UNPAUSE"}, {"SCRIPT", "FLUSH"}, {"FLUSHALL"}, {"CONFIG", "RESETSTAT"},
	} {
		if !s.isUnused() {
			return false
		}
		if _, err := s.Do(command...); err != nil {
			return false
		}
	}
	settings, err := s.settings()
	return err == nil && settings == s.initial
}

// isUnused waits until the only connection is the one that asks, and returns false if others stay.
func (s *Server) isUnused() bool {
	for range disconnectAsks {
		clients, err := s.Do("INFO", "clients")
		if err != nil {
			return false
		}
		if strings.Contains(clients, "connected_clients:1\r\n") {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}
