package cool_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/cool"
)

// Calls come at random to a host whose state changes at random. What its Outage does is compared with a model
// that knows all that happened.
func TestAnOutageIsWhatTheModelSays(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &hostWalk{world: newWorld(t, seed)}
			w.world.ask, w.world.check = w.asks, w.checks
			end := dawn + 60*sec
			w.at(dawn, w.changes)
			w.arrivals(end)
			w.run()
			for _, c := range w.calls {
				if !c.ended && !t.Failed() {
					t.Errorf("call %d did not end", c.number)
				}
			}
		})
	}
}

// A hostWalk is calls to one host.
type hostWalk struct {
	*world
	o     cool.Outage
	model hostModel
	calls []*caller
	mood  int // of the server
}

// Moods of a server.
const (
	good = iota
	refuses
	fails
	failsSlowly
	hangs
	halfGood
	slow
	errs
	moods
)

func (w *hostWalk) changes() {
	if w.mood = w.IntN(moods); w.oneIn(3) {
		w.mood = good
	}
	if w.now < dawn+50*sec {
		w.at(w.now+50*ms+w.upTo(6*sec), w.changes)
	} else {
		w.mood = good
	}
}

func (w *hostWalk) arrivals(end time.Duration) {
	rate := 1 + w.IntN(60)
	for at := dawn; at < end; at += w.upTo(2 * sec / time.Duration(rate)) {
		w.at(at, w.arrives)
	}
}

func (w *hostWalk) arrives() {
	c := &caller{number: len(w.calls), poor: w.oneIn(3)}
	c.Waiter = cool.Waiter{Called: w.now, Wake: make(chan struct{}, 1), Patience: w.now + 10*sec}
	if w.oneIn(4) {
		c.Patience = w.now + w.upTo(2*sec)
	}
	w.calls = append(w.calls, c)
	w.attempt(c)
	if w.oneIn(5) { // it gives up
		w.at(w.now+w.upTo(2*sec), func() {
			if c.waits {
				w.o.Leave(&c.Waiter)
				w.leave(c)
				c.ended = true
			}
		})
	}
}

// attempt sends c, or has it wait if the host is or was down.
func (w *hostWalk) attempt(c *caller) {
	m := &w.model
	if w.oneIn(2) {
		if m.look(w.now); w.o.Down(w.now) != m.down {
			w.errorf("down is %v", !m.down)
		}
	}
	m.look(w.now)
	holds := m.down || len(w.line) > 0 && c.Called < m.opened
	if w.o.Holds(c.Called, w.now) != holds {
		w.errorf("holds is %v", !holds)
	}
	if !holds && m.streak() < 3 {
		m.sent++
	}
	if w.now >= c.Patience || !holds {
		w.send(c, cool.Permit{})
		return
	}
	w.joins(c)
}

func (w *hostWalk) joins(c *caller) {
	if !w.o.Join(&c.Waiter, c.owes, w.now) {
		w.errorf("no place in line")
	}
	if m := &w.model; !m.down {
		m.divide(w.now, len(w.line)+1)
	}
	w.join(c)
}

