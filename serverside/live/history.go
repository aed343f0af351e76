package live

import "sync"

// An outcome is what became of a request.
type outcome int

const (
	admitted outcome = iota
	denied
	uncounted // the Store failed, and it was served
	trusted   // an entry of the allow-list admitted it
	wouldDeny // it was admitted, and a rule with DryRun would have denied it
	outcomes
)

// counts are how many requests there were of each outcome.
type counts [outcomes]int64

// span is how many seconds a history has.
const span = 120

// Of the requests that are admitted in a second, so many are sampled, and then one in so
// many; of the others, all.
const (
	firstSamples = 50
	sampleEvery  = 16
)

// A history is what was counted of a rule in each of the last seconds.
type history struct {
	mu      sync.Mutex   // guards what follows
	last    int64        // the latest second, Unix time
	seconds [span]counts // that of second s is at s % span
}

// add counts a request in a second, or in the latest if that is later, and reports whether
// to sample it.
func (h *history) add(second int64, o outcome) (sample bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(second)
	n := &h.seconds[h.last%span][o]
	*n++
	return o != admitted || *n <= firstSamples || *n%sampleEvery == 0
}

// advance forgets what is too old once a second has begun. It is called with mu held.
func (h *history) advance(second int64) {
	for s := max(h.last, second-span) + 1; s <= second; s++ {
		h.seconds[s%span] = counts{}
	}
	h.last = max(h.last, second)
}

// read returns the counts of the seconds from first, which is not too old, to now. What is
// added later counts in now or later.
func (h *history) read(first, now int64) (seconds []counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.advance(now)
	for s := first; s <= now; s++ {
		seconds = append(seconds, h.seconds[s%span])
	}
	return seconds
}
