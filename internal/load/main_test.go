//go:build unix

package load_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/load"
)

// These environment variables make the test program a load generator or a replica.
const (
	asLoad    = "HEED_LOAD"    // a load.Load in JSON; the program prints the Report
	asReplica = "HEED_REPLICA" // the address to serve, the address of Redis, and a timeout
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asLoad) != "":
		sendLoad(os.Getenv(asLoad))
	case os.Getenv(asReplica) != "":
		serveReplica(os.Getenv(asReplica))
	default:
		os.Exit(m.Run())
	}
}

// commandAs returns a command that runs this program with another role.
func commandAs(what, how string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	// otherwise the race detector waits a second at exit
	cmd.Env = append(os.Environ(), what+"="+how, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// send runs l in another process.
func send(t *testing.T, l load.Load) (r load.Report) {
	t.Helper()
	how, err := json.Marshal(l)
	require.NoError(t, err)
	cmd := commandAs(asLoad, string(how))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.NoError(t, json.Unmarshal(out, &r))
	return r
}

func sendLoad(how string) {
	var l load.Load
	if err := json.Unmarshal([]byte(how), &l); err != nil {
		panic(err)
	}
	if err := allowFiles(l.Connections + 100); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(l.Run()); err != nil {
		panic(err)
	}
}

// allowFiles raises the limit of open files of this process to n.
func allowFiles(n int) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if l.Max < uint64(n) {
		return fmt.Errorf("%d open files are needed, and ulimit -Hn allows %d", n, l.Max)
	}
	l.Cur = max(l.Cur, uint64(n))
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}
