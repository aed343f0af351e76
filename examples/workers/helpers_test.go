package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/heedhttp/heed/examples/internal/stage"
)

// mainEnv makes the test binary the program itself.
const mainEnv = "HEED_EXAMPLES_WORKERS_MAIN"

// TestMain lets the tests start the program, and the program its processes, from
// the test binary.
func TestMain(m *testing.M) {
	stage.Obey[order]()
	if os.Getenv(mainEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// fixedResults are a storm, and what came of it through heed.
func fixedResults() []stage.Result {
	storm := stage.Tally{Begun: 50, Done: 40, Requests: 1040, Refused: 990, Took: 2 * time.Second,
		Seconds: []stage.Second{{Admitted: 40, Refused: 500}, {Refused: 500}}}
	calm := stage.Tally{Begun: 2, Done: 2, Requests: 5, Refused: 3, Took: 2501 * time.Millisecond,
		Seconds: []stage.Second{{Admitted: 1, Refused: 3}, {}, {Admitted: 1}}}
	return []stage.Result{
		{Part: stage.Part{Name: "naive"}, Tally: storm, Jobs: 50},
		{Part: stage.Part{Name: "a <b> & c", Heeds: true}, Tally: calm, Jobs: 2},
	}
}

// plain is a screen that is no terminal.
func plain() (*stage.Screen, *bytes.Buffer) {
	var b bytes.Buffer
	return stage.NewScreen(&b), &b
}
