package stage

import (
	"bytes"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestMain lets the tests start processes from the test binary.
func TestMain(m *testing.M) {
	Obey[testOrder]()
	os.Exit(m.Run())
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// seen is a request of a fixed log, a millisecond before its answer.
func seen(at time.Duration, job string, status int) Arrival {
	return Arrival{job, noon.Add(at), status, noon.Add(at + time.Millisecond)}
}

// fixedLog is two jobs and a second without any: b is refused three times.
func fixedLog() []Arrival {
	const ok, refused = http.StatusOK, http.StatusTooManyRequests
	return []Arrival{
		seen(0, "a", ok),
		seen(10*time.Millisecond, "b", refused),
		seen(20*time.Millisecond, "b", refused),
		seen(999*time.Millisecond, "b", refused),
		seen(2500*time.Millisecond, "b", ok),
	}
}

// fixedResults are a storm, and the fixed log.
func fixedResults() []Result {
	storm := Tally{Begun: 50, Done: 40, Requests: 1040, Refused: 990, Took: 2 * time.Second,
		Seconds: []Second{{40, 500}, {0, 500}}}
	return []Result{
		{Part: Part{Name: "naive"}, Tally: storm, Jobs: 50},
		{Part: Part{Name: "a <b> & c", Heeds: true}, Tally: TallyOf(fixedLog()), Jobs: 2},
	}
}

// plain is a screen that is no terminal.
func plain() (*Screen, *bytes.Buffer) {
	var b bytes.Buffer
	return NewScreen(&b), &b
}
