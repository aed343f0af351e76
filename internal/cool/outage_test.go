package cool_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/cool"
)

// plays gives the answers of a timeline: "0 ggg 5 df" is three good answers at 0 ms, and a failed dial and a
// failure at 5 ms. An l is a good answer to a request that was sent before all, an s is one that is sent. It
// returns the first millisecond at which the host is down, and the one from which it is if nothing more
// comes, as it is known after the last answer; or -1.
func plays(t *testing.T, timeline string) (down, suspect int) {
	var o cool.Outage
	answers, last := map[int]string{}, 0
	for f := strings.Fields(timeline); len(f) > 1; f = f[2:] {
		_, err := fmt.Sscan(f[0], &last)
		require.NoError(t, err)
		answers[last] += f[1]
	}
	suspect = -1
	for at := range 12_000 {
		now := dawn + time.Duration(at)*ms
		for _, a := range answers[at] {
			switch a {
			case 'g':
				reply(&o, "/", cool.Permit{}, now)
			case 'l':
				o.Good(nil, anyRoute, cool.Permit{}, dawn, now)
			case 's':
				o.Holds(now, now)
			default:
				o.Failed(route("/"), cool.Permit{}, a == 'd', ms, now)
			}
		}
		if until := o.SuspectUntil(); at == last && until > 0 {
			suspect = int((until - dawn) / ms)
		}
		if o.Down(now) {
			return at, suspect
		}
	}
	return -1, suspect
}

func TestAHostIsDownAfterFailuresThatAreNoChance(t *testing.T) {
	f := func(n int) string { return strings.Repeat("f", n) }
	s := func(n int) string { return strings.Repeat("s", n) }
	for _, test := range []struct {
		timeline      string
		down, suspect int
	}{
		{"0 ggg 1 ddd", 101, 101},
		{"0 ggg 1 dd 50 d", 101, 101},
		{"0 ggg 1 dd 500 d", 500, -1},
		{"0 ggg 1 dd", -1, -1},
		{"0 ggg 1 ddf", 1001, -1},
		{"0 ggg 1 fff", 1001, -1},
		{"0 ggg 1 ff", -1, -1},
		{"0 ggg 1 " + f(4), 1001, -1},
		{"0 ggg 1 " + f(5), 301, -1},
		{"0 ggg 1 " + f(9), 301, -1},
		{"0 ggg 1 " + f(10), 101, 101},
		{"1 ddd", 101, 101}, // of a host of which nothing is known
		{"0 ggg 1 dd 50 g 51 dd", -1, -1},
		{"0 ggg 1 f 2 g 3 f 4 g 5 f 6 g", -1, -1},
		{"0 ggg 1 " + f(10) + " 2 g", -1, -1},
		{"0 ggg 1 " + f(10) + " 2 l", 101, 101},
		{"0 ggg 1 f 2 g 501 fff", 1501, -1}, // it worked well half a second before
		{"0 ggg 1 f 2 g 502 fff", -1, -1},
		{"0 ggg 1 f 2 gg 600 " + f(30), 5600, -1},
		{"0 ggg 1 f 2 gg 600 " + f(29), -1, -1},
		{"0 ggg 1 f 2 ggg 600 " + f(10), 700, 700},
		{"0 ggg 1 " + f(10) + " 2 " + s(21), 101, 101}, // of 31, ten were turned away
		{"0 ggg 1 " + f(10) + " 2 " + s(22), -1, -1},
		{"0 ggg 1 " + f(10) + " 2 " + s(22) + " 50 f", 101, 101},
		{"0 ggg 1 ff 2 " + s(20) + " 3 " + f(8), 101, 101},
		{"0 ggg 1 ff 2 " + s(22) + " 3 " + f(8), -1, -1},
		{"0 ggg 1 " + f(10) + " 2 " + s(30) + " 3 g 4 " + f(10), 104, 104},
	} {
		down, suspect := plays(t, test.timeline)
		assert.Equal(t, test.down, down, test.timeline)
		assert.Equal(t, test.suspect, suspect, test.timeline)
	}
}

