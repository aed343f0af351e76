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

func TestTheServerReadsAChangedFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("rules/rules.yaml")
	require.NoError(t, err)
	require.Contains(t, string(text), "30/1m burst 5")
	rules := strings.Replace(string(text), "30/1m burst 5", "30/24h burst 5", 1) // no refill during the test
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o644))
	server := exec.Command(built(t, "rules"), file, "localhost:0")
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	stderr, err := server.StderrPipe()
	require.NoError(t, err)
	start(t, server)
	log, url := bufio.NewScanner(stderr), announced(t, bufio.NewReader(stdout))
	logs(t, log, "rate_limit.configured")
	for range 5 {
		assert.Equal(t, http.StatusOK, status(t, url))
	}
	assert.Equal(t, http.StatusTooManyRequests, status(t, url))

	require.NoError(t, os.WriteFile(file, []byte("rules: 5"), 0o644))
	logs(t, log, "rate_limit.config_rejected")
	changed := strings.Replace(rules, "30/24h burst 5", "30/24h burst 9", 1)
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o644))
	logs(t, log, "rate_limit.configured")
	admitted := 0
	for status(t, url) == http.StatusOK {
		admitted++
	}
	assert.Equal(t, 4, admitted, "5 of 9 are spent")
}

// logs waits until the log has a message.
func logs(t *testing.T, log *bufio.Scanner, message string) {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { panic("missing in the log: " + message) })
	defer timer.Stop()
	for log.Scan() {
		if strings.Contains(log.Text(), message) {
			return
		}
	}
	require.Fail(t, "the server ended", log.Err())
}
