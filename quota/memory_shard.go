package quota

import (
	"math"
	"sync"
	"unique"
)

const (
	// sample is how many entries to compare for an eviction.
	sample = 64

	// tidyEvery is how often, in µs, a shard forgets entries that owe nothing.
	tidyEvery = 10 * 60 * 1_000_000

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

func refOf(key keyHash, c *Charge, id keyHash) ref { return ref{key, c.Limit.name, c.DryRun, id} }

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

// load sets b, which is zero, to the state for a charge. It returns the Limit of the last
// charge, or nil if there is no state.
func (s *shard) load(h keyHash, c *Charge, b *Bucket) (by *Limit) {
	if i := s.find(h, c.Limit, c.DryRun); i >= 0 {
		e := &s.entries[i]
		by = s.counts[e.number()].limit
		*b = e.bucket(by)
	} else if len(s.overflow) > 0 {
		k := s.overflow[refOf(h, c, keyHash{})]
		*b, by = k.Bucket, k.limit
	}
	return by
}

// store stores b, the state after charge c.
func (s *shard) store(h keyHash, c *Charge, b *Bucket, now int64) {
	i := s.find(h, c.Limit, c.DryRun)
	if i >= 0 && fits(b) && s.counts[s.entries[i].number()].limit.id == c.Limit.id {
		s.entries[i].set(b)
		return
	}
	r := refOf(h, c, keyHash{})
	if _, ok := s.overflow[r]; ok {
		s.forgetOverflow(r)
	} else if i >= 0 {
		s.forget(i)
	}
	if s.memory.kept.Add(1) > int64(s.memory.maxKeys()) {
		s.evict(now)
	}
	if s.full() {
		s.rebuild(now)
	}
	if fits(b) {
		if number := s.number(count{c.Limit, c.DryRun}); number > 0 {
			s.add(newEntry(h, number, b))
			return
		}
	}
	s.overflow[r] = kept{c.Limit, *b}
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
		case whole <= now:
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
		case whole <= now:
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
		if k.whole() > now-grace {
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
	owing := func(i int) bool { return s.entries[i].key != 0 && s.whole(i) > now-grace }
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