// reply gives o a good answer to a request that was sent just now.
func reply(o *cool.Outage, path string, p cool.Permit, now time.Duration) {
	o.Good(nil, func(*http.Request) cool.Route { return route(path) }, p, now, now)
}

// lower makes the host of o fail at a time, as a host that is down since then.
func lower(o *cool.Outage, at time.Duration) {
	for range 10 {
		o.Failed(route("/"), cool.Permit{}, true, 0, at)
	}
}

// waiter is one whose call began at a time and who waits for ten seconds.
func waiter(called time.Duration) *cool.Waiter {
	return &cool.Waiter{Called: called, Patience: called + 10*sec, Wake: make(chan struct{}, 1)}
}

// join puts waiters in line.
func join(t *testing.T, o *cool.Outage, now time.Duration, waiters ...*cool.Waiter) {
	t.Helper()
	for _, w := range waiters {
		require.True(t, o.Join(w, false, now))
	}
}

// drain takes what woke w.
func drain(w *cool.Waiter) {
	select {
	case <-w.Wake:
	default:
	}
}

// probe sends w as a probe, as soon as it may be one, and returns when.
func probe(t *testing.T, o *cool.Outage, w *cool.Waiter, now time.Duration) (cool.Permit, time.Duration) {
	t.Helper()
	turn := o.Ask(w, now)
	if !turn.Permit.Given() {
		now = turn.Again
		turn = o.Ask(w, now)
	}
	require.True(t, turn.Permit.Probe)
	return turn.Permit, now
}

func TestProbesComeAtDistancesThatGrow(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	last := dawn
	for range 60 {
		now := last + 100*ms
		w := waiter(now)
		join(t, &o, now, w)
		p, at := probe(t, &o, w, now)
		age := last - dawn
		longest := min(max(age/2, 50*ms), 200*ms)
		if age > 5*sec {
			longest = min(200*ms+(age-5*sec)/2, sec)
		}
		if at > now { // else it came too late to see
			assert.GreaterOrEqual(t, at-last, longest/2, age)
		}
		assert.LessOrEqual(t, at-last, max(longest, 100*ms), age)
		if last = at; o.Down(at) {
			o.Failed(route("/"), p, true, 0, at)
		}
	}
	assert.Greater(t, last-dawn, 15*sec)
}

// The line is released over as long as the outage is known to have lasted, and the first in line to have waited.
func TestALineIsReleasedEvenlyOverTheOutage(t *testing.T) {
	for name, test := range map[string]struct{ failed, called, end, want time.Duration }{
		"it lasted until the end":           {1500 * ms, 0, 2 * sec, 2 * sec},
		"nobody probed for a second":        {400 * ms, 0, 2 * sec, 1400 * ms},
		"the first waited half the time":    {9500 * ms, 5 * sec, 10 * sec, 5 * sec},
		"a minute, with waits of a quarter": {time.Minute, 45 * sec, time.Minute, 15 * sec},
	} {
		var o cool.Outage
		lower(&o, dawn)
		o.Failed(route("/"), cool.Permit{}, true, 0, dawn+test.failed)
		end := dawn + test.end
		var all []*cool.Waiter
		for range 20 { // of calls that began together, the first in line goes first
			w := waiter(dawn + test.called)
			w.Patience = end + time.Minute
			all = append(all, w)
		}
		join(t, &o, end-ms, all...)
		reply(&o, "/", cool.Permit{}, end)
		for i, w := range all {
			turn := o.Ask(w, end)
			due := end + test.want*time.Duration(i+1)/20
			require.Equal(t, due, turn.Again, name)
			assert.False(t, o.Ask(w, due-1).Permit.Given())
			turn = o.Ask(w, due)
			require.True(t, turn.Permit.Given())
			assert.False(t, turn.Permit.Probe)
			reply(&o, "/", turn.Permit, due)
		}
		assert.False(t, o.Waiting())
	}
}

