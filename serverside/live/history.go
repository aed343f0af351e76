package live

import "sync"

// An outcome is what happened to a request.
type outcome int

const (
	admitted outcome = iota
	denied
	uncounted // served because the Store failed
	trusted   // admitted by an Allow entry
	wouldDeny // admitted, though a rule with DryRun would have denied it
	outcomes
)

// counts are numbers of requests by outcome.
type counts [outcomes]int64

// span is how many seconds a history covers.
const span = 120

// Limits on sampling within a second: the first admitted requests are sampled, then one in
// several. All other requests are sampled.
const (
	firstSamples = 50
	sampleEvery  = 16
)

// A history counts a rule's requests in each of the last seconds.
type history struct {
	mu      sync.Mutex   // guards what follows
	last    int64        // the latest second, Unix time
	seconds [span]counts // second s is at s % span
}

// add counts a request in a second, or in the latest one if that is later, and reports whether
// to sample the request.
func (h *history) add(second int64, o outcome) (sample bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(second)
	n := &h.seconds[h.last%span][o]
	*n++
	return o != admitted || *n <= firstSamples || *n%sampleEvery == 0
}

// advance clears seconds that are too old once a new one begins. mu must be held.
func (h *history) advance(second int64) {
	for s := max(h.last, second-span) + 1; s <= second; s++ {
		h.seconds[s%span] = counts{}
	}
	h.last = max(h.last, second)
}

// read returns the counts from first, which must not be too old, to now. Later calls of add
// count in now or later.
func (h *history) read(first, now int64) (seconds []counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(now)
	for s := first; s <= now; s++ {
		seconds = append(seconds, h.seconds[s%span])
	}
	return seconds
}
