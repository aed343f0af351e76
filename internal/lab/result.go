package lab

import (
	"math"
	"slices"
	"time"
)

// A Metric is one column of the table.
type Metric int

// The metrics. Times are in seconds. What is said of calls is of those that began in the trouble.
const (
	Lost     Metric = iota // share of the calls
	Requests               // that reached the server in the trouble, for each call
	Dials                  // that failed in it, for each call
	Second                 // the busiest second of the three after the trouble, of the ordinary rate
	Tenth                  // the busiest 100 ms of them
	WaitHalf               // the median of what a call took without its last attempt
	WaitMost               // the 99th percentile of that
	Longest                // the longest call
	InFlight               // the most calls at the same time
	FailHalf               // the median duration of failed calls that began after a minute of trouble
	Admitted               // requests, of the limit or of their ordinary number
	Down                   // runs that stay down, of all
	metrics
)

// A Result has a value for each Metric. What was not measured is NaN.
type Result [metrics]float64

func unmeasured() (r Result) {
	for i := range r {
		r[i] = math.NaN()
	}
	return r
}

// Medians returns the median of each metric, but the mean of Down.
func Medians(results []Result) (r Result) {
	for m := range r {
		var all []float64
		sum := 0.0
		for _, one := range results {
			if !math.IsNaN(one[m]) {
				all = append(all, one[m])
				sum += one[m]
			}
		}
		r[m] = quantile(all, 0.5)
		if Metric(m) == Down && len(all) > 0 {
			r[m] = sum / float64(len(all))
		}
	}
	return r
}

// quantile sorts all. It returns NaN if there is nothing.
func quantile(all []float64, share float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return all[min(int(share*float64(len(all))), len(all)-1)]
}

func (s Scenario) judges(path string) bool { return s.Judged == nil || s.Judged(path) }

func (s Scenario) measure(log Log, l Load, p Plan) Result {
	r := unmeasured()
	s.measureCalls(log, p, &r)
	calls := 0.0
	for _, c := range log.Calls {
		if p.From <= c.At && c.At < p.To && s.judges(c.Path) {
			calls++
		}
	}
	requests, dials := 0.0, 0.0
	var reached []time.Duration
	for _, a := range log.Attempts {
		if !a.Dial {
			reached = append(reached, a.At)
		}
		if a.At < p.From || a.At >= p.To || !s.judges(a.Path) {
			continue
		}
		if a.Dial {
			dials++
		} else {
			requests++
		}
	}
	r[Requests], r[Dials], r[InFlight] = requests/calls, dials/calls, float64(log.InFlight)
	if rate := l.PerSecond(); rate > 0 && s.After > 0 {
		after := func(window time.Duration) float64 {
			return float64(busiest(reached, p.To, p.To+3*time.Second, window)) / (rate * window.Seconds())
		}
		r[Second], r[Tenth] = after(time.Second), after(100*time.Millisecond)
	}
	if s.Measure != nil {
		s.Measure(log, p, &r)
	}
	return r
}

func (s Scenario) measureCalls(log Log, p Plan, r *Result) {
	var waits, failed []float64
	lost, longest := 0.0, 0.0
	for _, c := range log.Calls {
		if c.At < p.From || c.At >= p.To || !s.judges(c.Path) {
			continue
		}
		waits = append(waits, c.Wait.Seconds())
		longest = max(longest, c.Took.Seconds())
		if c.OK {
			continue
		}
		lost++
		if c.At >= p.From+time.Minute {
			failed = append(failed, c.Took.Seconds())
		}
	}
	r[Lost], r[Longest] = lost/float64(len(waits)), longest
	r[WaitHalf], r[WaitMost] = quantile(waits, 0.5), quantile(waits, 0.99)
	if s.Lasts > time.Minute && len(failed) > 0 {
		r[FailHalf] = quantile(failed, 0.5)
	}
}

// busiest returns how many of the sorted times are in one window at most. The window begins in [from, to).
func busiest(times []time.Duration, from, to, window time.Duration) (most int) {
	first, _ := slices.BinarySearch(times, from)
	last := first
	for ; first < len(times) && times[first] < to; first++ {
		for last < len(times) && times[last] < times[first]+window {
			last++
		}
		most = max(most, last-first)
	}
	return most
}
