package cool

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An Outage is what is known of one host: whether it answers, and since when it does not.
//
//   - Evidence. A failure is a dial or look-up that failed, or a response which says that nobody is
//     there. A good answer is one of a server that works, a refusal too. The rest says neither, and nor
//     does a late answer, to a request that was sent before the first failure.
//   - The host is down if its latest answers are all failures, so many and for so long that this is no
//     chance. What fails for a part of the requests, or on one route only, is no outage.
//   - While it is down, requests wait in line. One at a time is sent as a probe, or another one if that
//     is silent for a second, at distances that grow. Requests that were never sent go first: they cost
//     nobody a retry.
//   - The first good answer opens the host. So does a probe that was not turned away: it got another
//     answer, or is silent for longer than failures take.
//   - The line is released evenly over as long as the first in line has waited, while new requests go
//     at once. Together that is twice the ordinary load.
//   - A request whose patience ends leaves the line, and is sent nevertheless if it never was. Patience
//     shrinks in an outage that lasts, until each request is sent at once.
//
// The zero Outage belongs to a host of which nothing is known. It is safe for concurrent use; do not
// copy it. While the host is up, a good answer takes no lock, even if other requests fail.
type Outage struct {
	state  atomic.Int32
	streak atomic.Int32 // good answers since the last failure, up to steadyStreak
	good   atomic.Int64 // when an answer last was good: exact after a failure, else to a second
	failed atomic.Int64 // when the first of the failures in a row came
	sent   atomic.Int64 // requests that Holds let through since then
	opened atomic.Int64 // when the last outage ended
	routes routes

	mu       sync.Mutex // guards the fields below, and changes of state
	failures failures
	round    int           // counts outages, their ends and probes
	since    time.Duration // when the outage began
	probeAt  time.Duration // when the next probe may go
	probed   time.Duration // when the last one was sent
	probes   []probe       // those under way, the oldest first
	line     line          // by when calls began
	release  release
}

// A probe is a request that was sent while the host is down.
type probe struct {
	round int // of its Permit
	sent  time.Duration
}

// States of an Outage.
const (
	hostUp        = iota // no request waits
	hostReleasing        // no new request waits, but the line is not empty yet
	hostSuspect          // it may be down: the next request or good answer must look closer
	hostDown
)

func (o *Outage) isDown() bool { return o.state.Load() == hostDown }

const (
	// Between two probes. If a tenth of the requests is answered well, the first five seconds find one.
	shortestDistance = 50 * time.Millisecond
	earlyDistance    = 200 * time.Millisecond
	earlyFor         = 5 * time.Second
	longestDistance  = time.Second
	// To one that costs a retry: requests that cost none may come first. To one that uses up the last
	// attempt of its call. To one of a call that cannot pay: somebody must probe.
	paidDistance = 3 * time.Second
	lastDistance = 5 * time.Second
	freeDistance = 10 * time.Second

	youngFor = 30 * time.Second // patience is whole for so long
)

// byCall is the order of an Outage's line.
func byCall(a, b *Waiter) int { return cmp.Compare(a.Called, b.Called) }

// Good records a good answer to a request that was sent at a time, with p. routeOf is only called where
// routes matter.
func (o *Outage) Good(req *http.Request, routeOf func(*http.Request) Route, p Permit, sent, now time.Duration) {
	if int64(sent) < o.failed.Load() {
		o.Unclear(p, true, now)
		return
	}
	streak := o.streak.Load()
	if streak < steadyStreak {
		o.streak.Add(1)
	}
	if streak < steadyStreak || int64(now)-o.good.Load() > int64(time.Second) {
		o.good.Store(int64(now))
	}
	if !p.Given() && o.state.Load() <= hostReleasing && !(o.routes.any() && o.routes.broken(routeOf(req))) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.routes.goodLocked(routeOf(req))
	o.answeredLocked(p, true, now)
	if o.isDown() {
		o.openLocked(now)
		return
	}
	o.setUpLocked()
	o.wakeNextLocked()
}

// GoodSince reports whether a good answer came after a time. It may miss those of the last second, but
// none that came after a failure.
func (o *Outage) GoodSince(t time.Duration) bool { return time.Duration(o.good.Load()) > t }

// Failed records that a request, which was sent with p, failed after it took some time. dial says that it
// could not be sent.
func (o *Outage) Failed(route Route, p Permit, dial bool, took, now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answeredLocked(p, false, now)
	defer o.wakeNextLocked()
	several := false // failures of this route, which may be the only one
	if !dial {
		if o.routes.broken(route) {
			return // others are answered: this says nothing of the host
		}
		several = o.routes.failedLocked(route)
	}
	if o.failures.add(o.streak.Swap(0), o.isDown(), dial, max(now-took, time.Duration(o.good.Load())), now) {
		o.failed.Store(int64(now))
		o.sent.Store(0)
	}
	o.failures.slowest = max(took, o.failures.slowest/2)
	if !o.isDown() && (several || o.failures.count >= fewest) {
		o.state.Store(hostSuspect)
	}
	o.judgeLocked(now)
}

