package quota

import "math"

const (
	// sample is of how many tenants one is forgotten. Tenants are counted, not slots,
	// so that where there are more of them more are forgotten.
	sample = 64

	// glance is at how many tenants of another shard one looks before.
	glance = 8
)

// makeRoomLocked forgets what owes nothing, among the next few tenants of s or of
// another shard. If all of them owe, it forgets the one of s that would owe nothing
// soonest.
func (s *shard) makeRoomLocked(now int64) {
	for {
		found := s.sweepLocked(sample, now)
		if found.swept || found.place < 0 || s.ledger.glanceAround(now) {
			return
		}
		if s.table.Load().slots[found.place].holdIf(found.word) {
			s.removeLocked(found.place)
			if found.wait > float64(now-s.ledger.over(now)) {
				s.ledger.forgotten.Add(1)
			}
			return
		}
	}
}

// glanceAround looks at the next shard, unless somebody has locked it, and reports
// whether anything was forgotten there that owed nothing.
func (g *ledger) glanceAround(now int64) bool {
	s := &g.shards[g.glanced.Add(1)&g.mask&(maxShards-1)]
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	return s.sweepLocked(glance, now).swept
}

// A finding is what was found at a few tenants.
type finding struct {
	swept bool // something was forgotten, that owed nothing
	place int  // of what would owe nothing soonest, or -1
	owing
}

// sweepLocked looks at the next so many tenants, and forgets what owes nothing.
func (s *shard) sweepLocked(tenants int, now int64) finding {
	t := s.table.Load()
	g := s.gaugeLocked(s.ledger.over(now))
	before, soonest := t.taken, finding{place: -1, owing: owing{wait: math.Inf(1)}}
	at := min(s.hand, len(t.slots)-1)
	for slots := len(t.slots); tenants > 0 && slots > 0; slots-- {
		at = t.next(at)
		if t.slots[at].tag.Load() == 0 {
			continue
		}
		tenants--
		if found := s.reclaimLocked(&g, at); found.wait < soonest.wait {
			soonest.place, soonest.owing = at, found
		}
	}
	s.hand = at
	soonest.swept = t.taken < before
	return soonest
}

// reclaimLocked forgets what owes nothing at i, and then what moved there, if that
// owes nothing either. It returns what is owed by what stays.
func (s *shard) reclaimLocked(g *gauge, i int) owing {
	for {
		found := g.measure(i)
		if found.wait > 0 {
			return found
		}
		if g.table.slots[i].holdIf(found.word) {
			s.removeLocked(i)
		}
	}
}

// An owing is what a slot owes: µs of waiting, as long as its word is this one.
type owing struct {
	wait float64 // infinite if there is nothing
	word uint64
}

// A gauge measures what the slots of a table owe at a moment. Most of them are in
// the same scale, so it keeps at hand what it knows of the last one.
type gauge struct {
	shard *shard
	table *table
	at    int64 // µs since the Unix epoch

	number uint64 // of a scale
	scale  *scale
	paid   int64   // in it, if it is a bucket's
	pace   float64 // µs that it takes to pay a part
}

func (s *shard) gaugeLocked(at int64) gauge { return gauge{shard: s, table: s.table.Load(), at: at} }

// measure returns what the slot at i owes.
func (g *gauge) measure(i int) owing {
	slot := &g.table.slots[i]
	word, tag := slot.word.Load(), slot.tag.Load()
	switch number := tag & scaleMask; {
	case tag == 0:
		return owing{math.Inf(1), word}
	case number == aside:
		return owing{float64(g.shard.accountLocked(word).whole() - g.at), word}
	case number != g.number:
		g.in(number)
	}
	if g.scale.span > 0 {
		return owing{float64(g.scale.over(stateOf(word), g.table.origin) - g.at), word}
	}
	return owing{float64(stateOf(word)-g.paid) * g.pace, word}
}

// in has g measure in a scale.
func (g *gauge) in(number uint64) {
	g.number, g.scale = number, scaleOf(number)
	g.paid = g.scale.paid(g.table.origin, g.at)
	g.pace = float64(g.scale.tick) / float64(g.scale.rate)
}

// owes reports whether anything is owed at i.
func (g *gauge) owes(i int) bool {
	wait := g.measure(i).wait
	return wait > 0 && !math.IsInf(wait, 1)
}