// Silence of a second counts as answers.
func TestUnansweredReleasesDouble(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	end := dawn + 101*ms
	var all []*cool.Waiter
	for i := range 15 {
		w := waiter(end - time.Duration(15-i)*ms)
		all = append(all, w)
	}
	join(t, &o, end-ms, all...)
	reply(&o, "/", cool.Permit{}, end)
	counts := map[int]int{}
	now := end
	for _, w := range all {
		turn := o.Ask(w, now)
		if !turn.Permit.Given() {
			now = turn.Again
			turn = o.Ask(w, now)
		}
		require.True(t, turn.Permit.Given())
		counts[int((now-end)/sec)]++
	}
	assert.Equal(t, map[int]int{0: 2, 1: 2, 2: 4, 3: 7}, counts)
}

func TestAnswersToAnEarlierRoundChangeNothing(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	a, b, c := waiter(dawn), waiter(dawn+1), waiter(dawn+2)
	end := dawn + 2*sec
	join(t, &o, end, a, b, c)
	reply(&o, "/", cool.Permit{}, end)
	turn := o.Ask(a, end+sec)
	require.True(t, turn.Permit.Given())
	again := end + 4*sec
	for range 3 {
		reply(&o, "/", cool.Permit{}, again)
	}
	lower(&o, again) // with b and c in line
	require.True(t, o.Down(again+100*ms))
	reply(&o, "/", cool.Permit{}, again+sec)
	d := waiter(again)
	join(t, &o, again+sec, d)
	require.True(t, o.Ask(b, again+2*sec).Permit.Given())
	require.True(t, o.Ask(c, again+2*sec).Permit.Given())
	reply(&o, "/", turn.Permit, again+2*sec)
	assert.False(t, o.Ask(d, again+2*sec).Permit.Given(), "two are unanswered, and the probe was answered")
}

func TestWhoIsAProbe(t *testing.T) {
	type waits struct {
		cool.Waiter
		owes, broke bool
	}
	fresh := waits{}
	sent := waits{Waiter: cool.Waiter{Attempts: 1}}
	last := waits{Waiter: cool.Waiter{Attempts: 1, LastAttempt: true}}
	broke := waits{last.Waiter, true, true}
	later := func(d time.Duration) waits { return waits{Waiter: cool.Waiter{ProbeFrom: dawn + d}} }
	for name, test := range map[string]struct {
		first, second waits
		at            time.Duration // since the host failed
		want          int           // of the two, or 0 for none
	}{
		"the newest":                    {fresh, fresh, sec, 2},
		"who was not sent":              {fresh, sent, 9 * sec, 1},
		"who may be one now":            {fresh, later(2 * sec), sec, 1},
		"the one that was sent least":   {sent, waits{Waiter: cool.Waiter{Attempts: 2}}, 3 * sec, 1},
		"who has paid":                  {sent, waits{sent.Waiter, true, false}, 3 * sec, 1},
		"nobody, for a retry":           {sent, last, 3*sec - 1, 0},
		"a retry":                       {sent, last, 3 * sec, 1},
		"nobody, for their last try":    {last, broke, 5*sec - 1, 0},
		"who has one try left":          {last, broke, 5 * sec, 1},
		"nobody, if none can pay":       {broke, broke, 10*sec - 1, 0},
		"the newest, if none can pay":   {broke, broke, 10 * sec, 2},
		"the first, if the other waits": {broke, later(11 * sec), 10 * sec, 1},
	} {
		var o cool.Outage
		lower(&o, dawn)
		waiters := []*waits{&test.first, &test.second}
		for i, w := range waiters {
			w.Called, w.Patience, w.Wake = dawn+time.Duration(i), dawn+time.Minute, make(chan struct{}, 1)
			require.True(t, o.Join(&w.Waiter, w.owes, dawn+sec))
			if w.broke {
				o.Pay(&w.Waiter, false)
			}
		}
		got := 0
		for i, w := range waiters {
			if turn := o.Ask(&w.Waiter, dawn+test.at); turn.Permit.Probe || turn.Pay {
				assert.Zero(t, got, name)
				assert.False(t, turn.Pay, name)
				got = i + 1
			}
		}
		assert.Equal(t, test.want, got, name)
	}
}