func (w *hostWalk) asks(c *caller) {
	m := &w.model
	if w.now >= m.silentAt() {
		m.notTurnedAway(w.now, w.line)
	}
	first := slices.MinFunc(w.line, byCall)
	switch turn := w.o.Ask(&c.Waiter, w.now); {
	case turn.Over:
		if w.now < c.Patience {
			w.errorf("call %d is over, %v early", c.number, c.Patience-w.now)
		}
		w.leave(c)
		if turn.Last != (len(w.line) == 0) {
			w.errorf("last is %v", turn.Last)
		}
		if c.Attempts > 0 {
			c.ended = true
		} else {
			w.send(c, cool.Permit{})
		}
	case w.now >= c.Patience:
		w.errorf("call %d is not over", c.number)
	case turn.Pay:
		if !m.down || !c.owes || c.broke || w.now < max(m.ready(c), m.probeFrom) {
			w.errorf("call %d need not pay", c.number)
		}
		w.o.Pay(&c.Waiter, !c.poor)
		c.owes, c.broke = c.poor, c.poor
		w.asks(c)
	case turn.Permit.Given():
		inPlace := !m.down && m.last <= m.end && w.now >= m.end // a place may end after the window
		if c.early && !inPlace {
			w.errorf("call %d could go, but was not told", c.number)
		}
		if turn.Permit.Probe != m.down {
			w.errorf("a probe is %v", turn.Permit.Probe)
		}
		w.leave(c)
		if turn.Permit.Probe {
			w.probes(c)
		} else {
			w.released(c, first)
		}
		w.goes(c, turn.Permit)
	case turn.Again <= w.now || turn.Again > c.Patience || m.down && c == first && turn.Again > m.silentAt():
		w.errorf("call %d must ask again in %v", c.number, turn.Again-w.now)
	case !m.down && c == first && (turn.Again > min(c.Patience, m.due(w.now)) || turn.Again < min(c.Patience, m.due(w.now)-10*ms)):
		w.errorf("call %d is due in %v, not %v", c.number, m.due(w.now)-w.now, turn.Again-w.now)
	case m.down && w.now >= m.probeBy && w.now >= m.ready(c) && !slices.ContainsFunc(w.line, func(other *caller) bool { return other != c && w.now >= m.ready(other) }):
		w.errorf("call %d should be a probe", c.number)
	default:
		w.wait(c, turn.Again)
	}
}

// checks looks whether the first in line will ask in time.
func (w *hostWalk) checks() {
	m := &w.model
	if len(w.line) == 0 || !m.down && w.now >= m.end {
		return
	}
	c, by := slices.MinFunc(w.line, byCall), m.silentAt()
	if !m.down {
		by = m.due(w.now)
	}
	if c.due > max(w.now, by) {
		w.errorf("call %d sleeps for %v, %v too long", c.number, c.due-w.now, c.due-by)
	}
}

// goes sends c, or gives its turn back, because others are in its way.
func (w *hostWalk) goes(c *caller, p cool.Permit) {
	m := &w.model
	if !w.oneIn(20) {
		w.send(c, p)
		return
	}
	w.o.Return(p, w.now)
	if !m.probeEnds(p.Probe, m.round, w.now) {
		m.unanswered--
	}
	m.look(w.now)
	if m.down || len(w.line) > 0 && c.Called < m.opened {
		w.joins(c)
	} else {
		w.send(c, cool.Permit{})
	}
}

// probes checks that c may be a probe now.
func (w *hostWalk) probes(c *caller) {
	m := &w.model
	if w.now < max(m.ready(c), m.probeFrom) {
		w.errorf("call %d is no probe yet", c.number)
	}
	for _, other := range w.line {
		a, b := price(other), price(c)
		if m.ready(other) <= m.ready(c) && (a < b || a == b && other.Called > c.Called) {
			w.errorf("call %d should be the probe, not %d", other.number, c.number)
		}
	}
	if c.owes && !c.broke {
		w.errorf("call %d did not pay", c.number)
	}
	m.round++
	m.probes = append(m.probes, outcome{round: m.round, sent: w.now})
	m.probed = w.now
	m.probeFrom, m.probeBy = w.now+sec, w.now+sec
}

// price is what a probe costs. Each attempt counts for more than a retry.
func price(c *caller) int {
	if c.owes {
		return 2*c.Attempts + 1
	}
	return 2 * c.Attempts
}

// released checks that c may be released now.
func (w *hostWalk) released(c, first *caller) {
	m := &w.model
	if first.Called < c.Called {
		w.errorf("call %d goes before %d", c.number, first.number)
	}
	if w.now < m.due(w.now)-10*ms {
		w.errorf("a release %v after the end, %v after the last one: a place is %v", w.now-m.opened, w.now-m.last, m.gap)
	}
	if m.unanswered > m.answered {
		m.answered += m.unanswered
	}
	m.unanswered++
	m.places--
	m.last = w.now
}

func (w *hostWalk) send(c *caller, p cool.Permit) {
	o := outcome{sent: w.now, round: w.model.round, permit: p}
	mood := w.mood
	if mood == halfGood {
		mood = []int{good, fails}[w.IntN(2)]
	}
	switch mood {
	case good:
		o.good, o.took = true, ms+w.upTo(20*ms)
	case slow:
		o.good, o.took = true, sec+w.upTo(2*sec)
	case refuses:
		o.dial, o.took = true, ms
	case fails:
		o.took = 3 * ms
	case failsSlowly:
		o.took = 300*ms + w.upTo(sec)
	case hangs:
		o.unclear, o.took = true, 10*sec
	case errs:
		o.unclear, o.answered, o.took = true, w.oneIn(2), 5*ms
	}
	w.at(w.now+o.took, func() { w.ends(c, o) })
}

