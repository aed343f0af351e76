package redisstore

import "time"

// A share is what one process may spend while Redis does not answer. All amounts are in units.
type share struct {
	processes int64  // how many draw on the budget; 0 if Redis has never answered
	given     tenths // this process's part of the balance that Redis reported
	floor     int64  // this process's part of the floor, at floorAt
	floorAt   time.Duration
	earned    tenths // by requests of this process, not sent to Redis yet
	owed      tenths // spent from given and floor, not charged in Redis yet
}

// withdraw pays for a retry, from given first and from the floor last, and reports whether there was
// enough. If Redis has charged the retry, nothing is owed for it.
func (s *share) withdraw(b *Budget, now time.Duration, charged bool) bool {
	if s.balance(b, now) < retry {
		return false
	}
	index := b.index(now)
	rest := s.given.spend(index, retry)
	ofFloor := s.earned.spend(index, rest)
	s.floor -= ofFloor
	if !charged {
		s.owed.add(index, retry-rest+ofFloor)
	}
	return true
}

// balance returns what may be spent now.
func (s *share) balance(b *Budget, now time.Duration) int64 {
	s.fillFloor(b, now)
	index := b.index(now)
	return s.given.sum(index) + s.earned.sum(index) + s.floor
}

// refund undoes withdraw. What is left of units was taken from Redis, or has expired.
func (s *share) refund(b *Budget, index, units int64) {
	units = s.earned.refund(index, units)
	units -= s.owed.spend(index, units)
	_, most := b.partOfFloor(s.processes)
	s.floor = min(most, s.floor+s.given.refund(index, units))
}

// fillFloor adds to the floor what it gained until now. A zero share gets a full floor.
func (s *share) fillFloor(b *Budget, now time.Duration) {
	rate, most := b.partOfFloor(s.processes)
	if ms := (now - s.floorAt).Milliseconds(); rate > 0 && ms > 0 {
		s.floor = min(most, s.floor+rate*min(ms, most/rate+1))
		s.floorAt += time.Duration(ms) * time.Millisecond
	}
}

// partOfFloor returns what one process's part of the floor gains in a millisecond, and what it
// holds: at least one retry, or it would never pay for one. If the number of processes is unknown,
// the part is one retry for each TTL: with none, a client with few requests could retry nothing;
// with more, a fleet that starts without Redis would send many times its requests to a server
// that is down.
func (b *Budget) partOfFloor(processes int64) (rate, most int64) {
	switch {
	case b.rate() == 0:
		return 0, 0
	case processes == 0:
		return min(b.rate(), retry/(10*b.tenth().Milliseconds())), retry
	}
	return b.rate() / processes, max(retry, b.most()/processes)
}

// tenths are units by the tenth of TTL in which they came, each valid for ten tenths, its own
// included. An index is the number of a tenth.
type tenths [10]struct{ index, units, spent int64 }

func (t *tenths) add(index, units int64) {
	slot := &t[index%10]
	if slot.index != index {
		slot.index, slot.units, slot.spent = index, 0, 0
	}
	slot.units += units
}

// sum returns the units that are valid at index.
func (t *tenths) sum(index int64) (units int64) {
	for _, slot := range t {
		if index-slot.index < 10 {
			units += slot.units
		}
	}
	return units
}

// spend takes price from the units that expire first, and returns the part that was missing.
func (t *tenths) spend(index, price int64) (rest int64) {
	for i := index - 9; i <= index; i++ {
		if slot := &t[i%10]; slot.index == i {
			part := min(price, slot.units)
			slot.units -= part
			slot.spent += part
			price -= part
		}
	}
	return price
}

// refund undoes spend, the last first, and returns the part that was not spent of valid units.
func (t *tenths) refund(index, units int64) (rest int64) {
	for i := index; i > index-10; i-- {
		if slot := &t[i%10]; slot.index == i {
			part := min(units, slot.spent)
			slot.units += part
			slot.spent -= part
			units -= part
		}
	}
	return units
}
