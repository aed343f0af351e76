package quota

// several is what quick is for a few charges of one Key, to buckets that are different
// from each other: it does what decide does, for what is kept in words and is known
// already, and spares it to look at anything else. It reports false, having done
// nothing, if it cannot say.
func (m *Memory) several(dst []Decision, charges []Charge) ([]Decision, bool) {
	var few [4]tally
	g := m.books.Load()
	if g == nil || g.clock != nil || len(charges) > len(few) || !simple(charges) {
		return dst, false
	}
	key, all := keyHash(charges[0].Key), few[:len(charges)]
	s := g.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table.Load()
	for i := range all {
		if !all[i].hold(t, key, &charges[i]) {
			releaseAll(all[:i])
			return dst, false
		}
	}
	now := g.monotonic()
	allowed, sure := tryAll(all, charges, t.origin, now)
	if !sure {
		releaseAll(all)
		return dst, false
	}
	for i := range all {
		dst = append(dst, Decision{})
		all[i].end(&dst[len(dst)-1], allowed, now)
	}
	return dst, true
}

// simple reports whether charges are of one Key, and each can be kept in a word and fits
// at some time.
func simple(charges []Charge) bool {
	for i := range charges {
		c := &charges[i]
		l := c.Limit
		if l == nil || l.packed.number == noScale || uint64(c.Units()) > uint64(l.atOnce) || c.ID != "" || c.Key != charges[0].Key {
			return false
		}
	}
	return true
}

// A tally is one of several charges.
type tally struct {
	limit *Limit
	cost  int64
	slot  *slot
	word  uint64 // of slot, before
	level int64  // what is owed before, as of at
	state int64  // what the word has then
	at    int64
	fits  bool
}

// hold finds and holds the slot of c, whose shard is locked. It reports false if there is
// none, or an earlier charge has it.
func (y *tally) hold(t *table, key hash, c *Charge) bool {
	h := c.hashOf(key)
	y.limit, y.cost = c.Limit, c.Units()*c.Limit.unit
	y.slot, y.word = t.read(h.tag(y.limit.packed.number), h.check())
	if y.slot == nil || y.word&held != 0 {
		return false
	}
	y.word = y.slot.hold()
	return true
}

func releaseAll(all []tally) {
	for i := range all {
		all[i].slot.release(all[i].word)
	}
}

// tryAll works out what becomes of all at now, in a table of this origin, and whether those
// fit that are no DryRun. sure is false if it cannot say.
func tryAll(all []tally, charges []Charge, origin, now int64) (allowed, sure bool) {
	if uint64(now-origin) > maxAge {
		return false, false
	}
	allowed = true
	for i := range all {
		y := &all[i]
		var paid int64
		paid, y.at = y.limit.paid(origin, now)
		y.state = max(stateOf(y.word), paid)
		y.level = y.state - paid
		if y.limit.packed.ahead(y.level) {
			return false, false
		}
		y.fits = y.level+y.cost <= y.limit.capacity
		allowed = allowed && (y.fits || charges[i].DryRun)
	}
	return allowed, true
}

// end makes y's charge if all are allowed and it fits, lets its slot go, and makes d, which
// is zero, the Decision.
func (y *tally) end(d *Decision, allowed bool, now int64) {
	if allowed && y.fits {
		y.slot.word.Store(uint64(y.state+y.cost)<<stateShift | y.word&marks)
	} else {
		y.slot.release(y.word)
	}
	if y.fits && !allowed {
		y.cost = 0
	}
	y.limit.judge(d, y.fits, y.level, y.cost, y.at, now)
}
