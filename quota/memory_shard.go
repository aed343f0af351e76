package quota

import (
	"math"
	"sync"
	"unique"
)

const (
	// sample is how many entries are compared when one must be evicted.
	sample = 64

	// maxAge is after how long, in µs, a shard forgets what owes nothing.
	maxAge = 10 * 60 * 1_000_000

	// grace is how long, in µs, what owes nothing survives that: a clock may be set back a
	// little without anything being given back.
	grace = 10 * 1_000_000
)

// A shard is what one lock guards: all that is kept of some Keys. Most states are entries
// of the table; the rest is what does not fit there.
type shard struct {
	memory *Memory

	mu sync.Mutex // guards what follows
	table
	rest    map[ref]kept
	tidied  int64             // when, in µs since the Unix epoch
	hand    int               // the entry that was compared last when one was evicted
	held    map[keyHash]int64 // places in use, of the Gate
	heldMax int               // how many keys there once were in held

	_ [64]byte // keeps the locks of two shards out of one cache line
}

// A ref names something in the rest: a count of a Key, or an ID that was charged.
type ref struct {
	key    keyHash
	name   unique.Handle[string] // of the Limit
	dryRun bool
	id     keyHash // of the ID; zero for the count
}

func refOf(key keyHash, c *Charge, id keyHash) ref { return ref{key, c.Limit.name, c.DryRun, id} }

// A kept is a state in the rest: a Bucket, or of an ID until when it is remembered.
type kept struct {
	limit  *Limit // which it was charged by last; nil for an ID
	Bucket        // of an ID only Time
}

// whole returns when k may be forgotten.
func (k *kept) whole() int64 {
	if k.limit == nil {
		return k.Time
	}
	return k.limit.whole(&k.Bucket)
}

// load makes b, which is zero, what is kept for a charge, and returns the Limit it was
// charged by last; nil if there is nothing.
func (s *shard) load(h keyHash, c *Charge, b *Bucket) (by *Limit) {
	if i := s.find(h, c.Limit, c.DryRun); i >= 0 {
		e := &s.entries[i]
		by = s.counts[e.number()].limit
		*b = e.bucket(by)
	} else if len(s.rest) > 0 {
		k := s.rest[refOf(h, c, keyHash{})]
		*b, by = k.Bucket, k.limit
	}
	return by
}

// store keeps b, which charge c left.
func (s *shard) store(h keyHash, c *Charge, b *Bucket, now int64) {
	i := s.find(h, c.Limit, c.DryRun)
	if i >= 0 && fits(b) && s.counts[s.entries[i].number()].limit.id == c.Limit.id {
		s.entries[i].set(b)
		return
	}
	r := refOf(h, c, keyHash{})
	if _, ok := s.rest[r]; ok {
		s.forgetRest(r)
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
	s.rest[r] = kept{c.Limit, *b}
}

// remember keeps an ID until a moment.
func (s *shard) remember(id ref, until, now int64) {
	if _, ok := s.rest[id]; !ok && s.memory.kept.Add(1) > int64(s.memory.maxKeys()) {
		s.evict(now)
	}
	s.rest[id] = kept{Bucket: Bucket{Time: until}}
}

func (s *shard) forget(i int) {
	s.remove(i)
	s.memory.kept.Add(-1)
}

func (s *shard) forgetRest(r ref) {
	delete(s.rest, r)
	s.memory.kept.Add(-1)
}

// evict makes room: it forgets what owes nothing, among some of what is kept. If all of
// that owes something, it forgets what would owe nothing soonest.
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
	for r, k := range s.rest {
		switch whole := k.whole(); {
		case whole <= now:
			s.forgetRest(r)
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
		s.forgetRest(name)
	}
	s.memory.forgotten.Add(1)
}

// tidy forgets what has long owed nothing, now and then.
func (s *shard) tidy(now int64) {
	if now-s.tidied <= maxAge {
		if len(s.counts) > 2*s.used+minEntries { // of Limits that charge nothing any more
			s.rebuild(now)
		}
		return
	}
	s.rebuild(now)
	rest, held := make(map[ref]kept), make(map[keyHash]int64, len(s.held)) // which need less than the old ones
	for r, k := range s.rest {
		if k.whole() > now-grace {
			rest[r] = k
		}
	}
	for h, n := range s.held {
		held[h] = n
	}
	s.memory.kept.Add(int64(len(rest) - len(s.rest)))
	s.rest, s.held, s.heldMax, s.tidied = rest, held, len(held), now
}

// rebuild replaces the table by one of the right size, without what owes nothing.
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
