package redistest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	masters   = 3
	slots     = 16384
	busOffset = 10_000 // from a node's port to that of its cluster bus

	// unwatched is how long a node or master may be suspended, as on a busy machine, before others
	// replace it, or stop serving because most nodes seem to be gone.
	unwatched = 10 * time.Minute
	// watched is the same after Watch.
	watched = 500 * time.Millisecond
)

// StartCluster starts a Redis Cluster of three masters.
func StartCluster(t testing.TB) []*Server {
	t.Helper()
	return startCluster(t, masters)
}

// StartReplicatedCluster starts a Redis Cluster of three masters, each with a replica. After Watch,
// replicas[i] takes over when masters[i] has been gone for about a second.
func StartReplicatedCluster(t testing.TB) (masters, replicas []*Server) {
	t.Helper()
	nodes := startCluster(t, 6)
	for _, replica := range nodes[3:] {
		replica.await("master_link_status:up\r\n", "INFO", "replication")
	}
	return nodes[:3], nodes[3:]
}

// Watch makes nodes of a cluster notice when others are gone. The nodes given must be running. Before Watch
// no master is replaced, however slow the machine is, so call it after a master was killed or stopped.
func Watch(nodes ...*Server) {
	for _, node := range nodes {
		node.t.Helper()
		node.set("CONFIG", "SET", "cluster-node-timeout", milliseconds(watched))
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// startCluster starts n nodes: first the masters, then their replicas.
//
// The nodes know each other from the start, from a file in their directories, and need not meet first.
func startCluster(t testing.TB, n int) []*Server {
	t.Helper()
	return awaitCluster(t, startAll(t, binary(t), n, freePortPair, prepareCluster))
}

// prepareCluster writes that file, and sets the flags of the nodes.
func prepareCluster(nodes []*Server) {
	for i, node := range nodes {
		node.write("nodes.conf", nodesFile(nodes, i))
		node.flags = []string{"--cluster-enabled", "yes", "--cluster-node-timeout", milliseconds(unwatched),
			"--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
			"--repl-diskless-sync-delay", "0"}
	}
}

// awaitCluster waits until all nodes serve.
func awaitCluster(t testing.TB, nodes []*Server) []*Server {
	t.Helper()
	for _, node := range nodes {
		node.await("cluster_state:ok\r\n", "CLUSTER", "INFO")
		node.await("cluster_slots_ok:"+strconv.Itoa(slots)+"\r\n", "CLUSTER", "INFO")
	}
	return nodes
}

// nodesFile returns the file in which nodes[self] would have saved what it knows of the others.
func nodesFile(nodes []*Server, self int) string {
	var b strings.Builder
	for i, node := range nodes {
		port, _ := strconv.Atoi(node.port())
		role, master, owned := "master", "-", slotsOf(i)
		if i >= masters {
			role, master, owned = "slave", nodeID(i-masters), ""
		}
		if i == self {
			role = "myself," + role
		}
		fmt.Fprintf(&b, "%s %s@%d %s %s 0 0 %d connected %s\n",
			nodeID(i), node.Addr, port+busOffset, role, master, i%masters+1, owned)
	}
	fmt.Fprintf(&b, "vars currentEpoch %d lastVoteEpoch 0\n", masters)
	return b.String()
}

func nodeID(i int) string { return fmt.Sprintf("%040x", i+1) }

func slotsOf(master int) string {
	return fmt.Sprintf("%d-%d", master*slots/masters, (master+1)*slots/masters-1)
}

// freePortPair returns a free port whose cluster bus port is free too.
func freePortPair(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if free(port) && free(port+busOffset) {
			return port
		}
	}
	t.Fatal("redistest: no free port pair")
	return 0
}
