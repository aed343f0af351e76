package live

import (
	"sync"
	"sync/atomic"
)

// A kind is what a request counts as.
type kind int

const (
	admitted kind = iota // as serverside.Admitted and what follows it
	denied
	uncounted // the Store failed, and it was served
	trusted   // by an entry of the allow-list
	would     // it was admitted, and a rule with DryRun would have denied it
	kinds
)

// A tally is how many there were of each kind.
type tally [kinds]int64

// span is of how many seconds is known what was in them.
const span = 120

// A history is the tally of each of the last seconds. What is added goes to the second
// that is not over yet; end says that it is. It takes no lock to add.
type history struct {
	total [kinds]atomic.Int64
	fresh atomic.Int64 // what was admitted before this second

	mu    sync.Mutex     // guards what follows
	marks [span + 1]mark // a ring
	made  int            // how many marks were made
}

// A mark is the total at the end of a second in which something was added.
type mark struct {
	second int64
	total  tally
}

// At most this many of a second, and then one of so many, are looked at closer.
const (
	manySamples = 50
	sampleEvery = 16
)

// add counts one of k, and reports whether it is one to look at closer.
func (h *history) add(k kind) bool {
	n := h.total[k].Add(1)
	return k != admitted || n-h.fresh.Load() <= manySamples || n%sampleEvery == 0
}

// now is the total.
func (h *history) now() (t tally) {
	for k := range t {
		t[k] = h.total[k].Load()
	}
	return t
}

// end ends a second.
func (h *history) end(second int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	total := h.now()
	h.fresh.Store(total[admitted])
	if h.made > 0 && h.marks[(h.made-1)%len(h.marks)].total == total {
		return
	}
	h.marks[h.made%len(h.marks)] = mark{second, total}
	h.made++
}

// between returns the tallies of the seconds from first to last. current is the second
// that is not over yet.
func (h *history) between(first, last, current int64) []tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	tallies := make([]tally, last-first+1)
	var before tally
	add := func(m mark) {
		if first <= m.second && m.second <= last {
			for k := range before {
				tallies[m.second-first][k] += m.total[k] - before[k]
			}
		}
		before = m.total
	}
	oldest := 0
	if h.made > len(h.marks) { // what was before the oldest is forgotten
		oldest = h.made - len(h.marks)
		before = h.marks[oldest%len(h.marks)].total
		oldest++
	}
	for i := oldest; i < h.made; i++ {
		add(h.marks[i%len(h.marks)])
	}
	add(mark{current, h.now()})
	return tallies
}
