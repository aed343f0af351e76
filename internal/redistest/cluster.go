package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	masters = 3
	slots   = 16384
)

// StartCluster starts a Redis Cluster of three masters.
func StartCluster(t testing.TB) []*Server {
	t.Helper()
	nodes := make([]*Server, masters)
	for i := range nodes {
		nodes[i] = start(t, freePortPair, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		nodes[i].must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		nodes[i].must(append([]string{"CLUSTER", "ADDSLOTS"}, slotsOf(i)...)...)
	}
	for _, node := range nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr)
		nodes[0].must("CLUSTER", "MEET", host, port)
	}
	for _, node := range nodes {
		node.awaitCluster()
	}
	return nodes
}

func slotsOf(master int) (list []string) {
	for slot := master * slots / masters; slot < (master+1)*slots/masters; slot++ {
		list = append(list, strconv.Itoa(slot))
	}
	return list
}

// freePortPair returns a free port below that of its cluster bus, 10,000 higher.
func freePortPair(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if free(port) && free(port+10_000) {
			return port
		}
	}
	t.Fatal("redistest: no free pair of ports")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func (s *Server) must(args ...string) {
	s.t.Helper()
	if _, err := s.Do(args...); err != nil {
		s.t.Fatalf("redistest: %s: %v", strings.Join(args[:2], " "), err)
	}
}

func (s *Server) awaitCluster() {
	s.t.Helper()
	known := fmt.Sprintf("cluster_known_nodes:%d\r\n", masters)
	for deadline := time.Now().Add(3 * startTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		info, err := s.Do("CLUSTER", "INFO")
		if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, known) {
			return
		}
	}
	s.t.Fatalf("redistest: the cluster of %s did not form", s.Addr)
}
