// Package quota counts: how much of a limit has been used, and when more may be.
// It knows nothing of HTTP.
//
// A [Policy] is a limit as people write it, and [Policy.Compile] makes a [Limit]
// of it. A [Charge] asks a [Store] for units of a Limit on behalf of a key, and a
// [Decision] is the answer. [Memory] is the Store of one process; package
// redisstore has one for several.
//
// # Arithmetic
//
// A token bucket is kept as what is owed rather than as what is left, so that
// nothing owed is the same as nothing known. It is two integers: a time, in ticks,
// and a level, in parts of 1/Unit of a unit of quota. With Quota/Window reduced to
// Rate/Unit per tick,
//
//	level(now)  = max(0, level - (now - time)·Rate)       time never runs backwards
//	n units fit   if level + n·Unit ≤ Burst·Unit          and are added to level
//	Remaining   = ⌊(Burst·Unit - level) / Unit⌋
//	RetryAfter  = ⌈(level + n·Unit - Burst·Unit) / Rate⌉  ticks
//	ResetAfter  = ⌈level / Rate⌉                          ticks
//
// so no rate is rounded, and no sum drifts. Who waits exactly RetryAfter is
// admitted, unless another was in between; who comes a microsecond early is not.
//
// A tick is 1 µs, or the shortest of 10 µs, 100 µs, 1 ms … 1 s with which all
// these numbers stay below 2^53 and are exact in the Lua of Redis too. The reduced
// fractions of the usual policies are small: at 60 per minute a token is 1,000,000
// parts of which 1 drains per µs; 99,991 per day, a prime, still fits 1 µs with a
// level of up to 8.6·10^15, and 1,000,003 per day is counted in ticks of 10 µs. A
// policy for which no tick will do is refused by Compile.
//
// A stored [Bucket] carries its Unit. If the numbers of a Policy change while its
// Name stays, what is owed is converted: 60 units owed at 60 per minute are 60
// units owed at 601 per minute. So a reload forgives nothing, and replicas with
// different numbers, in the middle of a roll-out, do not multiply anything. A
// bucket is forgotten when it would be whole by the numbers it was last charged
// with.
//
// # Bounds
//
// A token bucket admits at most Burst + Quota·t/Window units in any time t. With
// the default Burst, which is Quota, that is up to twice the Quota in the first
// Window. To admit no more than L in any Window W, choose Burst and Quota that
// add up to L.
package quota