// Return takes back p, whose request was not sent.
func (o *Outage) Return(p Permit, now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answeredLocked(p, false, now)
	o.wakeNextLocked()
}

// Unclear records that a request with p had an outcome that says neither. answered says that there was a
// response.
func (o *Outage) Unclear(p Permit, answered bool, now time.Duration) {
	if !p.Given() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answeredLocked(p, false, now) && answered {
		o.notTurnedAwayLocked(now)
		return
	}
	o.wakeNextLocked()
}

// notTurnedAwayLocked opens the host although there was no good answer.
func (o *Outage) notTurnedAwayLocked(now time.Duration) {
	o.streak.Store(steadyStreak) // its next failures are a new outage
	o.openLocked(now)
}

// judgeLocked closes the host if its failures show that it is down. It forgets an outage of which nothing
// was heard for long.
func (o *Outage) judgeLocked(now time.Duration) {
	f := &o.failures
	switch {
	case o.isDown() && len(o.line) == 0 && now-f.last > forgetAfter:
		f.count, o.probes = 0, nil
		o.round++
		o.setUpLocked()
	case !o.isDown() && o.streak.Load() == 0 && now-f.last <= staleAfter && f.showOutage(now, int(o.sent.Load())):
		o.since, o.probed, o.probes = f.began, f.last, nil
		o.round++
		o.state.Store(hostDown)
		o.probeAt = f.last + o.distanceLocked(f.last)
		o.wakeNextLocked()
	}
}

// distanceLocked is the time from one probe to the next. It is drawn at random, so that many processes do
// not probe in step.
func (o *Outage) distanceLocked(now time.Duration) time.Duration {
	age := now - o.since
	d := min(max(age/2, shortestDistance), earlyDistance)
	if age > earlyFor {
		d = min(d+(age-earlyFor)/2, longestDistance)
	}
	return d - Uniform(d/2)
}

// openLocked begins the release.
func (o *Outage) openLocked(now time.Duration) {
	o.opened.Store(int64(now))
	o.round++
	o.probes = nil
	o.setUpLocked()
	o.release = release{more: 1}
	// Where nobody has probed for long, the host may have been up since the last failure.
	window := min(now, o.failures.last+longestDistance) - o.since
	if len(o.line) > 0 {
		window = min(window, now-o.line[0].Called) // in a long outage, the first of them gave up
	}
	o.release.beginAfter(now, window, len(o.line))
	o.wakeNextLocked()
}

// setUpLocked sets the state of a host that is up.
func (o *Outage) setUpLocked() {
	if len(o.line) > 0 {
		o.state.Store(hostReleasing)
	} else {
		o.state.Store(hostUp)
	}
}

// answeredLocked records the outcome of a request with p. It reports whether that was a probe of the
// present outage.
func (o *Outage) answeredLocked(p Permit, good bool, now time.Duration) (probed bool) {
	if !p.Probe {
		if p.Given() && p.round == o.round {
			o.release.unanswered--
			if good {
				o.release.answer()
			}
		}
		return false
	}
	at := slices.IndexFunc(o.probes, func(sent probe) bool { return sent.round == p.round })
	if at < 0 {
		return false
	}
	o.probes = slices.Delete(o.probes, at, at+1)
	if len(o.probes) == 0 {
		o.probeAt = now + o.distanceLocked(now)
	}
	return true
}

