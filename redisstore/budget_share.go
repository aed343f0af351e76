package redisstore

import "time"

// A share is what one process may spend while Redis is lost. All amounts are in units.
type share struct {
	processes int64  // that draw on the budget; 0 if Redis never answered
	given     tenths // of the balance that Redis answered
	floor     int64  // of the floor's part, at floorAt
	floorAt   time.Duration
	earned    tenths // by this process alone, not sent
	owed      tenths // spent of given and floor, not charged yet
}

// withdraw pays for a retry, with what Redis gave first and the floor last, and reports
// whether there was enough. If the retry was charged, nothing is owed for it.
func (s *share) withdraw(b *Budget, now time.Duration, charged bool) bool {
	s.fillFloor(b, now)
	index := b.index(now)
	if s.given.sum(index)+s.earned.sum(index)+s.floor < retry {
		return false
	}
	rest := s.given.spend(index, retry)
	ofFloor := s.earned.spend(index, rest)
	s.floor -= ofFloor
	if !charged {
		s.owed.add(index, retry-rest+ofFloor)
	}
	return true
}

// fillFloor brings the floor up to now. Its zero value is full.
func (s *share) fillFloor(b *Budget, now time.Duration) {
	rate, most := b.partOfFloor(s.processes)
	if ms := (now - s.floorAt).Milliseconds(); rate > 0 && ms > 0 {
		s.floor = min(most, s.floor+rate*min(ms, most/rate+1))
		s.floorAt += time.Duration(ms) * time.Millisecond
	}
}

// partOfFloor returns what the floor of one of so many processes gains in a millisecond,
// and what it holds: at least one retry, or it would never pay one. A process that does not
// know how many there are has one retry in each TTL: with none, a client that sends few
// requests could repeat nothing; with more, a fleet that starts without Redis would send
// a server that is down many times its requests.
func (b *Budget) partOfFloor(processes int64) (rate, most int64) {
	switch {
	case b.rate() == 0:
		return 0, 0
	case processes == 0:
		return min(b.rate(), retry/(10*b.tenth().Milliseconds())), retry
	}
	return b.rate() / processes, max(retry, b.most()/processes)
}

// tenths are units by the tenth of TTL in which they came. They are in force for ten tenths,
// the first included. An index is the number of a tenth.
type tenths [10]struct{ index, units int64 }

func (t *tenths) add(index, units int64) {
	slot := &t[index%10]
	if slot.index != index {
		slot.index, slot.units = index, 0
	}
	slot.units += units
}

// sum is what is in force.
func (t *tenths) sum(index int64) (units int64) {
	for _, slot := range t {
		if index-slot.index < 10 {
			units += slot.units
		}
	}
	return units
}

// spend takes price from what expires first, and returns the part that was not there.
func (t *tenths) spend(index, price int64) (rest int64) {
	for i := index - 9; i <= index; i++ {
		if slot := &t[i%10]; slot.index == i {
			part := min(price, slot.units)
			slot.units -= part
			price -= part
		}
	}
	return price
}
