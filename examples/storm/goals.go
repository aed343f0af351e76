package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heedhttp/heed/internal/lab"
)

// A goal is a bound on what a heed.Transport with its zero value shows in the table.
type goal struct {
	scenarios, loads []string
	metric           lab.Metric
	most, least      float64
	of               string // the client whose value most multiplies, if any
	unmet            bool   // not asserted yet
}

func names(s string) []string { return strings.Split(s, ", ") }

// unmet marks a goal that the tests do not assert yet.
func unmet(g goal) goal {
	g.unmet = true
	return g
}

func atMost(most float64, m lab.Metric, scenarios, loads string) goal {
	return goal{scenarios: names(scenarios), loads: names(loads), metric: m, most: most}
}

func atLeast(least float64, m lab.Metric, scenarios, loads string) goal {
	g := atMost(1e9, m, scenarios, loads)
	g.least = least
	return g
}

// likeFourAttempts allows a quarter more than the loop without a budget has.
func likeFourAttempts(m lab.Metric, scenarios, loads string) goal {
	g := atMost(1.25, m, scenarios, loads)
	g.of = "four attempts"
	return g
}

const (
	all      = "S, M, L"
	brief    = "refused 300ms, refused 1s, refused 3s, refused 10s, look-up SERVFAIL 2s, look-up timeout 2s"
	minutes  = "refused 5m, refused 5m from the start, 503 5m, 503 5m from the start"
	hinted   = "429 5m, 429 5m from the start"
	fleets   = "10, 100, 1000"
	comeback = "refused 300ms, refused 1s, refused 3s, look-up SERVFAIL 2s, 503 1s, 503 1.4s, 503 5s"
	lateNews = "look-up timeout 2s" // what fails was sent a second before
)

// goals are of medians, without a deadline unless the load has one.
var goals = []goal{
	// Short troubles cost no call, and little else.
	atMost(0.005, lab.Lost, brief, all),
	atMost(1.6, lab.Dials, "refused 300ms, refused 1s", "M, L"),
	atMost(0.5, lab.Dials, "refused 3s, refused 10s", "M, L"),
	atMost(0.005, lab.Lost, "503 1s, 503 5s", "M, L"),
	atMost(0.05, lab.Lost, "503 1s, 503 5s", "S"),
	atMost(1, lab.Requests, "503 1s, 503 5s", "M, L"),
	atMost(0.7, lab.Lost, "503 30s", all),
	atMost(1.15, lab.Requests, "503 30s", all),
	atMost(0.005, lab.Lost, "refused 1s, 503 1s", "cron"),
	atMost(0.02, lab.Lost, "refused 5s, 503 5s", "cron"),
	atMost(0.02, lab.Lost, "refused 1s", "S 2s, M 2s"),
	atMost(0.3, lab.Lost, "refused 1s", "S 1s, M 1s"),

	// Retries help where a part fails.
	atMost(0.005, lab.Lost, "one of three refuses", all),
	likeFourAttempts(lab.Lost, "one of three says 503, one of three hangs, random 503s 30%", all),
	atMost(0.6, lab.WaitMost, "one of three refuses", all),
	atMost(0.5, lab.WaitMost, "random 503s 10%", all),
	atMost(2, lab.WaitMost, "random 503s 90%", "L"),
	unmet(atMost(2, lab.WaitMost, "random 503s 90%", "S, M")),
	atMost(0, lab.Lost, "beside a broken route", all),
	atMost(0.1, lab.WaitMost, "beside a broken route", all),

	// Long troubles end calls soon, and the server gets little more than without retries.
	atMost(1.2, lab.Requests, minutes, fleets),
	atMost(2.1, lab.Dials, minutes, fleets),
	atMost(0.05, lab.FailHalf, minutes, fleets),
	atMost(15, lab.Longest, minutes, fleets),
	atMost(1.2, lab.Requests, hinted, fleets),
	atMost(0.05, lab.FailHalf, hinted, fleets),
	unmet(atMost(15, lab.Longest, hinted, fleets)), // calls of the first minute wait for up to MaxWait

	// A server that comes back is not overrun.
	atMost(2.3, lab.Second, comeback, all),
	atMost(2.3, lab.Second, lateNews, "M, L"),
	unmet(atMost(2.3, lab.Second, lateNews, "S")),
	atMost(2.7, lab.Tenth, comeback, "L"),
	atMost(2.7, lab.Tenth, lateNews, "L"),
	atMost(3, lab.Tenth, comeback, "M"),
	atMost(3, lab.Tenth, lateNews, "M"),
	atMost(3.2, lab.Second, "refused 10s", all),
	atMost(3.7, lab.Tenth, "refused 10s", "L"),
	atMost(4.3, lab.Tenth, "refused 10s", "M"),
	atMost(2.3, lab.Second, minutes, fleets),
	atMost(2.3, lab.Second, hinted, fleets),
	atMost(0.02, lab.Lost, "spike of 2 times the load", "1 client"),
	atMost(0.14, lab.Lost, "spike of 2.5 times the load", "1 client"),
	atMost(0, lab.Down, "spike of 2 times the load, spike of 2.5 times the load", "1 client"),

	// Limits are used and cost no call.
	atLeast(500./582, lab.Admitted, "one 429 in answers of 10s", "200 workers"),
	atMost(0, lab.Lost, "one 429 in answers of 30s", "50 workers, 200 workers"),
	atLeast(0.75, lab.Admitted, "500 a minute in answers of 40s", "1.3 times"),
	atMost(0.02, lab.Lost, "500 a minute in answers of 40s", "1.3 times"),
	atMost(0, lab.Lost, "end of a fixed window", "1 x 200 calls, 200 x 1 call"),
}

// A finding is one goal compared with one row.
type finding struct {
	goal
	load string
	has  float64
	met  bool
}

// compare returns what the goals say of a scenario's rows. A slack of 1.5 allows half as much again.
func compare(s lab.Scenario, rows []lab.Row, slack float64) (all []finding) {
	for _, g := range goals {
		if !slices.Contains(g.scenarios, s.Name) {
			continue
		}
		for _, r := range rows {
			if r.Client.Name != "heed" || !slices.Contains(g.loads, r.Load.Name) {
				continue
			}
			g := g // most depends on the load
			if g.of != "" {
				g.most *= valueOf(rows, g.of, r.Load.Name, g.metric)
			}
			g.most, g.least = g.most*slack, g.least/slack
			has := r.Result[g.metric]
			// NaN means that there was nothing to measure, such as calls that failed.
			all = append(all, finding{g, r.Load.Name, has, !(has > g.most || has < g.least)})
		}
	}
	return all
}

func valueOf(rows []lab.Row, client, load string, m lab.Metric) float64 {
	i := slices.IndexFunc(rows, func(r lab.Row) bool { return r.Client.Name == client && r.Load.Name == load })
	if i < 0 {
		return 0
	}
	return rows[i].Result[m]
}

func (f finding) String() string {
	bound := "at most " + f.metric.Format(f.most)
	if f.least > 0 {
		bound = "at least " + f.metric.Format(f.least)
	}
	return fmt.Sprintf("%-12s %-12s %-8s %s", f.load, f.metric, f.metric.Format(f.has), bound)
}

// judge prints what the goals say of a scenario.
func judge(s lab.Scenario, rows []lab.Row) {
	for i, f := range compare(s, rows, 1) {
		if i == 0 {
			fmt.Printf("\n%s\n", s.Name)
		}
		word := map[bool]string{true: "ok", false: "MISSED"}[f.met]
		fmt.Printf("  %-7s %s\n", word, f)
	}
}
