package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/lab"
)

func TestTheResultsAreWrittenBetweenTheMarkers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "storms.md")
	require.NoError(t, os.WriteFile(name, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600))
	require.NoError(t, writeInto(name, "new\n"))
	require.NoError(t, writeInto(name, "newer\n"))
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "before\n"+begin+"\nnewer\n\n"+end+"after\n", string(text))

	require.NoError(t, os.WriteFile(name, []byte("before\n"+begin), 0o600))
	assert.Error(t, writeInto(name, "new\n"))
}

func TestACellHasTheLoadsOfOneKind(t *testing.T) {
	table := lab.Table{Clients: clients(), Scenario: "^refused 1s", Client: "no retry|go-retryablehttp|failsafe-go", Seeds: 1}
	var all []measured
	require.NoError(t, table.Run(t, func(s lab.Scenario, rows []lab.Row) { all = append(all, measured{s, rows}) }))
	text := markdown(all, 1)
	for _, line := range []string{
		"| trouble | load | no retry | go-retryablehttp | failsafe-go |\n|---|---|---|---|---|\n",
		"| refused 1s | S / M / L | 100 / 100 / 100 % | 0 / 0 / 0 % | 0 / 0 / 0 % |\n",
		"| refused 1s | cron | 100 % | 0 % | 0 % |\n",
		"| refused 1s | S 2s / M 2s |",
		"| refused 1s | S / M / L | 1.00 / 1.00 / 1.00 |",
	} {
		assert.Contains(t, text, line)
	}
	assert.NotContains(t, text, lab.Requests.String(), "all dials fail")
	assert.NotContains(t, text, "stay down")
}

func TestAUnitIsWrittenOnce(t *testing.T) {
	assert.Equal(t, "100 / 5.1 %", joined([]string{"100.0 %", "5.1 %"}))
	assert.Equal(t, "1.2 / 3.0x", joined([]string{"1.2x", "3.0x"}))
	assert.Equal(t, "12 ms / 1.0 s", joined([]string{"12 ms", "1.0 s"}))
	assert.Equal(t, "1.00 / –", joined([]string{"1.00", "–"}))
	assert.Equal(t, "– / 1.2x", joined([]string{"–", "1.2x"}))
}
