package cool_test

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/cool"
	"github.com/heedhttp/heed/ratelimit"
)

// Requests come at random to a key that is closed at random, with an interval or without. What its CoolDown
// does is compared with a model.
func TestACoolDownIsWhatTheModelSays(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &keyWalk{world: newWorld(t, seed)}
			w.world.ask = w.asks
			if seed%4 >= 2 {
				w.every = ms + w.upTo(200*ms)
			}
			for range 12 {
				w.at(dawn+w.upTo(60*sec), w.closes)
			}
			for at := dawn; at < dawn+60*sec; at += w.upTo(200 * ms) {
				w.at(at, w.arrives)
			}
			w.run()
			assert.Equal(t, w.calls, w.ended)
		})
	}
}

func request(path string) *http.Request {
	return &http.Request{Method: "GET", URL: &url.URL{Path: path}}
}

// A keyWalk is requests with one key.
type keyWalk struct {
	*world
	c     cool.CoolDown
	every time.Duration // between two requests, or 0 if that is not known
	calls int
	ended int
	model keyModel
}

// A keyModel says what a CoolDown should be.
type keyModel struct {
	closed               bool
	round                int
	until, window        time.Duration
	last                 time.Duration // when the last release was
	unanswered, answered int
	underWay, more       int           // how many had no permit and were answered well; how many more may be unanswered
	began                time.Duration // when the closure did
	series               seriesModel
	good                 time.Duration // when an answer last was good, or silence counted as one
	first, end, gap      time.Duration // after a series those that wait are spread once more
	places               int
}

// A seriesModel is closures without a good answer in between.
type seriesModel struct {
	began, hint time.Duration
	refused     bool // there were two or more
}

func (s seriesModel) hopeless(w *cool.Waiter) time.Duration {
	if !s.refused || w.Attempts > 0 {
		return 1 << 62
	}
	return s.began + max(w.MaxWait, 5*s.hint)
}

// endSeries spreads those that wait over as long as the series lasted.
func (m *keyModel) endSeries(now time.Duration, waiting int, every time.Duration) {
	if m.series.refused && every == 0 {
		span := min(now-m.series.began, 10*sec)
		m.places = max(1, waiting)
		m.gap = span / time.Duration(m.places)
		m.first, m.end = now+m.gap, now+span
	}
	m.good, m.series.refused = now, false
}

func (w *keyWalk) closes() {
	m, wait := &w.model, 100*ms+w.upTo(5*sec)
	replaces := w.now < m.until && w.oneIn(2)
	if replaces {
		w.c.Replace(w.now, wait, cool.BoardInterval(w.every))
	} else {
		w.c.Post(w.now, wait, cool.BoardInterval(w.every))
	}
	if end := w.now + wait; replaces || end > m.until {
		series := m.series
		if m.until == 0 || m.good >= m.began || w.now > m.until+10*sec {
			series = seriesModel{began: w.now}
		} else if w.now > m.until {
			series.refused = true
		}
		series.hint = wait
		*m = keyModel{closed: true, round: m.round + 1, began: w.now, until: end, window: wait / 10 * 3, series: series, good: m.good}
		m.end = end + m.window
	}
	w.toldLate(w.line)
	if got, every := w.c.Read(w.now); got != m.until-w.now || every != w.every {
		w.errorf("closed for %v, at an interval of %v", got, every)
	}
}

func (w *keyWalk) arrives() {
	c := &caller{number: w.calls}
	c.Waiter = cool.Waiter{Called: w.now, Since: w.now, MaxWait: w.upTo(20 * sec), Deadline: w.now + time.Hour, Wake: make(chan struct{}, 1)}
	if w.oneIn(3) {
		c.Deadline = w.now + w.upTo(5*sec)
	}
	w.calls++
	w.attempt(c)
	if w.oneIn(5) { // it gives up
		w.at(w.now+w.upTo(2*sec), func() {
			if c.waits {
				w.c.Leave(&c.Waiter, w.now)
				w.leave(c)
				w.ended++
			}
		})
	}
}

