package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Outside of tests the program enters bubbles by itself, and must end as programs do.
func TestTheProgramShowsBothExperimentsDrawsThemAndMeasuresAChoice(t *testing.T) {
	program := filepath.Join(t.TempDir(), "storm.exe")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	dir := t.TempDir()
	out, err = exec.Command(program, "-runs", "2", "-svg", dir, "-run", "refused 300").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, text := range []string{"WHAT RETRIES ADD", "WHO KEEPS", "naive retry loop    │", "three retries  │",
		"refused 300ms", "M     no retry       100.0 %"} {
		assert.Contains(t, string(out), text)
	}
	assert.NotContains(t, string(out), "PASS", "of the testing package")

	again := collapse(t, 2).picture.SVG()
	svg, err := os.ReadFile(filepath.Join(dir, "storm-collapse.svg"))
	require.NoError(t, err)
	assert.Equal(t, string(again), string(svg), "another process draws the same")

	out, err = exec.Command(program, "-table", "-goals", "-run", "spike of 2 times").CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "ok      1 client     stay down    0.0 %    at most 0.0 %")

	err = exec.Command(program, "-table", "-run", "(").Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 2, exit.ExitCode())

	err = exec.Command(program, "-runs", "1", "-svg", filepath.Join(dir, "missing")).Run()
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
}
