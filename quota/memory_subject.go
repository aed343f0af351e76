package quota

// rememberLocked remembers an ID of owner until a moment.
func (s *shard) rememberLocked(id, owner hash, until, now int64) {
	a := &account{Bucket: Bucket{Time: until}, owner: owner}
	t := s.table.Load()
	if i := t.find(id); i >= 0 {
		t.slots[i].hold()
		s.keepLocked(&t.slots[i], id, a, now)
		return
	}
	s.addLocked(id, a, now)
}

// rememberedLocked reports whether an ID is remembered.
func (s *shard) rememberedLocked(id hash, now int64) bool {
	t := s.table.Load()
	i := t.find(id)
	if i < 0 || t.slots[i].tag.Load()&scaleMask != aside {
		return false
	}
	return s.accountLocked(t.slots[i].word.Load()).Time > now
}

// stateLocked returns what h owes, if it is known.
func (s *shard) stateLocked(h hash, now int64) (b Bucket, ok bool) {
	t := s.table.Load()
	i := t.find(h)
	if i < 0 {
		return b, false
	}
	s.readLocked(&b, &t.slots[i], t.slots[i].word.Load(), nil, now)
	return b, true
}

// dropLocked forgets what h owes.
func (s *shard) dropLocked(h hash) {
	t := s.table.Load()
	if i := t.find(h); i >= 0 {
		t.slots[i].hold()
		s.removeLocked(i)
	}
}

// disownLocked forgets all IDs of owner.
func (s *shard) disownLocked(owner hash) {
	t := s.table.Load()
	for i := 0; i < len(t.slots); {
		tag, word := t.slots[i].tag.Load(), t.slots[i].word.Load()
		if tag != 0 && tag&scaleMask == aside && s.accountLocked(word).owner == owner {
			t.slots[i].hold()
			s.removeLocked(i) // which may move another one here
		} else {
			i++
		}
	}
}

// agedLocked reports whether the table is too old to count with.
func (s *shard) agedLocked(now int64) bool { return now-s.table.Load().origin > maxAge }