// Three seconds after the last probe a retry may be one too.
func TestAProbeThatCostsARetryIsRare(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	w := waiter(dawn)
	join(t, &o, dawn+100*ms, w)
	p, at := probe(t, &o, w, dawn+100*ms)
	o.Failed(route("/"), p, false, 0, at)
	w.Attempts = 1
	join(t, &o, at, w)
	assert.Equal(t, at+3*sec, o.Ask(w, at).Again)
}

func TestASilentProbeOpensTheHost(t *testing.T) {
	for took, silence := range map[time.Duration]time.Duration{ms: sec, 400 * ms: sec, 2 * sec: 4 * sec} {
		var o cool.Outage
		for range 10 {
			o.Failed(route("/"), cool.Permit{}, false, took, dawn)
		}
		a, b := waiter(dawn), waiter(dawn+1)
		b.LastAttempt = true
		join(t, &o, dawn+500*ms, b, a)
		_, at := probe(t, &o, a, dawn+500*ms)
		o.Ask(b, at+silence-1)
		assert.True(t, o.Down(at+silence-1))
		o.Ask(b, at+silence)
		assert.False(t, o.Down(at+silence))
		assert.False(t, o.AnsweredLately(at+silence))
		lower(&o, at+silence)
		assert.True(t, o.Down(at+silence+100*ms), "the evidence begins anew")
	}
}

// A probe that was answered was not turned away, whatever the answer says, also an earlier one.
func TestAnAnsweredProbeOpensTheHost(t *testing.T) {
	for name, test := range map[string]struct{ earlier, answered, down bool }{
		"answered":       {false, true, false},
		"no response":    {false, false, true},
		"an earlier one": {true, true, false},
	} {
		var o cool.Outage
		for range 10 {
			o.Failed(route("/"), cool.Permit{}, false, 3*sec, dawn)
		}
		a, b := waiter(dawn), waiter(dawn+1)
		join(t, &o, dawn+sec, a, b)
		p, at := probe(t, &o, b, dawn+sec)
		if test.earlier {
			_, at = probe(t, &o, a, at)
		}
		o.Unclear(p, test.answered, at)
		assert.Equal(t, test.down, o.Down(at), name)
		assert.False(t, o.GoodSince(0), name)
		lower(&o, at)
		assert.True(t, o.Down(at+100*ms), name)
	}
}

// A turn that is given back goes to the next one.
func TestAProbeThatWasNotSentIsGivenBack(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	a, b := waiter(dawn), waiter(dawn+1)
	join(t, &o, dawn+4*sec, a, b)
	p, at := probe(t, &o, b, dawn+4*sec)
	require.Equal(t, at+sec, o.Ask(a, at).Again, "it looks whether the probe is silent")
	drain(a)
	o.Return(p, at)
	assert.NotEmpty(t, a.Wake)
	again := o.Ask(a, at).Again
	assert.GreaterOrEqual(t, again, at+100*ms)
	assert.LessOrEqual(t, again, at+200*ms)
}

func TestPatienceShrinksInAnOutageThatLasts(t *testing.T) {
	var o cool.Outage
	o.Failed(route("/"), cool.Permit{}, false, sec, dawn+sec) // sent at dawn
	lower(&o, dawn+sec)
	assert.Equal(t, dawn+100*sec, o.Patience(dawn+90*sec, 10*sec), "nobody knows yet")
	require.True(t, o.Down(dawn+2*sec))
	for age, want := range map[time.Duration]time.Duration{
		0: 10 * sec, 30 * sec: 10 * sec, 32 * sec: 9 * sec, 40 * sec: 5 * sec, 50 * sec: 0, time.Hour: 0,
	} {
		assert.Equal(t, dawn+age+want, o.Patience(dawn+age, 10*sec), age)
	}
	reply(&o, "/", cool.Permit{}, dawn+100*sec)
	assert.Equal(t, dawn+100*sec, o.Patience(dawn+90*sec, 10*sec))
}

