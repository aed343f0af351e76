package heed

import "time"

// Keys is how many keys b keeps a balance for.
func (b *LocalBudget) Keys() int { return b.accounts.Len() }

// Now is the clock by which a LocalBudget divides TTL into tenths.
func Now() time.Duration { return now() }

// What an error says: that there was no connection, that nothing was sent, that a retry is in vain.
var FailedDial, NotSent, FinalError = failedDial, notSent, finalError
