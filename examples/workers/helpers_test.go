package main

import (
	"bytes"
	"net/http"
	"os"
	"testing"
	"time"
)

// mainEnv makes the test binary the program itself.
const mainEnv = "HEED_EXAMPLES_WORKERS_MAIN"

// TestMain lets the tests start the program, and the program its processes, from
// the test binary.
func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" || os.Getenv(processEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// seen is a request of a fixed log, a millisecond before its answer.
func seen(at time.Duration, job string, status int) arrival {
	return arrival{job, start.Add(at), status, start.Add(at + time.Millisecond)}
}

// fixedLog is two jobs and a second without any: b is refused three times.
func fixedLog() []arrival {
	const ok, refused = http.StatusOK, http.StatusTooManyRequests
	return []arrival{
		seen(0, "a", ok),
		seen(10*time.Millisecond, "b", refused),
		seen(20*time.Millisecond, "b", refused),
		seen(999*time.Millisecond, "b", refused),
		seen(2500*time.Millisecond, "b", ok),
	}
}

// fixedResults are a storm, and the fixed log.
func fixedResults() []result {
	storm := tally{begun: 50, done: 40, requests: 1040, refused: 990, took: 2 * time.Second,
		seconds: []second{{40, 500}, {0, 500}}}
	return []result{
		{part: part{name: "naive"}, tally: storm, jobs: 50},
		{part: part{name: "a <b> & c", heeds: true}, tally: tallyOf(fixedLog()), jobs: 2},
	}
}

// plain is a screen that is no terminal.
func plain() (*screen, *bytes.Buffer) {
	var b bytes.Buffer
	return newScreen(&b), &b
}