func TestAnOutageThatNobodyAsksAboutIsForgotten(t *testing.T) {
	var o cool.Outage
	assert.True(t, o.Idle(dawn))
	lower(&o, dawn)
	assert.False(t, o.Idle(dawn+time.Minute))
	assert.False(t, o.Down(dawn+10*sec+1), "it takes another failure")
	assert.True(t, o.Down(dawn+10*sec))
	assert.True(t, o.Down(dawn+time.Minute))
	w := waiter(dawn)
	join(t, &o, dawn+sec, w)
	assert.True(t, o.Down(dawn+time.Minute+1), "somebody waits")
	o.Leave(w)
	assert.False(t, o.Down(dawn+time.Minute+1))
	assert.False(t, o.Holds(dawn, dawn+time.Minute+1))
	assert.True(t, o.Idle(dawn+time.Minute+1))
	reply(&o, "/", cool.Permit{}, dawn+6*time.Minute)
	assert.True(t, o.AnsweredLately(dawn+16*time.Minute-1))
	assert.False(t, o.AnsweredLately(dawn+16*time.Minute))
	assert.True(t, o.GoodSince(dawn))
	assert.False(t, o.GoodSince(dawn+6*time.Minute))
}

func TestAFullLineHoldsNobody(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	require.True(t, o.Down(dawn+sec))
	for range cool.LongestLine {
		join(t, &o, dawn+sec, waiter(dawn))
	}
	assert.False(t, o.Join(waiter(dawn), false, dawn+sec))
}

// A route that fails while others are answered does not make the host down.
func TestABrokenRouteIsNoOutage(t *testing.T) {
	var o cool.Outage
	now := dawn
	fails := func(path string) {
		now += 20 * ms
		o.Failed(route(path), cool.Permit{}, false, ms, now)
	}
	answers := func(path string) {
		now += 20 * ms
		reply(&o, path, cool.Permit{}, now)
	}
	for range 3 {
		fails("/a")
	}
	answers("/b")
	for range 100 {
		fails("/a")
		assert.False(t, o.Down(now))
	}
	assert.False(t, o.Down(now+10*sec))
	answers("/a") // it counts again
	answers("/a")
	answers("/a")
	for range 10 {
		fails("/a")
	}
	assert.True(t, o.Down(now))
	answers("/b") // the host is up, and the route broken
	for range 10 {
		o.Failed(route("/a"), cool.Permit{}, true, 0, now) // a dial says something of the host
	}
	assert.True(t, o.Down(now+100*ms))
}

func TestTwoFailuresDoNotBreakARoute(t *testing.T) {
	var o cool.Outage
	for range 2 {
		o.Failed(route("/a"), cool.Permit{}, false, 0, dawn)
	}
	reply(&o, "/b", cool.Permit{}, dawn)
	reply(&o, "/b", cool.Permit{}, dawn)
	reply(&o, "/b", cool.Permit{}, dawn)
	for range 10 {
		o.Failed(route("/a"), cool.Permit{}, false, 0, dawn+sec)
	}
	assert.True(t, o.Down(dawn+sec+100*ms))
}

func TestNoLockIsTakenWhileTheHostIsUp(t *testing.T) {
	var o cool.Outage
	o.Failed(route("/"), cool.Permit{}, true, 0, dawn)
	defer o.Hold()()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			reply(&o, "/", cool.Permit{}, dawn+sec)
		}
		assert.False(t, o.Down(dawn+sec))
		assert.False(t, o.Holds(dawn, dawn+sec))
		assert.True(t, o.GoodSince(dawn))
		assert.True(t, o.AnsweredLately(dawn+sec))
		o.Unclear(cool.Permit{}, true, dawn+sec)
	}()
	select {
	case <-done:
	case <-time.After(10 * sec):
		t.Error("it waits for the lock")
	}
}

func TestASilentProbeWakesTheFirstInLine(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	a, b, c := waiter(dawn), waiter(dawn+1), waiter(dawn+2)
	join(t, &o, dawn+500*ms, a, b)
	_, at := probe(t, &o, b, dawn+500*ms)
	join(t, &o, at, c)
	drain(a)
	o.Ask(a, at)
	o.Ask(c, at)
	o.Ask(c, at+sec) // opens the host
	require.False(t, o.Down(at+sec))
	assert.NotEmpty(t, a.Wake)
}

