package lab

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noRetry = Client{"no retry", func(base http.RoundTripper) http.RoundTripper { return base }}

func scenario(t *testing.T, name string) Scenario {
	all := Scenarios()
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// A client without retries loses what the scenario's name says, with one request or dial a call.
func TestAScenarioIsWhatItsNameSays(t *testing.T) {
	for name, lost := range map[string]float64{
		"refused 300ms":                 1,
		"503 1s":                        1,
		"look-up NXDOMAIN 2s":           1,
		"starts 2.3s before its server": 1,
		"one of three refuses":          1. / 3,
		"one of three hangs":            1. / 3,
		"one in ten reset":              0.1,
		"rolling update":                0.05,
		"beside a broken route":         0,
		"random 503s 20%":               0.2,
		"503 5s with credentials":       1,
		"end of a fixed window":         1,
	} {
		s := scenario(t, name)
		r := s.Run(t, noRetry, s.Loads[0], 1)
		assert.InDelta(t, lost, r[Lost], 0.04, name)
		assert.InDelta(t, 1, r[Requests]+r[Dials], 0.01, name)
		assert.Zero(t, r[WaitMost], name)
	}
}

func TestASeedGivesTheSameResult(t *testing.T) {
	s := scenario(t, "one of three refuses")
	first := s.Run(t, noRetry, medium, 1)
	assert.Equal(t, finite(first), finite(s.Run(t, noRetry, medium, 1)))
	assert.NotEqual(t, finite(first), finite(s.Run(t, noRetry, medium, 2)))
}

func finite(r Result) (all []float64) {
	for _, x := range r {
		if !math.IsNaN(x) {
			all = append(all, x)
		}
	}
	return all
}

// slow sends each request again a second after it failed, and gives up after ten times.
func slow(base http.RoundTripper) http.RoundTripper {
	return Func(func(req *http.Request) (resp *http.Response, err error) {
		for range 10 {
			if resp, err = base.RoundTrip(req); !failed(resp, err) || !sleep(req.Context(), time.Second) {
				break
			}
		}
		return resp, err
	})
}

func TestAResultShowsWhatWaitsAndWhatComesAfterwards(t *testing.T) {
	s := scenario(t, "refused 3s")
	r := s.Run(t, Client{"slow", slow}, large, 1)
	assert.Zero(t, r[Lost])
	assert.InDelta(t, 2, r[Dials], 0.1, "after 0, 1 and 2 s, as far as it was still down")
	assert.InDelta(t, 2, r[WaitHalf], 0.01)
	assert.InDelta(t, 3, r[WaitMost], 0.01)
	assert.InDelta(t, 4, r[Second], 0.3, "all calls of three seconds, and new ones")
	assert.Greater(t, r[InFlight], 1400.0)
}

func TestADeadlineEndsACall(t *testing.T) {
	s := scenario(t, "refused 3s")
	r := s.Run(t, Client{"slow", slow}, within(2*time.Second, medium)[0], 1)
	assert.InDelta(t, 2./3, r[Lost], 0.05, "there is time for two attempts")
	assert.InDelta(t, 2, r[Longest], 0.02)
}

func TestWorkersCallAgainWhenTheirCallHasEnded(t *testing.T) {
	s := scenario(t, "one 429 in answers of 10s")
	r := s.Run(t, noRetry, s.Loads[1], 1)
	assert.EqualValues(t, 200, r[InFlight])
	assert.InDelta(t, 1, r[Admitted], 0.1)
	assert.InDelta(t, 1./1200, r[Lost], 1./1200)

	s = scenario(t, "500 a minute in answers of 20s")
	assert.InDelta(t, 1, s.Run(t, noRetry, s.Loads[0], 1)[Admitted], 0.02, "the demand is more than the limit")
}

func TestACronJobWasHealthyBefore(t *testing.T) {
	calls := 0
	count := func(base http.RoundTripper) http.RoundTripper {
		calls++
		good, tries := false, 0
		return Func(func(req *http.Request) (*http.Response, error) {
			tries++
			resp, err := base.RoundTrip(req)
			assert.Equal(t, tries < 3, err == nil, "only the third call meets the trouble")
			good = good || err == nil
			assert.True(t, good)
			return resp, err
		})
	}
	s := scenario(t, "refused 1s")
	assert.EqualValues(t, 1, s.Run(t, Client{"counting", count}, cron, 1)[Lost])
	assert.Equal(t, cron.Clients, calls, "each has a process of its own")
}

func TestOnlyAFailedDialIsOne(t *testing.T) {
	var log Log
	Run(t, func() {
		r := &recorder{start: time.Now()}
		for _, reply := range []Reply{refused, reset, hang, unavailable, {Err: errors.New("other")}} {
			r.server = Server(func(time.Duration, *http.Request) Reply { return reply }).from(0)
			r.RoundTrip(get("/"))
		}
		log = r.log
	})
	var dials []bool
	for _, a := range log.Attempts {
		dials = append(dials, a.Dial)
	}
	assert.Equal(t, []bool{true, false, false, false, false}, dials)
	assert.Equal(t, 503, log.Attempts[3].Status)
}

func TestBusiestIsTheFullestWindow(t *testing.T) {
	times := []time.Duration{1, 2, 3, 10, 11, 20, 21, 22, 23}
	assert.Equal(t, 3, busiest(times, 0, 20, 5))
	assert.Equal(t, 2, busiest(times, 3, 12, 5))
	assert.Equal(t, 4, busiest(times, 12, 30, 5))
	assert.Zero(t, busiest(nil, 0, 10, 5))
}

func TestMediansLeaveOutWhatWasNotMeasured(t *testing.T) {
	a, b, c := unmeasured(), unmeasured(), unmeasured()
	a[Lost], b[Lost], c[Lost] = 0.3, 0.1, 0.2
	a[Down], b[Down], c[Down] = 1, 0, 0
	b[Second] = 7
	m := Medians([]Result{a, b, c})
	assert.Equal(t, 0.2, m[Lost])
	assert.InDelta(t, 1./3, m[Down], 1e-9, "a share, not a median")
	assert.Equal(t, 7.0, m[Second])
	assert.True(t, math.IsNaN(m[Admitted]))
}

func TestATableIsOfWhatWasChosen(t *testing.T) {
	b := Table{Clients: []Client{noRetry, {"slow", slow}}, Scenario: "refused 300", Load: "M|L", Client: "no.*", Seeds: 1}
	var got []string
	require.NoError(t, b.Run(t, func(s Scenario, rows []Row) {
		for _, r := range rows {
			got = append(got, s.Name+" "+r.Load.Name+" "+r.Client.Name)
		}
	}))
	assert.Equal(t, []string{"refused 300ms M no retry", "refused 300ms L no retry"}, got)
	for _, bad := range []Table{{Scenario: "("}, {Load: "("}, {Client: "("}} {
		assert.Error(t, bad.Run(t, nil))
	}
}

func TestFewerRunsAreEnoughIfTheyHaveManyCalls(t *testing.T) {
	b := Table{Seeds: 20}
	assert.Equal(t, 20, b.runs(Scenario{Lasts: time.Second}, large))
	assert.Equal(t, 6, b.runs(Scenario{Lasts: 20 * time.Second}, large))
	assert.Equal(t, 3, b.runs(Scenario{Lasts: 5 * time.Minute}, large))
	assert.Equal(t, 20, b.runs(Scenario{Lasts: 5 * time.Minute}, cron))
	b.Seeds = 0
	assert.Equal(t, 1, b.runs(Scenario{Lasts: 5 * time.Minute}, large))
}

func TestRunsInParallelGiveTheSame(t *testing.T) {
	var got [][]float64
	for _, parallel := range []int{1, 3} {
		b := Table{Clients: []Client{noRetry}, Scenario: "one of three refuses", Load: "M", Seeds: 3, Parallel: parallel}
		require.NoError(t, b.Run(t, func(_ Scenario, rows []Row) { got = append(got, finite(rows[0].Result)) }))
	}
	assert.Equal(t, got[0], got[1])
}
