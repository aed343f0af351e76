// Package quota counts: how much of a limit has been used, and when more may be.
// It knows nothing of HTTP.
//
// A [Policy] is a limit as people write it, and [Policy.Compile] makes a [Limit]
// of it. A [Charge] asks a [Store] for units of a Limit on behalf of a key, and a
// [Decision] is the answer. [Memory] is the Store of one process; package
// redisstore has one for several. Package quotatest holds Stores to all of this.
//
// # Algorithms
//
// Each [Algorithm] says at its constant what it keeps and what it admits at worst;
// docs/algorithms.md compares them, with a picture:
//
//	TokenBucket    Burst at once, then Quota per Window; the default
//	LeakyBucket    the same, but what is admitted waits for its turn
//	FixedWindow    Quota in each minute, or day, week or month of a Calendar
//	SlidingWindow  Quota in a Window, as far as two counts can tell
//	SlidingLog     Quota in any Window, exactly
//
// They are pure functions of a [Limit], a [Bucket], a number of units and a time,
// so that Memory, the scripts of Redis and tests can count alike: Drain, Wait,
// Delay, Try, TryWithin, Settle, Describe and Whole.
//
// # Arithmetic
//
// A bucket is kept as what is owed rather than as what is left, so that nothing
// owed is the same as nothing known. It is two integers: a time, in ticks, and a
// level, in parts of 1/Unit of a unit of quota. With Quota/Window reduced to
// Rate/Unit per tick,
//
//	level(now)  = max(0, level - (now - time)·Rate)         or level, if now is before time
//	n units fit   if level + n·Unit ≤ Capacity              and are added to level
//	Remaining   = ⌊(Capacity - level) / Unit⌋
//	RetryAfter  = ⌈(level + n·Unit - Capacity) / Rate⌉      ticks
//	ResetAfter  = ⌈level / Rate⌉                            ticks
//	Delay       = ⌈level / Rate⌉                            ticks, of a LeakyBucket
//
// where Capacity is Burst·Unit, or (Burst+1)·Unit of a LeakyBucket. So no rate is
// rounded, and no sum drifts. A caller that waits exactly RetryAfter is admitted,
// unless another was in between; one that comes a microsecond early is not.
//
// A SlidingWindow weighs in integers too: with e ticks gone of the W that a Window
// has,
//
//	n units fit   if Prev·(W - e) ≤ (Quota - Level - n)·W
//	RetryAfter  = until e = W - ⌊(Quota - Level - n)·W / Prev⌋
//
// and in the next window, if that is not this one, with Level for Prev.
//
// A tick is 1 µs, or the shortest of 10 µs, 100 µs, 1 ms … 1 s with which all
// these numbers stay below 2^53 and are exact in the Lua of Redis too. The reduced
// fractions of the usual policies are small: at 60 per minute a token is 1,000,000
// parts of which 1 drains per µs; 99,991 per day, a prime, still fits 1 µs with a
// level of up to 8.6·10^15, and 1,000,003 per day is counted in ticks of 10 µs. A
// policy for which no tick will do is refused by Compile.
//
// # Changes
//
// A stored [Bucket] carries its Unit. If the numbers of a Policy change while its
// Name stays, what is owed is converted: 60 units owed at 60 per minute are 60
// units owed at 601 per minute. So a reload forgives nothing, and replicas with
// different numbers, in the middle of a roll-out, do not multiply anything. The
// same goes for a change of Algorithm: the units that one counted are owed to the
// other, a window's as of its beginning, a log's as of its newest entry. A state is
// forgotten when nothing would be owed by the numbers it was last charged with.
//
// # Clocks
//
// If a Store's clock is set back, or another server's clock takes over, a state may be
// of a time to come. A bucket then owes now what it owed at that time, and goes on
// draining: nobody waits for the clock. A window or a log waits for that time, since
// its units may have been reserved for then, and the limit would be exceeded if they
// were forgotten. So a window admits nothing, and a log counts its units longer, for as
// long as the clock was set back, a day at most: nothing is reserved further ahead, and
// a state of a later time, whatever the Algorithm, owes nothing.
package quota
