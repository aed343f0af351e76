package heed

import "time"

// Keys is how many keys b keeps a balance for.
func (b *LocalBudget) Keys() int { return b.accounts.Len() }

// Now is the clock by which a LocalBudget divides TTL into tenths.
func Now() time.Duration { return now() }