func (w *hostWalk) ends(c *caller, o outcome) {
	m := &w.model
	o.at = w.now
	m.add(o, w.line)
	switch {
	case o.good:
		w.o.Good(nil, anyRoute, o.permit, o.sent, w.now)
	case o.unclear:
		w.o.Unclear(o.permit, o.answered, w.now)
	default:
		w.o.Failed(route("/"), o.permit, o.dial, o.took, w.now)
	}
	if !o.dial {
		c.Attempts++
	}
	if o.good || o.answered || c.Attempts == 4 || w.now >= c.Patience {
		c.ended = true
		return
	}
	c.LastAttempt, c.owes, c.broke = c.Attempts == 3, !o.dial && m.down, false
	if c.ProbeFrom = w.now + w.upTo(500*ms); m.down {
		w.attempt(c)
	} else {
		w.at(c.ProbeFrom, func() { w.attempt(c) })
	}
}

func anyRoute(*http.Request) cool.Route { return route("/") }

func route(path string) cool.Route { return cool.Route{Path: path} }

func byCall(a, b *caller) int { return cmp.Compare(a.Called, b.Called) }

// A hostModel says what an Outage should be. It keeps all outcomes.
type hostModel struct {
	history []outcome

	down            bool
	suspect         bool // there were several failures, and no good answer was looked at since
	failures        int  // that were no dials, since then
	sent            int  // calls that were let through since the first failure in the row
	goodAt          time.Duration
	round           int
	since, opened   time.Duration
	failed, slowest time.Duration // when the first failure in the row came, and what the slowest of the latest took
	began           time.Duration // when the trouble of the row began

	probes             []outcome // that are under way
	probed             time.Duration
	probeFrom, probeBy time.Duration // the next one goes at a random time between these

	first, last          time.Duration // of the release
	end, gap             time.Duration
	places               int // for those that waited then
	unanswered, answered int
}

type outcome struct {
	sent, at, took                time.Duration
	good, dial, unclear, answered bool
	permit                        cool.Permit
	round                         int
}

// look finds that the host is down, if it is.
func (m *hostModel) look(now time.Duration) {
	row := m.row()
	n := len(row)
	if m.down || n < 3 || n < m.sent/2 || now-row[n-1].at > 10*sec {
		return
	}
	dials := 0
	for _, f := range row {
		if f.dial {
			dials++
		}
	}
	quiet := now - row[0].at
	if m.steadyBefore(len(m.history) - n) {
		m.down = quiet >= sec || quiet >= 300*ms && n >= 5 || quiet >= 100*ms && (n >= 10 || dials >= 3)
	} else {
		m.down = quiet >= 5*sec && n >= 30
	}
	if m.down {
		m.suspect = false
		m.since, m.probed, m.probes = m.began, row[n-1].at, nil
		m.round++
		m.probeAgain(m.probed)
	}
}

// row is the failures since the last good answer.
func (m *hostModel) row() []outcome {
	i := len(m.history)
	for i > 0 && !m.history[i-1].good {
		i--
	}
	return m.history[i:]
}

// steadyBefore reports whether a failure that followed three good answers, or was the first of all, came
// within half a second before the one at i, or is that one.
func (m *hostModel) steadyBefore(i int) bool {
	for j := i; j >= 0 && m.history[i].at-m.history[j].at <= 500*ms; j-- {
		if m.history[j].good {
			continue
		}
		before := 0
		for before < j && m.history[j-1-before].good {
			before++
		}
		if before == j || before >= 3 {
			return true
		}
	}
	return false
}

// silentAt is when a probe has been silent for longer than failures take.
func (m *hostModel) silentAt() time.Duration {
	if !m.down || len(m.probes) == 0 {
		return 1 << 62
	}
	return m.probes[0].sent + max(sec, 2*m.slowest)
}

