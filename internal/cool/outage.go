package cool

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/internal/scope"
)

// An Outage is what is known of one host: whether it answers, and since when it does not.
//
//   - Evidence. A failure is a dial or look-up that failed, or a response which says that nobody is
//     there: 502, 503, 504. A good answer is one below 500. The rest says neither.
//   - The host is down if its latest answers are all failures, so many and for so long that this is no
//     chance. What fails for a part of the requests, or on one route only, is no outage.
//   - While it is down, requests wait in line. One at a time is sent as a probe, at distances that
//     grow. Requests that were never sent go first: they cost nobody a retry.
//   - The first good answer opens the host. So does a probe that is silent for longer than failures
//     take: it was not turned away.
//   - The line is released evenly over as long as the outage lasted, while new requests go at once.
//     Together that is twice the ordinary load.
//   - A request whose patience ends leaves the line. Patience shrinks in an outage that lasts.
//
// The zero Outage belongs to a host of which nothing is known. It is safe for concurrent use; do not
// copy it. While the host is up no lock is taken, even if some requests fail.
type Outage struct {
	state  atomic.Int32
	streak atomic.Int32 // good answers since the last failure, up to steady
	good   atomic.Int64 // when an answer last was good: exact after a failure, else to a second
	opened atomic.Int64 // when the last outage ended
	routes routes

	mu       sync.Mutex // guards the fields below
	failures failures
	down     bool
	round    int           // counts outages and their ends: Permits of an earlier round are ignored
	since    time.Duration // when the outage began
	probeAt  time.Duration // when the next probe may go
	probed   time.Duration // when the last probe was sent, or the first of those under way
	probing  bool          // it is under way
	line     line          // by when calls began
	release  release
}

// States of an Outage.
const (
	up        = iota // no request waits
	releasing        // nor does a new one, but the line is not empty yet
	suspect          // it may be down: the next request or good answer must look closer
	down
)

const (
	shortestProbe = 50 * time.Millisecond // between two probes
	steadyProbe   = 200 * time.Millisecond
	steadyProbing = 5 * time.Second
	longestProbe  = time.Second
	paidProbe     = 3 * time.Second  // from the last one to one that costs a retry: new calls probe for nothing
	longestWindow = 10 * time.Second // of the release
	youngFor      = 30 * time.Second // so long patience is whole
)

// byCall is the order of an Outage's line.
func byCall(a, b *Waiter) int { return cmp.Compare(a.Called, b.Called) }

// Good records a good answer to req, which was sent with p.
func (o *Outage) Good(req *http.Request, p Permit, now time.Duration) {
	streak := o.streak.Load()
	if streak < steady {
		o.streak.Add(1)
	}
	if streak < steady || int64(now)-o.good.Load() > int64(time.Second) {
		o.good.Store(int64(now))
	}
	if !p.Given() && o.state.Load() <= releasing && !o.routes.broken(req) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.routes.answeredLocked(scope.Route(req))
	o.answeredLocked(p, true)
	if o.down {
		o.openLocked(now)
	} else {
		o.settleLocked()
	}
	o.wakeLocked()
}

// GoodSince reports whether a good answer came after a time. It knows of the failures in between.
func (o *Outage) GoodSince(t time.Duration) bool { return time.Duration(o.good.Load()) > t }

// Failed records that req, which was sent with p, failed after it took some time. dial says that it could
// not be sent.
func (o *Outage) Failed(req *http.Request, p Permit, dial bool, took, now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answeredLocked(p, false)
	if o.down && p.Probe {
		o.probeAgainLocked(now)
	}
	several := false // failures of this route, which may be the only one
	if !dial {
		if o.routes.broken(req) {
			o.wakeLocked()
			return // others are answered: this says nothing of the host
		}
		several = o.routes.failedLocked(scope.Route(req))
	}
	o.failures.add(o.streak.Swap(0), o.down, dial, took, now)
	if !o.down && (several || o.failures.count >= fewestSlowly) {
		o.state.Store(suspect)
	}
	o.judgeLocked(now)
	o.wakeLocked()
}

// Unclear records that req, which was sent with p, had an outcome that says neither.
func (o *Outage) Unclear(p Permit, now time.Duration) {
	if !p.Given() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answeredLocked(p, false)
	if o.down && p.Probe {
		o.probeAgainLocked(now)
	}
	o.wakeLocked()
}

// judgeLocked closes the host if its failures show that it is down, and forgets an outage that nobody has
// asked about for long.
func (o *Outage) judgeLocked(now time.Duration) {
	f := &o.failures
	if o.down && len(o.line) == 0 && now-f.last > forgetAfter {
		o.down, f.count = false, 0
		o.settleLocked()
	}
	if o.down || o.streak.Load() > 0 || !f.showOutage(now) {
		return
	}
	o.down, o.since, o.probing = true, f.began, false
	o.round++
	o.state.Store(down)
	o.probeAgainLocked(f.last)
}

// probeAgainLocked sets the time of the next probe after one that failed at a time.
func (o *Outage) probeAgainLocked(failed time.Duration) {
	o.probing, o.probeAt = false, failed+o.distanceLocked(failed)
}

// distanceLocked is the time from one probe to the next. It grows to a second, but not in the first five
// seconds: if one request in ten is answered well, they find one. Many processes do not probe in step.
func (o *Outage) distanceLocked(now time.Duration) time.Duration {
	age := now - o.since
	d := min(max(age/2, shortestProbe), steadyProbe)
	if age > steadyProbing {
		d = min(d+(age-steadyProbing)/2, longestProbe)
	}
	return d - Uniform(d/2)
}