func (w *keyWalk) attempt(c *caller) {
	if w.c.Open(request("/"), w.now) {
		if w.now < w.model.until || len(w.line) > 0 {
			w.errorf("open")
		}
		w.send(c, cool.Permit{})
		return
	}
	if !w.model.closed {
		w.errorf("closed")
	}
	if !w.c.Join(&c.Waiter, w.now) {
		w.errorf("no place in line")
	}
	var behind []*caller
	for _, other := range w.line {
		if w.every > 0 && before(c, other) {
			behind = append(behind, other)
		}
	}
	w.line = append(w.line, c)
	w.toldLate(behind)
	w.line = w.line[:len(w.line)-1]
	w.join(c)
}

func (w *keyWalk) latest(c *caller) time.Duration {
	m := &w.model
	return min(min(c.Since+c.MaxWait, m.series.hopeless(&c.Waiter))+m.window, c.Deadline)
}

// toldLate checks that those that cannot be released in time are told, or ask anyway.
func (w *keyWalk) toldLate(waiters []*caller) {
	for _, c := range waiters {
		late := w.model.until > c.Since+c.MaxWait || w.earliest(c)-w.model.window-10*ms > w.latest(c) || w.latest(c) < c.due
		if told := len(c.Wake) > 0 || c.planned && c.due <= w.now; late && !told {
			w.errorf("request %d was not told that it is late", c.number)
		}
	}
}

func (w *keyWalk) asks(c *caller) {
	m := &w.model
	latest := w.latest(c)
	switch p := w.c.Ask(&c.Waiter, w.now); {
	case p.Permit.Given():
		if c.early && (w.now < m.end || m.last > m.end) { // a place may end after the window
			w.errorf("request %d could go, but was not told", c.number)
		}
		if w.now > min(c.Since+c.MaxWait+2*sec, c.Deadline)+3*w.slow { // no window is longer
			w.errorf("request %d goes too late", c.number)
		}
		w.released(c)
		w.leave(c)
		w.send(c, p.Permit)
	case p.Late:
		if fits := m.until <= c.Since+c.MaxWait && w.now < latest; fits && w.earliest(c) <= latest {
			w.errorf("request %d is not late", c.number)
		}
		w.c.Leave(&c.Waiter, w.now)
		w.leave(c)
		w.ended++
	case p.AskAgain <= 0 || w.now+p.AskAgain > latest:
		w.errorf("request %d must ask again in %v", c.number, p.AskAgain)
	case m.until > c.Since+c.MaxWait || w.now >= latest:
		w.errorf("request %d is late", c.number)
	default:
		w.wait(c, w.now+p.AskAgain)
	}
}

// before reports whether a goes before b.
func before(a, b *caller) bool {
	return a.Attempts > b.Attempts || a.Attempts == b.Attempts && a.Called < b.Called
}

// earliest is when c can go at best: those before it go one interval after the other.
func (w *keyWalk) earliest(c *caller) time.Duration {
	m := &w.model
	at := max(w.now, m.until, m.first)
	if m.last > 0 {
		at = max(at, m.last+max(w.every, m.gap))
	}
	for _, other := range w.line {
		if before(other, c) {
			at += w.every
		}
	}
	return at + m.window // the first goes at a random time in its place
}

// released checks that c may be released now.
func (w *keyWalk) released(c *caller) {
	m := &w.model
	for _, other := range w.line {
		if before(other, c) {
			w.errorf("request %d goes before %d", c.number, other.number)
		}
	}
	if from := max(m.until, m.first); w.now < from {
		w.errorf("a release %v too early", from-w.now)
	}
	every := w.every
	if m.places > 0 && w.now < m.end {
		every = max(every, m.gap)
	}
	if m.last > 0 && w.now < m.last+every-10*ms {
		w.errorf("a release %v after the last one", w.now-m.last)
	}
	if m.unanswered >= max(1, m.underWay)+m.more {
		if w.every == 0 && w.now < m.last+sec-10*ms {
			w.errorf("%d are unanswered, %d were under way, %d more were let go", m.unanswered, m.underWay, m.more)
		}
		m.more += m.unanswered
		if w.every == 0 {
			m.good = w.now
		}
	}
	m.unanswered++
	m.places--
	m.last = w.now
}

