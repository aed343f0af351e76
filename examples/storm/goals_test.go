package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/lab"
	"github.com/heedhttp/heed/internal/testenv"
)

// By default a few quick scenarios are run, with some slack.
func TestHeedMeetsItsGoals(t *testing.T) {
	meets(t, "^(refused 1s|503 1s|one of three refuses|random 503s 10%|beside .*|spike .*|one 429 .* 10s|end .*)$", "[^L].*", 3, 1.5)
}

// Runs of a spike differ much, and take little time.
func TestHeedMeetsAllItsGoals(t *testing.T) {
	testenv.NeedLong(t)
	meets(t, "^spike", "", 20, 1)
	meets(t, "^([^s]|st)", "", 3, 1)
}

func meets(t *testing.T, scenarios, loads string, seeds int, slack float64) {
	table := lab.Table{Clients: lab.Clients(), Client: "heed|four attempts", Seeds: seeds, Scenario: scenarios, Load: loads}
	require.NoError(t, table.Run(t, func(s lab.Scenario, rows []lab.Row) {
		for _, f := range compare(s, rows, slack) {
			switch {
			case !f.unmet:
				assert.True(t, f.met, "%s: %s", s.Name, f)
			case f.met:
				t.Logf("%s: %s, is met now", s.Name, f)
			}
		}
	}))
}

func TestEachGoalIsOfARowOfTheTable(t *testing.T) {
	loads := map[string][]string{}
	for _, s := range lab.Scenarios() {
		for _, l := range s.Loads {
			loads[s.Name] = append(loads[s.Name], l.Name)
		}
	}
	for _, g := range goals {
		for _, s := range g.scenarios {
			for _, l := range g.loads {
				assert.True(t, slices.Contains(loads[s], l), "%s, %s", s, l)
			}
		}
	}
}
