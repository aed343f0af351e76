package stage

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheTableHasALineForEachPart(t *testing.T) {
	s, out := plain()
	WriteTable(s, fixedResults())
	assert.Equal(t, `
            jobs                  retries        wasted
            done  requests  429s  per job      requests   time
naive      40/50     1,040   990    19.80  1,000 (96 %)  2.0 s
a <b> & c    2/2         5     3     1.50      3 (60 %)  2.5 s
`, out.String())
}

func TestATableHasMoreColumnsIfThereIsMoreToTell(t *testing.T) {
	s, out := plain()
	WriteTable(s, fixedResults(), Column{"a", "letter", func(r Result) string { return r.Name[:1] }})
	assert.Equal(t, `
            jobs                  retries        wasted              a
            done  requests  429s  per job      requests   time  letter
naive      40/50     1,040   990    19.80  1,000 (96 %)  2.0 s       n
a <b> & c    2/2         5     3     1.50      3 (60 %)  2.5 s       a
`, out.String())
}

func TestTheChartShowsTheStormAtOneScale(t *testing.T) {
	s, out := plain()
	WriteCharts(s, fixedResults())
	assert.Equal(t, `
Arrivals in each second: █ admitted, ░ refused; a cell is up to 10 requests.

naive
   0 s    40 +  500  ████`+strings.Repeat("░", 50)+`
   1 s     0 +  500  `+strings.Repeat("░", 50)+`

a <b> & c
   0 s     1 +    3  █░
   1 s     0 +    0  
   2 s     1 +    0  █

`, out.String())
}

func TestNoLineOfTheChartIsWiderThanATerminal(t *testing.T) {
	for _, most := range []int{1, 57, 58, 114, 115, 580, 999, 1000, 123_456} {
		s, out := plain()
		for admitted := range min(most, 60) {
			r := Result{Tally: Tally{Seconds: []Second{{admitted, most - admitted}}}}
			WriteCharts(s, []Result{r})
		}
		for line := range strings.Lines(out.String()) {
			assert.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 80, line)
		}
	}
}

func TestACellStandsForARoundNumber(t *testing.T) {
	for n, want := range map[int]int{0: 1, 1: 2, 2: 5, 4: 5, 5: 10, 9: 10, 10: 20, 49: 50, 50: 100, 999: 1000} {
		assert.Equal(t, want, RoundUp(n), n)
	}
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	const text = "text"
	paint := func(term, noColor string) string {
		t.Setenv("TERM", term)
		t.Setenv("NO_COLOR", noColor)
		device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a device, as terminals are
		require.NoError(t, err)
		defer device.Close()
		return NewScreen(device).paint(red, text)
	}
	assert.Equal(t, "\x1b[31mtext\x1b[0m", paint("xterm", ""))
	assert.Equal(t, text, paint("xterm", "1"))
	assert.Equal(t, text, paint("dumb", ""))
	s, _ := plain()
	assert.Equal(t, text, s.paint(red, text))
}

// shown is what follow writes while a part takes d.
func shown(live bool, d time.Duration) string {
	s, out := plain()
	s.live = live
	stop := s.Follow("heed", 4, func() Tally { return Tally{Done: 2, Requests: 1234, Refused: 1232} })
	time.Sleep(d)
	stop()
	return out.String()
}

func TestProgressIsALineEveryTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const line = "heed                 ▰▰▰▰▰▱▱▱▱▱ 2/4 jobs, 1,234 requests, 1,232 refused\n"
		assert.Equal(t, strings.Repeat(line, 3), shown(false, 4500*time.Millisecond))
	})
}

func TestProgressOnATerminalStaysInItsLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := shown(true, 450*time.Millisecond)
		assert.Equal(t, 5, strings.Count(out, "\r"))
		assert.Equal(t, 1, strings.Count(out, "\n"))
		assert.True(t, strings.HasSuffix(out, "\n"))
	})
}

func TestThousandsAreSetApart(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		assert.Equal(t, want, Grouped(n))
	}
}