// Down reports whether nobody reaches the host.
func (o *Outage) Down(now time.Duration) bool {
	if o.state.Load() <= hostReleasing {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judgeLocked(now)
	return o.isDown()
}

// SuspectUntil returns when the host counts as down if nobody gets a good answer until then. It is 0 if
// there is no reason to wait for that: too few failures, good ones between them, or it is down already.
func (o *Outage) SuspectUntil() time.Duration {
	if o.state.Load() != hostSuspect {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := &o.failures
	if o.streak.Load() > 0 || !f.showOutage(f.first+shortestQuiet, int(o.sent.Load())) {
		return 0
	}
	return f.first + shortestQuiet
}

// Holds reports whether a call that began at a time must wait in line: the host is down, or the call began
// before it was up again and the line is not empty yet. Otherwise the call is sent now.
func (o *Outage) Holds(called, now time.Duration) bool {
	state := o.state.Load()
	if state != hostUp && (state != hostReleasing || o.before(called)) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.judgeLocked(now)
		if o.holdsLocked(called) {
			return true
		}
	}
	if o.streak.Load() < steadyStreak {
		o.sent.Add(1)
	}
	return false
}

// before reports whether a call began before the last outage ended.
func (o *Outage) before(called time.Duration) bool { return int64(called) < o.opened.Load() }

func (o *Outage) holdsLocked(called time.Duration) bool {
	return o.isDown() || len(o.line) > 0 && o.before(called)
}

// Patience returns until when a call waits for the host: for most, less half of what the outage had lasted
// longer than half a minute when the call began.
func (o *Outage) Patience(called, most time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isDown() {
		most = max(0, most-max(0, called-o.since-youngFor)/2)
	}
	return After(called, most)
}

// Join puts w in line. owes says that it costs its call a retry to be a probe. It returns false if w need not
// wait, or if the line is full.
func (o *Outage) Join(w *Waiter, owes bool, now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judgeLocked(now)
	if !o.holdsLocked(w.Called) || len(o.line) >= LongestLine {
		return false
	}
	w.owes = owes
	o.line.insert(w, byCall)
	if !o.isDown() {
		o.release.divide(now, len(o.line))
		o.wakeNextLocked()
	}
	return true
}

// Leave removes w from the line, if it is still there.
func (o *Outage) Leave(w *Waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := o.line.index(w); at >= 0 {
		o.removeLocked(at)
	}
}

func (o *Outage) removeLocked(at int) {
	o.line.remove(at)
	if len(o.line) == 0 && o.state.Load() == hostReleasing {
		o.state.Store(hostUp)
	}
	o.wakeNextLocked()
}

// A Turn says what a waiter may do.
type Turn struct {
	Permit Permit        // it may be sent
	Pay    bool          // it may be a probe if it pays: tell by Pay whether it did, and ask again
	Over   bool          // it has waited for as long as it may, and is no longer in line
	Last   bool          // and nobody else is: nobody would have noticed that the host is up
	Again  time.Duration // otherwise: when it must ask again at the latest
}

// Ask returns what w, which must be in line, may do.
func (o *Outage) Ask(w *Waiter, now time.Duration) Turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now >= o.silentAtLocked() {
		o.notTurnedAwayLocked(now)
	}
	at, again := o.line.index(w), w.Patience
	if now >= again {
		o.removeLocked(at)
		return Turn{Over: true, Last: len(o.line) == 0}
	}
	next, from := o.nextLocked(now)
	switch {
	case at == next && now >= from && o.isDown() && w.owes && !w.broke:
		return Turn{Pay: true}
	case at == next && now >= from:
		return Turn{Permit: o.releaseLocked(at, from, now)}
	case at == next:
		again = min(again, from)
	}
	if at == 0 {
		again = min(again, o.silentAtLocked())
	}
	return Turn{Again: again}
}

// Pay records whether w, which has to pay to be a probe, did.
func (o *Outage) Pay(w *Waiter, paid bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.owes, w.broke = !paid, !paid
}

// silentAtLocked is when a probe has been silent for so long that it was not turned away.
func (o *Outage) silentAtLocked() time.Duration {
	if !o.isDown() || len(o.probes) == 0 {
		return longest
	}
	return o.probes[0].sent + max(longestSilence, 2*o.failures.slowest)
}

// nextLocked is the index of the waiter that goes next, and when: the first in line or, while the host
// is down, the prober. It is -1 if there is none.
func (o *Outage) nextLocked(now time.Duration) (at int, from time.Duration) {
	switch {
	case o.isDown():
		return o.proberLocked()
	case len(o.line) == 0:
		return -1, 0
	}
	return 0, max(o.release.due(now, 0), o.release.silentUntil())
}

// proberLocked is the waiter that can be a probe first. Of several, it is the cheapest, and of those the
// newest.
func (o *Outage) proberLocked() (at int, from time.Duration) {
	at = -1
	for i := len(o.line) - 1; i >= 0; i-- {
		w := o.line[i]
		ready := max(o.probeAt, w.ProbeFrom)
		switch {
		case w.broke:
			ready = max(ready, o.probed+freeDistance)
		case w.LastAttempt:
			ready = max(ready, o.probed+lastDistance)
		case w.Attempts > 0:
			ready = max(ready, o.probed+paidDistance)
		}
		if at >= 0 && (ready > from || ready == from && w.price() >= o.line[at].price()) {
			continue
		}
		if at, from = i, ready; w.Attempts == 0 && ready == o.probeAt {
			break // no other can be better
		}
	}
	return at, from
}

func (o *Outage) releaseLocked(at int, due, now time.Duration) Permit {
	probes := o.isDown()
	if probes {
		o.round++
		o.probes = append(o.probes, probe{o.round, now})
		o.probed, o.probeAt = now, now+longestSilence
	} else {
		o.release.sent(max(due, now-lateness))
	}
	o.removeLocked(at)
	return Permit{o.round, probes}
}

// wakeNextLocked wakes the waiter that goes next, and the first in line, who looks whether a probe is silent:
// their time may come sooner than they know.
func (o *Outage) wakeNextLocked() {
	if len(o.line) == 0 {
		return
	}
	if !o.isDown() || len(o.probes) > 0 {
		o.line[0].wake()
	}
	if at, _ := o.proberLocked(); o.isDown() && at >= 0 {
		o.line[at].wake()
	}
}

// Waiting reports whether requests are in line.
func (o *Outage) Waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.line) > 0
}

// Idle reports whether o holds nothing worth keeping, but for what AnsweredLately says.
func (o *Outage) Idle(now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.line) == 0 && now-o.failures.last > forgetAfter
}

// AnsweredLately reports whether the host gave a good answer within ten minutes.
func (o *Outage) AnsweredLately(now time.Duration) bool {
	good := time.Duration(o.good.Load())
	return good > 0 && now-good < 10*time.Minute
}
