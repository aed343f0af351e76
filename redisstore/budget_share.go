package redisstore

// A share is what one process may spend while Redis is lost. All amounts are in
// units, all times in milliseconds of now.
type share struct {
	given int64 // of the balance that Redis last told
	until int64 // when that is void

	floor   int64 // of the floor's part, at floorAt
	floorAt int64
	rate    int64
	most    int64

	earned [10]tenth // by this process alone, not sent
	owed   int64     // spent of given and floor, not charged yet
}

// A tenth is what was earned in a tenth of TTL.
type tenth struct{ index, units int64 }

// newShare is the share of each of a.processes when Redis answered a.
func newShare(b *Budget, a answer, now int64) share {
	s := share{
		given:   a.balance / a.processes,
		until:   now + 10*b.tenth(),
		floorAt: now,
		rate:    b.rate() / a.processes,
	}
	if b.most() > 0 {
		s.most = max(retry, b.most()/a.processes)
	}
	return s
}

func (s *share) earn(index, units int64) {
	t := &s.earned[index%10]
	if t.index != index {
		*t = tenth{index: index}
	}
	t.units += units
}

// withdraw pays for a retry with what is void first, and reports whether it could.
func (s *share) withdraw(now, index int64) bool {
	s.advance(now)
	if s.given+s.alive(index)+s.floor < retry {
		return false
	}
	price := int64(retry)
	s.owed += moveUnits(&s.given, &price)
	for i := index - 9; i <= index; i++ {
		if t := &s.earned[i%10]; t.index == i {
			moveUnits(&t.units, &price)
		}
	}
	s.owed += moveUnits(&s.floor, &price)
	return true
}

// moveUnits moves as much as there is from purse to price, and returns how much.
func moveUnits(purse, price *int64) int64 {
	part := min(*purse, *price)
	*purse -= part
	*price -= part
	return part
}

// advance brings given and floor up to now. What was spent of a balance that is
// void by now, in Redis as well, is no longer owed; and no more is than the part
// of the floor, which filled up meanwhile.
func (s *share) advance(now int64) {
	if now >= s.until {
		s.given, s.owed = 0, min(s.owed, s.most)
	}
	if since := now - s.floorAt; s.rate > 0 && since > 0 {
		s.floor = min(s.most, s.floor+s.rate*min(since, s.most/s.rate+1))
		s.floorAt = now
	}
}

// alive is what was earned and can still be spent.
func (s *share) alive(index int64) (units int64) {
	for _, t := range s.earned {
		if index-t.index < 10 {
			units += t.units
		}
	}
	return units
}