func (o *Outage) openLocked(now time.Duration) {
	o.down = false
	o.opened.Store(int64(now))
	o.round++
	o.settleLocked()
	o.release = release{answered: 1}
	o.release.begin(now, min(now-o.since, longestWindow), len(o.line))
	o.release.first = now + o.release.gap // the probe had the first place, at a random time
}

// settleLocked sets the state of a host that is up.
func (o *Outage) settleLocked() {
	if len(o.line) > 0 {
		o.state.Store(releasing)
	} else {
		o.state.Store(up)
	}
}

// answeredLocked records the answer to a request that was released with p.
func (o *Outage) answeredLocked(p Permit, good bool) {
	if !p.Given() || p.round != o.round || p.Probe {
		return
	}
	o.release.unanswered--
	if good {
		o.release.answered++
	}
}

// Down reports whether nobody reaches the host.
func (o *Outage) Down(now time.Duration) bool {
	if o.state.Load() <= releasing {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judgeLocked(now)
	return o.down
}

// Holds reports whether a call that began at a time must wait in line: the host is down, or it was when
// the call began and the line is not empty yet.
func (o *Outage) Holds(called, now time.Duration) bool {
	state := o.state.Load()
	if state == up || state == releasing && !o.before(called) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judgeLocked(now)
	return o.holdsLocked(called)
}

// before reports whether a call began before the last outage ended.
func (o *Outage) before(called time.Duration) bool { return int64(called) < o.opened.Load() }

func (o *Outage) holdsLocked(called time.Duration) bool {
	return o.down || len(o.line) > 0 && o.before(called)
}

// Patience returns until when a call that began at a time waits for the host: for most, less half of what
// the outage had lasted longer than half a minute by then.
func (o *Outage) Patience(called, most time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		most = max(0, most-max(0, called-o.since-youngFor)/2)
	}
	return After(called, most)
}

// Join puts w in line. It returns false if w need not wait, or if the line is full.
func (o *Outage) Join(w *Waiter, now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judgeLocked(now)
	if !o.holdsLocked(w.Called) || len(o.line) >= LongestLine {
		return false
	}
	o.line.insert(w, byCall)
	if !o.down {
		o.release.gap = max(0, o.release.end-now) / time.Duration(len(o.line))
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
	if len(o.line) == 0 && o.state.Load() == releasing {
		o.state.Store(up)
	}
	o.wakeLocked()
}

// A Turn says what a waiter may do.
type Turn struct {
	Permit Permit        // it may be sent
	Over   bool          // it has waited for as long as it may, and is no longer in line
	Alone  bool          // and no other is: nobody else's probe would have opened the host
	Again  time.Duration // otherwise: when it must ask again at the latest
}

// Ask returns what w, which must be in line, may do.
func (o *Outage) Ask(w *Waiter, now time.Duration) Turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down && o.probing && now >= o.probed+max(longestSilence, 2*o.failures.slowest) {
		o.streak.Store(steady)
		o.openLocked(now)
	}
	at, again := o.line.index(w), w.Deadline
	if o.down {
		again = min(again, w.Patience)
	}
	if now >= again {
		o.removeLocked(at)
		return Turn{Over: true, Alone: len(o.line) == 0}
	}
	if next, from := o.nextLocked(now); at == next && now >= from {
		return Turn{Permit: o.releaseLocked(at, from, now)}
	} else if at == next {
		again = min(again, from)
	}
	return Turn{Again: again}
}

// nextLocked is the index of the waiter that goes next, and when: the first in line or, while the host
// is down, the prober. It is -1 if there is none.
func (o *Outage) nextLocked(now time.Duration) (at int, from time.Duration) {
	switch {
	case o.down:
		return o.proberLocked()
	case len(o.line) == 0:
		return -1, 0
	}
	return 0, max(o.release.due(now, 0), o.release.silentUntil())
}

// proberLocked is the waiter that can be a probe first. Of several, it is the one that was sent least
// often, and of those the newest.
func (o *Outage) proberLocked() (at int, from time.Duration) {
	at = -1
	for i := len(o.line) - 1; i >= 0; i-- {
		w := o.line[i]
		ready := max(o.probeAt, w.ProbeFrom)
		if w.Attempts > 0 {
			ready = max(ready, o.probed+paidProbe)
		}
		if w.NoProbe || at >= 0 && (ready > from || ready == from && w.Attempts >= o.line[at].Attempts) {
			continue
		}
		if at, from = i, ready; w.Attempts == 0 && ready == o.probeAt {
			break // no other can be better
		}
	}
	return at, from
}

func (o *Outage) releaseLocked(at int, due, now time.Duration) Permit {
	probe := o.down
	if probe {
		if o.probeAt = now + longestSilence; !o.probing {
			o.probed, o.probing = now, true
		}
	} else {
		o.release.sent(max(due, now-lateness))
	}
	o.removeLocked(at)
	return Permit{o.round, probe}
}

func (o *Outage) wakeLocked() {
	at := 0
	if o.down {
		at, _ = o.proberLocked()
	}
	if 0 <= at && at < len(o.line) {
		o.line[at].wake()
	}
}

// Waiting reports whether requests are in line.
func (o *Outage) Waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.line) > 0
}

// Idle reports whether o holds nothing worth keeping.
func (o *Outage) Idle(now time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.line) == 0 && now-o.failures.last > forgetAfter && !o.AnsweredLately(now)
}

// AnsweredLately reports whether the host gave a good answer within ten minutes.
func (o *Outage) AnsweredLately(now time.Duration) bool {
	good := time.Duration(o.good.Load())
	return good > 0 && now-good < 10*time.Minute
}
