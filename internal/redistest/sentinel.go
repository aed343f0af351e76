package redistest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heedhttp/heed/internal/daemon"
)

const (
	masterName = "heed"
	quorum     = 2
)

// A Sentinel is a master with two replicas, and three Redis Sentinels. After Watch they replace the master
// when it has been gone for half a second, which takes them another one or two seconds.
type Sentinel struct {
	Name      string // of the master
	Master    *Server
	Replicas  []*Server
	Sentinels []*Server
}

// StartSentinel starts a Sentinel. All its servers end with the test.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	all := startAll(t, binary(t), 6, daemon.FreePort, func(all []*Server) {
		master, replicas, sentinels := all[0], all[1:3], all[3:]
		master.flags = []string{"--repl-diskless-sync-delay", "0"}
		for _, replica := range replicas {
			replica.flags = append(master.flags, "--replicaof", "127.0.0.1 "+master.port())
		}
		for i, sentinel := range sentinels {
			sentinel.write("sentinel.conf", sentinelFile(master, replicas, sentinels, i))
			sentinel.flags = []string{filepath.Join(sentinel.dir, "sentinel.conf"), "--sentinel"}
		}
	})
	s := &Sentinel{Name: masterName, Master: all[0], Replicas: all[1:3], Sentinels: all[3:]}
	s.Master.await("connected_slaves:2\r\n", "INFO", "replication")
	for _, replica := range s.Replicas {
		replica.await("master_link_status:up\r\n", "INFO", "replication")
	}
	for _, sentinel := range s.Sentinels {
		sentinel.await("OK", "SENTINEL", "CKQUORUM", masterName)
		// Otherwise a Sentinel that was suspended for two seconds does nothing for half a minute, which
		// Redis calls TILT. Redis 6.2 has no such command, and its error is no reason to fail.
		_, _ = sentinel.Do("SENTINEL", "DEBUG", "tilt-trigger", milliseconds(unwatched))
	}
	return s
}

// Watch makes the Sentinels notice when the master is gone. Before Watch it is not replaced, however slow
// the machine is, so call it after the master was killed or stopped.
func (s *Sentinel) Watch() {
	for _, sentinel := range s.Sentinels {
		sentinel.t.Helper()
		sentinel.set("SENTINEL", "SET", masterName, "down-after-milliseconds", milliseconds(watched))
	}
}

// Addrs returns the addresses of the Sentinels.
func (s *Sentinel) Addrs() (addrs []string) {
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	return addrs
}

// sentinelFile returns the configuration of sentinels[self], which knows all others from the start.
func sentinelFile(master *Server, replicas, sentinels []*Server, self int) string {
	var b strings.Builder
	set := func(format string, args ...any) { fmt.Fprintf(&b, "sentinel "+format+"\n", args...) }
	set("myid %s", nodeID(self))
	set("monitor %s 127.0.0.1 %s %d", masterName, master.port(), quorum)
	set("down-after-milliseconds %s %s", masterName, milliseconds(unwatched))
	set("failover-timeout %s 5000", masterName)
	set("parallel-syncs %s %d", masterName, len(replicas))
	for _, replica := range replicas {
		set("known-replica %s 127.0.0.1 %s", masterName, replica.port())
	}
	for i, sentinel := range sentinels {
		if i != self {
			set("known-sentinel %s 127.0.0.1 %s %s", masterName, sentinel.port(), nodeID(i))
		}
	}
	return b.String()
}
