package quota

import (
	"iter"
	"math"
	"slices"
	"sync"
	"unique"
)

const (
	// sample is how many entries to compare for an eviction.
	sample = 64

	// tidyEvery is how often, in µs, a shard forgets entries that owe nothing.
	tidyEvery = 10 * 60 * 1_000_000

	// maxShapes is how many Shapes of one Name a Key may have.
	maxShapes = 16

	// grace is how long, in µs, such entries are kept nevertheless: setting the clock
	// back a little should give nothing back.
	grace = 10 * 1_000_000
)

// A shard is everything under one lock: all that is stored of some Keys. Most states are
// entries of the table; those that do not fit are in overflow.
type shard struct {
	memory *Memory

	mu sync.Mutex // guards all below
	table
	overflow map[ref]kept
	shapes   map[unique.Handle[string]][]*Limit // by Name, one for each Shape that is or was stored
	mixed    bool                               // a Name has several Shapes
	tidiedAt int64                              // in µs since the Unix epoch
	hand     int                                // the last entry that was compared for an eviction
	held     map[keyHash]int64                  // places in use, of the Gate
	heldMax  int                                // the highest number of keys in held

	_ [64]byte // keeps the locks of two shards out of one cache line
}

// A ref identifies a state in overflow: a count of a Key, or an ID.
type ref struct {
	key    keyHash
	what   unique.Handle[string] // the Name and Shape of the Limit; of an ID, the Name
	dryRun bool
	id     keyHash // of the ID; zero for the count
}

// A kept is a state in overflow: a Bucket, or until when an ID is remembered.
type kept struct {
	limit  *Limit // of the last charge; nil for an ID
	Bucket        // of an ID only Time
}

// whole returns when k may be forgotten.
func (k *kept) whole() int64 {
	if k.limit == nil {
		return k.Time
	}
	return k.limit.whole(&k.Bucket)
}

// load sets b, which is zero, to the count of a Key for a Limit, and reports whether there is one.
func (s *shard) load(h keyHash, l *Limit, dryRun bool, b *Bucket) bool {
	if i := s.find(h, l, dryRun); i >= 0 {
		*b = s.entries[i].bucket(l)
		return true
	}
	if len(s.overflow) == 0 {
		return false
	}
	k, ok := s.overflow[ref{key: h.stored(), what: l.count, dryRun: dryRun}]
	*b = k.Bucket
	return ok
}

// others yields the counts of a Key for Limits of l's Name with another Shape, as of now.
func (s *shard) others(h keyHash, l *Limit, dryRun bool, now int64) iter.Seq2[*Limit, Bucket] {
	return func(yield func(*Limit, Bucket) bool) {
		if !s.mixed {
			return
		}
		for _, other := range s.shapes[l.name] {
			var b Bucket
			if other.count == l.count || !s.load(h, other, dryRun, &b) || other.isOver(&b, now) {
				continue
			}
			if other.drain(&b, now); !yield(other, b) {
				return
			}
		}
	}
}

// othersOwe reports whether any count of others owes something.
func (s *shard) othersOwe(h keyHash, l *Limit, dryRun bool, now int64) bool {
	for other, b := range s.others(h, l, dryRun, now) {
		if other.whole(&b) > now {
			return true
		}
	}
	return false
}

// forgetOthers forgets the counts of others.
func (s *shard) forgetOthers(h keyHash, l *Limit, dryRun bool) {
	for _, other := range s.shapes[l.name] {
		if other.count != l.count {
			s.forgetCount(h, other, dryRun)
		}
	}
}

// forgetCount forgets the count of a Key for a Limit.
func (s *shard) forgetCount(h keyHash, l *Limit, dryRun bool) {
	r := ref{key: h.stored(), what: l.count, dryRun: dryRun}
	if i := s.find(h, l, dryRun); i >= 0 {
		s.forget(i)
	} else if _, ok := s.overflow[r]; ok {
		s.forgetOverflow(r)
	}
}

// learn records the Shape of l, a Limit that counts a Key. Of a Name only the latest are known.
func (s *shard) learn(h keyHash, l *Limit) {
	known := s.shapes[l.name]
	if slices.ContainsFunc(known, func(k *Limit) bool { return k.count == l.count }) {
		return
	}
	if len(known) == maxShapes {
		for _, dryRun := range []bool{false, true} {
			s.forgetCount(h, known[0], dryRun)
		}
		known = known[1:]
	}
	s.shapes[l.name] = append(known, l)
	s.mixed = s.mixed || len(known) > 0
}

