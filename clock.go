package heed

import "time"

// epoch is long before any clock reading, outside a synctest bubble or inside,
// where time starts in the year 2000: so now is always positive. Add, and not
// AddDate, because it keeps the monotonic reading.
var epoch = time.Now().Add(-60 * 365 * 24 * time.Hour)

// now reads the monotonic clock, at half the cost of time.Now.
func now() time.Duration { return time.Since(epoch) }
