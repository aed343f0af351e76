package examples_test

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheServerFollowsItsFile(t *testing.T) {
	rules, err := os.ReadFile("rules/rules.yaml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, rules, 0o644))
	server := exec.Command(built(t, "rules"), file, "localhost:0")
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	stderr, err := server.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	defer server.Process.Kill()
	log, url := bufio.NewScanner(stderr), announced(t, bufio.NewReader(stdout))
	logs(t, log, "rate_limit.configured")
	for range 5 {
		assert.Equal(t, http.StatusOK, status(t, url))
	}
	assert.Equal(t, http.StatusTooManyRequests, status(t, url))

	require.NoError(t, os.WriteFile(file, []byte("rules: 5"), 0o644))
	logs(t, log, "rate_limit.config_rejected")
	changed := strings.Replace(string(rules), "30/1m burst 5", "30/1m burst 9", 1)
	require.NotEqual(t, string(rules), changed)
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o644))
	logs(t, log, "rate_limit.configured")
	admitted := 0
	for status(t, url) == http.StatusOK {
		admitted++
	}
	assert.True(t, 4 <= admitted && admitted < 9, "of 9 at once 5 are spent, and some may be back: %d", admitted)
}

// logs waits for a record of a message.
func logs(t *testing.T, log *bufio.Scanner, message string) {
	t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { panic("there is no " + message + " in the log") })
	defer timer.Stop()
	for log.Scan() {
		if strings.Contains(log.Text(), message) {
			return
		}
	}
	require.Fail(t, "the server has ended", log.Err())
}
