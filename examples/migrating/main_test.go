package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheProgramRunsAsPrinted(t *testing.T) {
	program := filepath.Join(t.TempDir(), "migrating")
	built, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)
	out, err := exec.Command(program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, order := range []string{"order 1: 200 OK", "order 2: 200 OK", "order 3: 200 OK"} {
		assert.Contains(t, string(out), order)
	}
	assert.Equal(t, 2, strings.Count(string(out), "[DEBUG] retrying request:"), "%s", out)
}

func TestTheProgramIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(text), "\n"), 60)
}
