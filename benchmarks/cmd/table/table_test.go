package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const printed = `
goos: linux
BenchmarkMemoryOneSerial/heed-2         	 1000	        40.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkMemoryOneSerial/heed-2         	 1000	        30.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkMemoryOneSerial/heed-2         	 1000	        90.0 ns/op	       0 B/op	       1 allocs/op
BenchmarkMemoryOneSerial/x/time/rate-2  	 1000	        81.0 ns/op	       0 B/op	       0 allocs/op
BenchmarkMemoryMillion/heed-2           	 1000	       130 ns/op	        40.0 B/key	   5100000 gc-ns
BenchmarkMemoryMillion/simple-2       	 1000	        80 ns/op	        50.0 B/key	         0 gc-ns
BenchmarkMemoryMillion/go-limiter-2     	 1000	       300 ns/op	       136 B/key	  52000000 gc-ns
BenchmarkMemoryMillion/throttled-map-2  	 1000	       200 ns/op	        80 B/key	  53000000 gc-ns
BenchmarkMemoryContention/heed          	   10	         0.5 wrong-%
PASS
`

func measured() samples {
	all := make(samples)
	all.parse(printed)
	return all
}

func verdicts(f figure, all samples) (met []bool) {
	for _, t := range f.targets {
		met = append(met, t.met(f.rows(all)))
	}
	return met
}

func TestMediansAreOfAllRounds(t *testing.T) {
	want := map[string]float64{"ns/op": 40, "B/op": 0, "allocs/op": 0}
	assert.Equal(t, want, measured().medians("MemoryOneSerial", "heed"))
	assert.Equal(t, []string{"heed", "simple", "go-limiter", "throttled-map"}, measured().libraries("MemoryMillion"))
	assert.Equal(t, []string{"heed", "x/time/rate"}, measured().libraries("MemoryOneSerial"))
}

func TestATargetIsMetOrMissedOrNotMeasured(t *testing.T) {
	all := measured()
	of := func(benchmark string) []bool {
		for _, f := range memory.figures {
			if f.benchmark == benchmark {
				return verdicts(f, all)
			}
		}
		return nil
	}
	assert.Equal(t, []bool{true, true}, of("MemoryOneSerial"), "40 of 60.75")
	assert.Equal(t, []bool{false}, of("MemoryOneParallel"), "not measured")
	const reasons = "130 of 120, because simple is not a rival; 40 of 40; 5.1 of 5 ms"
	assert.Equal(t, []bool{false, true, false}, of("MemoryMillion"), reasons)
	assert.Equal(t, []bool{false}, of("MemoryContention"))
}

func TestOfARateMoreIsBetter(t *testing.T) {
	for heedNs, want := range map[float64]bool{33: true, 34: false} {
		rs := rows{{heed, map[string]float64{"ns/op": heedNs}}, {redisRate, map[string]float64{"ns/op": 100}}}
		assert.Equal(t, want, times(perSecond, 3, redisRate).met(rs), "%v ns", heedNs)
		assert.InDelta(t, 1e7, rs.best(perSecond), 1)
	}
}

func TestWhatARetryCostsIsTakenFromWhatThreeDo(t *testing.T) {
	all := make(samples)
	all.parse("BenchmarkRetryNoBody/heed-2 10 700 ns/op 9 B/op 6 allocs/op\n" +
		"BenchmarkRetryNone/heed-2 10 100 ns/op 0 B/op 3 allocs/op\n")
	f := client.figures[4]
	require.Equal(t, "RetryNoBody", f.benchmark)
	assert.Equal(t, map[string]float64{"ns/op": 200, "B/op": 3, "allocs/op": 1}, f.rows(all).of(heed).values)
}

func TestTheTableShowsAllThatWasMeasured(t *testing.T) {
	var out strings.Builder
	missed := memory.print(&out, measured())
	targets := 0
	for _, f := range memory.figures {
		targets += len(f.targets)
	}
	assert.Equal(t, targets-3, missed)
	for _, text := range []string{"x/time/rate", "2.02×", "wrong: none", "53ms", "0.5 %", "40 of 61", "not measured"} {
		assert.Contains(t, out.String(), text)
	}
	assert.NotContains(t, out.String(), "of bare")
}

func TestAPictureHasABarForEachValue(t *testing.T) {
	picture := string(memory.picture(measured()))
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	bars := strings.Count(picture, `<rect class="heed"`) + strings.Count(picture, `<rect class="rival"`)
	assert.Equal(t, 2+3*4+1, bars)
	assert.Equal(t, 1+3+1, strings.Count(picture, "class=\"target\""))
	assert.Equal(t, 2, strings.Count(picture, "class=\"cut\""), "of the collections of the garbage")
}

func TestOnlyKnownGroupsAreChosen(t *testing.T) {
	chosen, err := choose("redis,memory")
	require.NoError(t, err)
	assert.Equal(t, []string{"redis", "memory"}, []string{chosen[0].name, chosen[1].name})
	_, err = choose("memory,disk")
	assert.EqualError(t, err, `there is no group "disk"`)
}