func (w *keyWalk) send(c *caller, p cool.Permit) {
	took, failed, errs, returned := ms+w.upTo(50*ms), w.oneIn(10), w.oneIn(10), w.oneIn(20)
	if w.oneIn(10) {
		took = w.upTo(5 * sec)
	}
	round, sent := w.model.round, w.now
	w.at(w.now+took, func() {
		counts := p.Given() && round == w.model.round
		switch {
		case returned && p.Given():
			w.c.Return(p, w.now)
		case w.c.Learning():
			w.c.Answer(p, cool.Answer{Route: "/", Sent: sent, Good: !failed && !errs, Failed: failed}, w.now)
			if counts {
				m := &w.model
				if m.answered++; m.answered >= max(1, 2*(m.underWay-1)) {
					m.more, m.answered = m.more+1, 0
				}
				if !failed && !errs {
					m.endSeries(w.now, len(w.line), w.every)
				}
			} else if m := &w.model; !failed && !errs && m.closed {
				m.underWay++
			}
		}
		if counts {
			w.model.unanswered--
		}
		if c.Attempts++; failed && c.Attempts < 4 {
			c.Since, c.Deadline = w.now, max(c.Deadline, w.now+sec)
			w.attempt(c)
			return
		}
		w.ended++
	})
}

// Those in line have places in the window after the hint, the first one at a random time within its own.
func TestWaitersHavePlacesInAWindow(t *testing.T) {
	for hint, window := range map[time.Duration]time.Duration{sec: 300 * ms, 20 * sec: 6 * sec, time.Minute: 10 * sec} {
		var c cool.CoolDown
		c.Post(dawn, hint, cool.Interval{})
		var all []*cool.Waiter
		for i := range 10 {
			w := &cool.Waiter{Called: dawn + time.Duration(i), Since: dawn, MaxWait: time.Minute, Deadline: dawn + time.Hour, Wake: make(chan struct{}, 1)}
			require.True(t, c.Join(w, dawn))
			all = append(all, w)
		}
		now, gap := dawn+hint, window/10
		var first time.Duration
		for i, w := range all {
			p := c.Ask(w, now)
			if !p.Permit.Given() {
				now += p.AskAgain
				p = c.Ask(w, now)
			}
			require.True(t, p.Permit.Given())
			if i == 0 {
				first = now
				assert.GreaterOrEqual(t, now, dawn+hint)
				assert.LessOrEqual(t, now, dawn+hint+gap)
			} else {
				assert.Equal(t, min(first+time.Duration(i)*gap, max(now, dawn+hint+window)), now, i)
			}
			c.Answer(p.Permit, cool.Answer{Sent: now, Good: true}, now)
		}
		assert.True(t, c.Open(request("/"), now), "all are answered")
	}
}

// A refusal costs budget only where the hint was kept, and nothing was answered well since.
func TestARefusalAfterAHintThatWasKeptIsNotFree(t *testing.T) {
	end := dawn + sec
	for name, test := range map[string]struct {
		sent, good time.Duration
		waits      bool
		want       bool
	}{
		"sent before the end": {end, 0, false, true},
		"sent after it":       {end + 1, 0, false, false},
		"answered well since": {end + 1, end, false, true},
		"answered before":     {end + 1, end - 1, false, false},
		"others wait":         {end + 1, 0, true, true},
	} {
		var c cool.CoolDown
		assert.True(t, c.Free(dawn), "the first refusal")
		c.Post(dawn, sec, cool.Interval{})
		if test.good > 0 {
			c.Good(test.good)
		}
		if test.waits {
			c.Join(&cool.Waiter{Called: dawn, Since: dawn, MaxWait: sec, Deadline: dawn + sec}, dawn)
		}
		assert.Equal(t, test.want, c.Free(test.sent), name)
	}
}

// The server refuses all, although each hint is kept.
func TestASeriesOfRefusalsEndsTheWait(t *testing.T) {
	for name, test := range map[string]struct {
		closures int
		hint     time.Duration
		good     bool // an answer in between
		attempts int
		maxWait  time.Duration
		late     bool
	}{
		"one closure":             {1, 2 * sec, false, 0, 3 * sec, false},
		"within MaxWait":          {2, 2 * sec, false, 0, 30 * sec, false},
		"within five hints":       {5, 2 * sec, false, 0, 3 * sec, false},
		"more than five hints":    {6, 2 * sec, false, 0, 3 * sec, true},
		"longer than MaxWait":     {16, 2 * sec, false, 0, 30 * sec, true},
		"a retry":                 {16, 2 * sec, false, 1, 30 * sec, false},
		"a good answer ended it":  {16, 2 * sec, true, 0, 30 * sec, false},
		"not longer than MaxWait": {14, 2 * sec, false, 0, 30 * sec, false},
	} {
		var c cool.CoolDown
		now := dawn
		for i := range test.closures {
			c.Post(now, test.hint, cool.Interval{})
			now += test.hint + 1
			if test.good && i == test.closures-2 {
				c.Good(now)
			}
		}
		now -= test.hint
		w := &cool.Waiter{Called: now, Since: now, Attempts: test.attempts, MaxWait: test.maxWait, Deadline: now + time.Hour}
		c.Join(w, now)
		assert.Equal(t, test.late, c.Ask(w, now).Late, name)
	}
}