// store stores b as the count of a Key for a Limit.
func (s *shard) store(h keyHash, l *Limit, dryRun bool, b *Bucket, now int64) {
	i := s.find(h, l, dryRun)
	if i >= 0 && fits(b) && s.counts[s.entries[i].number()].limit.id == l.id {
		s.entries[i].set(b)
		return
	}
	// While there is no room, the old count stays: others may be kept because of it.
	r := ref{key: h.stored(), what: l.count, dryRun: dryRun}
	if _, ok := s.overflow[r]; !ok && i < 0 && s.memory.kept.Load() >= int64(s.memory.maxKeys()) {
		s.evict(now)
	}
	if s.full() {
		s.rebuild(now)
	}
	if _, ok := s.overflow[r]; ok {
		s.forgetOverflow(r)
	} else if i = s.find(h, l, dryRun); i >= 0 {
		s.forget(i)
	}
	s.memory.kept.Add(1)
	s.learn(h, l)
	if fits(b) {
		if number := s.number(count{l, dryRun}); number > 0 {
			s.add(newEntry(h, number, b))
			return
		}
	}
	s.overflow[r] = kept{l, *b}
}

// remember stores an ID until a time.
func (s *shard) remember(id ref, until, now int64) {
	if _, ok := s.overflow[id]; !ok && s.memory.kept.Add(1) > int64(s.memory.maxKeys()) {
		s.evict(now)
	}
	s.overflow[id] = kept{Bucket: Bucket{Time: until}}
}

func (s *shard) forget(i int) {
	s.remove(i)
	s.memory.kept.Add(-1)
}

func (s *shard) forgetOverflow(r ref) {
	delete(s.overflow, r)
	s.memory.kept.Add(-1)
}

// evict makes room. It forgets, among some of the states, those that owe nothing. If all
// of them owe something, it forgets the one that would owe nothing soonest.
func (s *shard) evict(now int64) {
	soonest, victim, name, freed := int64(math.MaxInt64), -1, ref{}, false
	seen := 0
	for range len(s.entries) {
		if s.hand = s.next(s.hand); s.entries[s.hand].key == 0 {
			continue
		}
		switch whole := s.whole(s.hand); {
		case !s.owing(s.hand, now):
			s.forget(s.hand)
			freed = true
		case whole < soonest:
			soonest, victim = whole, s.hand
		}
		if seen++; seen == sample {
			break
		}
	}
	for r, k := range s.overflow {
		switch whole := k.whole(); {
		case !s.owingOverflow(r, &k, now):
			s.forgetOverflow(r)
			freed = true
		case whole < soonest:
			soonest, victim, name = whole, -1, r
		}
		if seen++; seen >= 2*sample {
			break
		}
	}
	switch {
	case freed || soonest == math.MaxInt64:
		return
	case victim >= 0:
		s.forget(victim)
	default:
		s.forgetOverflow(name)
	}
	s.memory.forgotten.Add(1)
}

// tidy forgets states that owe nothing from time to time.
func (s *shard) tidy(now int64) {
	if now-s.tidiedAt <= tidyEvery {
		if len(s.counts) > 2*s.used+minEntries { // many of them belong to Limits that are no longer used
			s.rebuild(now)
		}
		return
	}
	s.rebuild(now)
	rest, held := make(map[ref]kept), make(map[keyHash]int64, len(s.held)) // smaller than the old ones
	for r, k := range s.overflow {
		if s.owingOverflow(r, &k, now-grace) {
			rest[r] = k
		}
	}
	for h, n := range s.held {
		held[h] = n
	}
	s.memory.kept.Add(int64(len(rest) - len(s.overflow)))
	s.overflow, s.held, s.heldMax, s.tidiedAt = rest, held, len(held), now
}

// rebuild replaces the table by one of the right size, without states that owe nothing.
func (s *shard) rebuild(now int64) {
	keep := make([]bool, len(s.entries)) // decided before anything changes
	n := 0
	for i := range s.entries {
		if keep[i] = s.entries[i].key != 0 && s.owing(i, now-grace); keep[i] {
			n++
		}
	}
	t := newTable(n)
	numbers := make([]uint64, len(s.counts)) // the new ones
	for i := range s.entries {
		if !keep[i] {
			continue
		}
		e := s.entries[i]
		old := e.number()
		if numbers[old] == 0 {
			numbers[old] = t.number(s.counts[old])
		}
		t.add(e.numbered(numbers[old]))
	}
	s.memory.kept.Add(int64(n - s.used))
	s.table, s.hand = t, 0
	s.shapes, s.mixed = make(map[unique.Handle[string]][]*Limit), false
	for _, c := range t.counts[1:] {
		s.learn(keyHash{}, c.limit)
	}
	for _, k := range s.overflow {
		if k.limit != nil {
			s.learn(keyHash{}, k.limit)
		}
	}
}

// owing reports whether to keep the entry at i: the counts of one Name are kept until none of them owes anything, so
// that none starts again from another.
func (s *shard) owing(i int, now int64) bool {
	e := &s.entries[i]
	c := &s.counts[e.number()]
	return s.whole(i) > now || s.othersOwe(e.hash(), c.limit, c.dryRun, now)
}

// owingOverflow reports whether to keep a state in overflow.
func (s *shard) owingOverflow(r ref, k *kept, now int64) bool {
	return k.whole() > now || k.limit != nil && s.othersOwe(r.key, k.limit, r.dryRun, now)
}
