package export_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/export"
	"github.com/heedhttp/heed/internal/testenv"
)

// promtool runs promtool on alerts.yml, with what is exported of rules, and other files.
func promtool(t *testing.T, command, alerts string, files ...string) {
	t.Helper()
	path, dir := testenv.Program(t, "promtool"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), []byte(alerts), 0o644))
	names := []string{"alerts.yml"}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644))
		names = []string{filepath.Base(file)}
	}
	cmd := exec.Command(path, append([]string{command, "rules"}, names...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

func TestPromtoolAcceptsTheOutput(t *testing.T) {
	text, err := os.ReadFile("testdata/all.prometheus.golden")
	require.NoError(t, err)
	promtool(t, "check", string(text))
	out := exported(t, "prometheus", "rules: [{policies: 1/1s}]", export.Options{Window: 7 * time.Second})
	promtool(t, "check", out.Text)
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	out := exported(t, "prometheus", "rules: [{policies: 1/1s}]")
	assert.Empty(t, out.Gaps)
	promtool(t, "test", out.Text, "testdata/alerts_test.yml")
}

func TestAlertDurationsAreInProportion(t *testing.T) {
	text, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	assert.Contains(t, exported(t, "prometheus", "rules: [{policies: 1/1s}]").Text, string(text),
		"at five minutes they are as written")
	out := exported(t, "prometheus", "rules: [{policies: 1/1s}]", export.Options{Window: 2 * time.Second}).Text
	for _, want := range []string{
		"expr: rate(rate_limit_exceeded_total[2s]) > 10", "rate_limit:hit_ratio:rate2s > 0.05\n        for: 4s",
		"p99_24s", "rate2s[24s])", "rate_limit_redis_unavailable > 0\n        for: 400ms",
	} {
		assert.Contains(t, out, want)
	}
	for _, w := range []time.Duration{-time.Second, 1500 * time.Millisecond, 25 * time.Hour} {
		_, err := export.Export("prometheus", listing(t, "rules: [{policies: 1/1s}]"), export.Options{Window: w})
		assert.ErrorContains(t, err, "window is "+w.String())
	}
}