// ready is when c can be a probe, if nobody else is one before.
func (m *hostModel) ready(c *caller) time.Duration {
	switch {
	case c.broke:
		return max(c.ProbeFrom, m.probed+10*sec)
	case c.LastAttempt:
		return max(c.ProbeFrom, m.probed+5*sec)
	case c.Attempts > 0:
		return max(c.ProbeFrom, m.probed+3*sec)
	}
	return c.ProbeFrom
}

func (m *hostModel) probeAgain(failed time.Duration) {
	age := failed - m.since
	d := min(max(age/2, 50*ms), 200*ms)
	if age > 5*sec {
		d = min(d+(age-5*sec)/2, sec)
	}
	m.probeFrom, m.probeBy = failed+d-d/2, failed+d
}

// probeEnds removes a probe that is under way, and reports whether there is one.
func (m *hostModel) probeEnds(probe bool, round int, now time.Duration) bool {
	at := slices.IndexFunc(m.probes, func(p outcome) bool { return p.round == round })
	if !probe || at < 0 {
		return false
	}
	if m.probes = slices.Delete(m.probes, at, at+1); len(m.probes) == 0 {
		m.probeAgain(now)
	}
	return true
}

// streak is how many good answers came last.
func (m *hostModel) streak() int { return len(m.history) - m.lastFailure() - 1 }

func (m *hostModel) lastFailure() int {
	at := len(m.history) - 1
	for at >= 0 && m.history[at].good {
		at--
	}
	return at
}

func (m *hostModel) add(o outcome, line []*caller) {
	now := o.at
	if o.good && o.sent < m.failed { // it is late
		o.good, o.unclear, o.answered = false, true, true
	}
	if !o.unclear && !o.good && len(m.row()) == 0 {
		m.failed, m.slowest, m.sent, m.began = now, 0, 0, max(now-o.took, m.goodAt)
	}
	if !o.unclear && o.good && (m.streak() < 3 || now-m.goodAt > sec) {
		m.goodAt = now
	}
	if !o.unclear {
		m.history = append(m.history, o)
	}
	probed := m.probeEnds(o.permit.Probe, o.round, now)
	switch {
	case probed && o.unclear && o.answered:
		m.notTurnedAway(now, line)
	case o.permit.Given() && !o.permit.Probe && o.round == m.round:
		if m.unanswered--; o.good {
			m.answered++
		}
	}
	switch {
	case o.unclear:
	case !o.good:
		m.slowest = max(m.slowest/2, o.took)
		if !o.dial {
			m.failures++
		}
		m.suspect = !m.down && (m.suspect || !o.dial && m.failures >= 3 || len(m.row()) >= 3)
		m.look(now)
	case o.permit.Given() || m.suspect || m.down:
		if m.suspect, m.failures = false, 0; m.down {
			m.open(now, line)
		}
	}
}

// notTurnedAway opens the host, whose next failures are a new outage.
func (m *hostModel) notTurnedAway(now time.Duration, line []*caller) {
	for range 3 {
		m.history = append(m.history, outcome{at: now, good: true})
	}
	m.open(now, line)
}

func (m *hostModel) open(now time.Duration, line []*caller) {
	m.down, m.opened, m.probes = false, now, nil
	m.round++
	lastFailed := time.Duration(0)
	for _, o := range m.history {
		if !o.good {
			lastFailed = o.at
		}
	}
	window := min(now, lastFailed+sec) - m.since
	if len(line) > 0 {
		window = min(window, now-slices.MinFunc(line, byCall).Called)
	}
	m.end = now + window
	m.divide(now, len(line))
	m.first, m.last = now+m.gap, 0
	m.unanswered, m.answered = 0, 1
}

// divide gives each of the line a place in what is left of the release.
func (m *hostModel) divide(now time.Duration, waiting int) {
	m.places = max(1, waiting)
	m.gap = max(0, m.end-now) / time.Duration(m.places)
}

// due is when the first in line may be released.
func (m *hostModel) due(now time.Duration) time.Duration {
	due := max(m.first, m.last)
	if m.places > 0 && now < m.end {
		due = max(m.first, m.last+m.gap)
	}
	if m.unanswered > m.answered { // silence of a second counts as answers
		due = max(due, m.last+sec)
	}
	return due
}