// Many have come meanwhile: the line is spread over as long as the series lasted.
func TestTheLineOfASeriesIsSpread(t *testing.T) {
	var c cool.CoolDown
	now := dawn
	for range 4 {
		c.Post(now, sec, cool.Interval{})
		now += sec + 1
	}
	var all []*cool.Waiter
	for i := range 11 {
		w := &cool.Waiter{Called: dawn + time.Duration(i), Since: now, MaxWait: time.Minute, Deadline: now + time.Hour, Wake: make(chan struct{}, 1)}
		require.True(t, c.Join(w, now))
		all = append(all, w)
	}
	first := c.Ask(all[0], now)
	if !first.Permit.Given() {
		now += first.AskAgain
		first = c.Ask(all[0], now)
	}
	require.True(t, first.Permit.Given())
	c.Answer(first.Permit, cool.Answer{Sent: now, Good: true}, now)
	place := (now - dawn) / 10
	for i, w := range all[1:] {
		p := c.Ask(w, now)
		require.InDelta(t, place, p.AskAgain, 20, i)
		now += p.AskAgain
		p = c.Ask(w, now)
		require.True(t, p.Permit.Given())
		c.Answer(p.Permit, cool.Answer{Sent: now, Good: true}, now)
	}
}

// The server says that three units are left: so many go at once, the others at its interval. A closure takes
// them back.
func TestUnitsThatAreLeftShortenTheWait(t *testing.T) {
	for name, test := range map[string]struct {
		closed bool
		want   []time.Duration
	}{
		"left":         {false, []time.Duration{0, 0, 0, 100 * ms, 200 * ms}},
		"closed again": {true, []time.Duration{sec, sec + 100*ms, sec + 200*ms, sec + 300*ms, sec + 400*ms}},
	} {
		var c cool.CoolDown
		c.Post(dawn, sec, cool.BoardInterval(100*ms))
		var all []*cool.Waiter
		for i := range 6 {
			w := &cool.Waiter{Called: dawn + time.Duration(i), Since: dawn, MaxWait: time.Minute, Deadline: dawn + time.Hour, Wake: make(chan struct{}, 1)}
			require.True(t, c.Join(w, dawn))
			all = append(all, w)
		}
		now := dawn + 2*sec
		first := c.Ask(all[0], now)
		require.True(t, first.Permit.Given())
		c.Answer(first.Permit, cool.Answer{Sent: now, Good: true, Limits: []ratelimit.Limit{{Remaining: 4}}}, now) // one may be lost
		if test.closed {
			c.Post(now, sec, cool.Interval{})
		}
		for i, w := range slices.Backward(all[1:]) { // the first in line would go, so it asks last
			assert.Equal(t, test.want[i], c.Ask(w, now).Wait, name)
		}
	}
}

func TestTheLineOfAKeyIsBounded(t *testing.T) {
	var c cool.CoolDown
	c.Post(dawn, sec, cool.Interval{})
	for range cool.LongestLine {
		require.True(t, c.Join(&cool.Waiter{Called: dawn}, dawn))
	}
	assert.False(t, c.Join(&cool.Waiter{Called: dawn}, dawn))
}

func TestAHugeMaxWaitDoesNotOverflow(t *testing.T) {
	var c cool.CoolDown
	c.Post(dawn, sec, cool.Interval{})
	w := &cool.Waiter{Since: dawn, MaxWait: math.MaxInt64, Deadline: math.MaxInt64}
	c.Join(w, dawn)
	assert.False(t, c.Ask(w, dawn).Late)
}