func TestWhoBecomesTheFirstLooksForSilence(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	a, b, c, d := waiter(dawn), waiter(dawn+1), waiter(dawn+2), waiter(dawn+3)
	b.Attempts, c.Attempts = 2, 1
	join(t, &o, dawn+sec, a, b, c, d)
	_, at := probe(t, &o, d, dawn+sec)
	o.Ask(b, at)
	drain(b)
	o.Leave(a)
	assert.NotEmpty(t, b.Wake)
}

func TestTheFirstInLineLearnsThatItsPlaceIsSooner(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	a, b, c := waiter(dawn), waiter(dawn+1), waiter(dawn+2)
	join(t, &o, dawn+sec, a, b)
	reply(&o, "/", cool.Permit{}, dawn+sec)
	now := dawn + 1500*ms
	reply(&o, "/", o.Ask(a, now).Permit, now)
	require.Equal(t, dawn+2*sec, o.Ask(b, now).Again)
	drain(b)
	join(t, &o, now, c)
	assert.Equal(t, dawn+1750*ms, o.Ask(b, now).Again)
	assert.NotEmpty(t, b.Wake)
}

func TestALineLearnsThatTheHostIsDownAgain(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	a, b := waiter(dawn), waiter(dawn+1)
	join(t, &o, dawn+5*sec, a, b)
	reply(&o, "/", cool.Permit{}, dawn+5*sec)
	require.Equal(t, b.Patience, o.Ask(b, dawn+5*sec).Again)
	for range 3 {
		reply(&o, "/", cool.Permit{}, dawn+5*sec)
	}
	lower(&o, dawn+5*sec)
	drain(b)
	require.True(t, o.Down(dawn+6*sec))
	assert.NotEmpty(t, b.Wake, "it may be a probe")
}

func TestThoseWhoJoinARelease(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	end := dawn + 10*sec
	o.Failed(route("/"), cool.Permit{}, true, 0, end-ms)
	var all []*cool.Waiter
	for i := range 20 {
		w := waiter(dawn + time.Duration(i))
		w.Patience = dawn + time.Minute
		all = append(all, w)
	}
	join(t, &o, end-ms, all[:10]...)
	reply(&o, "/", cool.Permit{}, end)
	now := end + 500*ms
	join(t, &o, now, all[10:]...) // retries
	var released []time.Duration
	for _, w := range all {
		turn := o.Ask(w, now)
		if !turn.Permit.Given() {
			now = turn.Again
			turn = o.Ask(w, now)
		}
		require.True(t, turn.Permit.Given())
		released = append(released, now)
		reply(&o, "/", turn.Permit, now)
	}
	for i := range released[1:] {
		assert.GreaterOrEqual(t, released[i+1]-released[i], 400*ms, i)
	}
}

func TestALateProbeOfAnEarlierOutageChangesNothing(t *testing.T) {
	var o cool.Outage
	lower(&o, dawn)
	a := waiter(dawn)
	join(t, &o, dawn+500*ms, a)
	old, _ := probe(t, &o, a, dawn+500*ms)
	reply(&o, "/", cool.Permit{}, dawn+sec)
	for range 3 {
		reply(&o, "/", cool.Permit{}, dawn+2*sec)
	}
	lower(&o, dawn+2*sec)
	b, c := waiter(dawn+2*sec), waiter(dawn+2*sec)
	join(t, &o, dawn+3*sec, b, c)
	_, at := probe(t, &o, c, dawn+3*sec)
	o.Unclear(old, true, at)
	assert.Equal(t, at+sec, o.Ask(b, at).Again)
}

func TestAnAnswerToOneProbeSendsNoThird(t *testing.T) {
	var o cool.Outage
	for range 10 {
		o.Failed(route("/"), cool.Permit{}, false, 3*sec, dawn)
	}
	a, b, c := waiter(dawn), waiter(dawn), waiter(dawn)
	join(t, &o, dawn+sec, c, b, a)
	first, at := probe(t, &o, a, dawn+sec)
	_, second := probe(t, &o, b, at)
	require.Equal(t, at+sec, second)
	o.Failed(route("/"), first, false, 3*sec, second+ms)
	assert.Equal(t, second+sec, o.Ask(c, second+ms).Again)
}
