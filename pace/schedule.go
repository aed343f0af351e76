package pace

import (
	"cmp"
	"container/heap"
)

// A schedule is the order in which those who wait have their turns: the highest
// priority first; of these, keys by start-time fair queueing (Goyal et al., 1996):
// each request starts, in a time that counts units, when the one before it of
// its key has had its units, and the earliest start is first; of these, who came
// first. The zero schedule is empty.
type schedule struct {
	waiting []*queued // a heap
	flows   map[string]*flow
	now     int64 // the latest start that was given
	arrived int64
}

// A flow is the requests of one key.
type flow struct {
	waiting int
	free    int64 // when what came before has had its units
}

// A queued is a request that waits.
type queued struct {
	key      string
	priority int
	units    int64

	start   int64
	arrived int64
	index   int // in the heap; -1 if it is not there
	turn    chan struct{}
}

func (s *schedule) push(w *queued) {
	if s.flows == nil {
		s.flows = make(map[string]*flow)
	}
	f := s.flows[w.key]
	if f == nil {
		f = &flow{}
		s.flows[w.key] = f
	}
	s.arrived++
	w.arrived, w.start = s.arrived, max(s.now, f.free)
	f.free = w.start + max(w.units, 1)
	f.waiting++
	heap.Push((*byTurn)(s), w)
}

// pop takes out the first, or returns nil.
func (s *schedule) pop() *queued {
	if len(s.waiting) == 0 {
		return nil
	}
	w := s.waiting[0]
	s.now = max(s.now, w.start)
	s.remove(w)
	return w
}

func (s *schedule) remove(w *queued) {
	heap.Remove((*byTurn)(s), w.index)
	s.flows[w.key].waiting--
	if len(s.flows) > 2*len(s.waiting) {
		s.forget()
	}
}

// forget drops the flows that are as new ones would be.
func (s *schedule) forget() {
	for key, f := range s.flows {
		if f.waiting == 0 && (f.free <= s.now || len(s.waiting) == 0) {
			delete(s.flows, key)
		}
	}
}

// byTurn is a schedule as a heap.Interface.
type byTurn schedule

func (s *byTurn) Len() int { return len(s.waiting) }

func (s *byTurn) Less(i, j int) bool {
	a, b := s.waiting[i], s.waiting[j]
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.start, b.start), cmp.Compare(a.arrived, b.arrived)) < 0
}

func (s *byTurn) Swap(i, j int) {
	s.waiting[i], s.waiting[j] = s.waiting[j], s.waiting[i]
	s.waiting[i].index, s.waiting[j].index = i, j
}

func (s *byTurn) Push(x any) {
	w := x.(*queued)
	w.index = len(s.waiting)
	s.waiting = append(s.waiting, w)
}

func (s *byTurn) Pop() any {
	n := len(s.waiting) - 1
	w := s.waiting[n]
	s.waiting[n] = nil
	s.waiting, w.index = s.waiting[:n], -1
	return w
}
