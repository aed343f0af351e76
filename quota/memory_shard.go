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

	// maxShapes is how many counts of one Name, of different Shapes, a Key may have. A program
	// that makes more forgets the oldest.
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
	more     map[ref][]kept    // counts of further Shapes, of a Key and Name that is in table or overflow
	tidiedAt int64             // in µs since the Unix epoch
	hand     int               // the last entry that was compared for an eviction
	held     map[keyHash]int64 // places in use, of the Gate
	heldMax  int               // the highest number of keys in held

	_ [64]byte // keeps the locks of two shards out of one cache line
}

// A ref identifies a state in overflow: a count of a Key, or an ID.
type ref struct {
	key    keyHash
	name   unique.Handle[string] // of the Limit
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

// refOf returns where a count of a Key is, if it is in overflow or more.
func refOf(h keyHash, l *Limit, dryRun bool) ref {
	return ref{key: h.stored(), name: l.name, dryRun: dryRun}
}

// first sets b, which is zero, to the count of a Key for the Name of a Limit that is in the
// table or in overflow, and returns its Limit. It returns nil if the Key has no count.
func (s *shard) first(h keyHash, l *Limit, dryRun bool, b *Bucket) (by *Limit) {
	if i := s.find(h, l, dryRun); i >= 0 {
		e := &s.entries[i]
		by = s.counts[e.number()].limit
		*b = e.bucket(by)
	} else if len(s.overflow) > 0 {
		k := s.overflow[refOf(h, l, dryRun)]
		*b, by = k.Bucket, k.limit
	}
	return by
}

// all yields the counts of a Key for the Name of a Limit as they are stored, one for each
// Shape.
func (s *shard) all(h keyHash, l *Limit, dryRun bool) iter.Seq2[*Limit, Bucket] {
	return func(yield func(*Limit, Bucket) bool) {
		var b Bucket
		if by := s.first(h, l, dryRun, &b); by == nil || !yield(by, b) {
			return
		}
		for _, k := range s.more[refOf(h, l, dryRun)] {
			if !yield(k.limit, k.Bucket) {
				return
			}
		}
	}
}

// store stores b as the count of a Key for a Limit.
func (s *shard) store(h keyHash, l *Limit, dryRun bool, b *Bucket, now int64) {
	i := s.find(h, l, dryRun)
	if i >= 0 && fits(b) && s.counts[s.entries[i].number()].limit.id == l.id {
		s.entries[i].set(b)
		return
	}
	var other Bucket
	by, r := s.first(h, l, dryRun, &other), refOf(h, l, dryRun)
	switch {
	case by == nil:
	case by.count == l.count: // makes room for itself; its further Shapes stay
		if i >= 0 {
			s.remove(i)
		} else {
			delete(s.overflow, r)
		}
		s.memory.kept.Add(-1)
	default:
		same := func(k kept) bool { return k.limit.count == l.count }
		if j := slices.IndexFunc(s.more[r], same); j >= 0 {
			s.more[r][j] = kept{l, *b}
			return
		}
	}
	if s.memory.kept.Add(1) > int64(s.memory.maxKeys()) {
		s.evict(now)
	}
	if by != nil && by.count != l.count && s.first(h, l, dryRun, &other) != nil { // it was not evicted
		s.storeMore(r, kept{l, *b})
		return
	}
	if s.full() {
		s.rebuild(now)
	}
	if fits(b) {
		if number := s.number(count{l, dryRun}); number > 0 {
			s.add(newEntry(h, number, b))
			return
		}
	}
	s.overflow[r] = kept{l, *b}
}

// storeMore adds a count of a further Shape.
func (s *shard) storeMore(r ref, k kept) {
	if len(s.more[r]) == maxShapes-1 {
		s.more[r] = slices.Delete(s.more[r], 0, 1)
		s.memory.kept.Add(-1)
	}
	s.more[r] = append(s.more[r], k)
}

// remember stores an ID until a time.
func (s *shard) remember(id ref, until, now int64) {
	if _, ok := s.overflow[id]; !ok && s.memory.kept.Add(1) > int64(s.memory.maxKeys()) {
		s.evict(now)
	}
	s.overflow[id] = kept{Bucket: Bucket{Time: until}}
}

// forget forgets an entry, and its further Shapes.
func (s *shard) forget(i int) {
	s.forgetMore(s.refOf(i))
	s.remove(i)
	s.memory.kept.Add(-1)
}

// forgetOverflow is forget for a state in overflow.
func (s *shard) forgetOverflow(r ref) {
	s.forgetMore(r)
	delete(s.overflow, r)
	s.memory.kept.Add(-1)
}

func (s *shard) forgetMore(r ref) {
	if more, ok := s.more[r]; ok {
		s.memory.kept.Add(-int64(len(more)))
		delete(s.more, r)
	}
}

// forgetAll forgets the counts of a Key for the Name of a Limit.
func (s *shard) forgetAll(h keyHash, l *Limit, dryRun bool) {
	if i := s.find(h, l, dryRun); i >= 0 {
		s.forget(i)
	} else if r := refOf(h, l, dryRun); s.overflow[r].limit != nil {
		s.forgetOverflow(r)
	}
}

// refOf returns where the further Shapes of the entry at i are.
func (s *shard) refOf(i int) ref {
	e := &s.entries[i]
	c := &s.counts[e.number()]
	return refOf(e.hash(), c.limit, c.dryRun)
}

// until returns when the entry at i may be forgotten: when no Shape owes anything. A count
// that begins anew begins with what the others owe.
func (s *shard) until(i int) int64 {
	whole := s.whole(i)
	if len(s.more) == 0 {
		return whole
	}
	return s.untilMore(s.refOf(i), whole)
}

// untilMore returns when a count that may be forgotten at whole may be with its further Shapes.
func (s *shard) untilMore(r ref, whole int64) int64 {
	for _, k := range s.more[r] {
		whole = max(whole, k.whole())
	}
	return whole
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
		switch until := s.until(s.hand); {
		case until <= now:
			s.forget(s.hand)
			freed = true
		case until < soonest:
			soonest, victim = until, s.hand
		}
		if seen++; seen == sample {
			break
		}
	}
	for r, k := range s.overflow {
		switch until := s.untilMore(r, k.whole()); {
		case until <= now:
			s.forgetOverflow(r)
			freed = true
		case until < soonest:
			soonest, victim, name = until, -1, r
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
		if s.untilMore(r, k.whole()) > now-grace {
			rest[r] = k
		} else {
			s.forgetMore(r)
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
	owing := func(i int) bool { return s.entries[i].key != 0 && s.until(i) > now-grace }
	n := 0
	for i := range s.entries {
		if owing(i) {
			n++
		}
	}
	t := newTable(n)
	numbers := make([]uint64, len(s.counts)) // the new ones
	for i := range s.entries {
		if !owing(i) {
			if s.entries[i].key != 0 {
				s.forgetMore(s.refOf(i))
			}
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
}
