package export_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/gatewaytest"
)

func TestHAProxyTakesWhatIsMadeForIt(t *testing.T) {
	files, err := filepath.Glob("testdata/*.haproxy.golden")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		gatewaytest.CheckHAProxy(t, string(text))
	}
}

// F014: a flood gets the quota of each window, and of the first one whole. HAProxy
// rounds what is left of a window down, so it admits one more.
func TestHAProxyAdmitsWhatTheRuleDoes(t *testing.T) {
	t.Parallel()
	out := exported(t, "haproxy", "rules: [{name: api, pattern: /v1/, policies: 20/1s burst 8}]")
	assert.Empty(t, out.Gaps)
	url := gatewaytest.HAProxyWith(t, service(t), out.Text)
	f := drive(t, url+"/v1/users", 1800*time.Millisecond)
	t.Logf("%d admitted in %v to %v", f.admitted, f.least, f.most)
	const window = 400 * time.Millisecond // in which 8 of 20 in 1s come back
	assert.LessOrEqual(t, f.admitted, int(f.most/window+1)*9)
	assert.GreaterOrEqual(t, f.admitted, int(f.least/window)*8)
	assert.Equal(t, http.StatusOK, get(t, url+"/v2").StatusCode, "another path")
}

func TestHAProxyAppliesAllRulesThatMatch(t *testing.T) {
	t.Parallel()
	out := exported(t, "haproxy", several)
	applyAll(t, gatewaytest.HAProxyWith(t, service(t), out.Text))
}

// Who obeys Retry-After is admitted.
func TestWhoComesWhenHAProxySaysIsAdmitted(t *testing.T) {
	t.Parallel()
	out := exported(t, "haproxy", "rules: [{name: api, policies: 2/1s}]")
	url := gatewaytest.HAProxyWith(t, service(t), out.Text)
	drive(t, url, 0)
	resp := get(t, url)
	assert.Equal(t, "2", resp.Header.Get("Retry-After"))
	assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	time.Sleep(2 * time.Second) // HAProxy has its own clock
	assert.Equal(t, http.StatusOK, get(t, url).StatusCode)
}

func TestHAProxyHasThreeTrackers(t *testing.T) {
	out := exported(t, "haproxy", `
rules:
- {name: a, policies: [1/1s sliding, 1/2s sliding, 1/3s sliding, 1/4s sliding]}
- {name: b, policies: 7/2s sliding}`)
	assert.Equal(t, []string{`rule "a": 1 in 4s is left to the application: HAProxy counts in 3 windows at most, of 100 counters each`}, gaps(out))
	assert.Contains(t, out.Text, "gpc_rate(2,2000ms)")
	gatewaytest.CheckHAProxy(t, out.Text)
}
