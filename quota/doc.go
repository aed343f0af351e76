// Package quota counts: how much of a limit is used, and when more units come back. It
// knows nothing of HTTP.
//
//	limit, err := quota.PerMinute(60).Compile()
//	if err != nil {
//		log.Fatal(err)
//	}
//	var store quota.Memory
//	decisions, err := store.Take(ctx, nil, quota.Charge{Key: "alice", Limit: limit})
//	if err == nil && !decisions[0].Allowed {
//		fmt.Println("try again in", decisions[0].RetryAfter)
//	}
//
// A [Policy] is a limit as people write it, and [Policy.Compile] makes a [Limit] of it. A
// [Charge] asks a [Store] for units of a Limit on behalf of a key, and a [Decision] is
// the answer. [Memory] is the Store of one process; package redisstore has one that
// processes share. Package quotatest tests Stores.
//
// # Algorithms
//
// The doc of each [Algorithm] says what it stores and what it admits at worst;
// docs/algorithms.md compares them, with a picture:
//
//	TokenBucket    Burst at once, then Quota per Window; the default
//	LeakyBucket    the same, but admitted requests wait, so that they are evenly spaced
//	FixedWindow    Quota in each minute, or day, week or month of a Calendar
//	SlidingWindow  Quota in a Window, estimated from two counts
//	SlidingLog     Quota in any Window, exactly
//
// The methods Drain, Wait, Delay, Try, TryWithin, Settle, Describe and Whole of a [Limit]
// compute them, for implementations of Store. They are pure functions of a [Bucket], a
// number of units and a time, so that Memory, the Redis scripts and tests count alike.
//
// # Arithmetic
//
// A bucket stores what is owed rather than what is left, so an unknown key owes nothing.
// It consists of two integers: a time, rounded to a tick, and a level, in parts of 1/Unit
// of a unit of quota. With Quota/Window reduced to Rate/Unit per tick,
//
//	level(now)  = max(0, level - (now - time)·Rate)         or level, if now is before time
//	n units fit   if level + n·Unit ≤ Capacity              and are added to level
//	Remaining   = ⌊(Capacity - level) / Unit⌋
//	RetryAfter  = ⌈(level + n·Unit - Capacity) / Rate⌉      ticks
//	ResetAfter  = ⌈level / Rate⌉                            ticks
//	Delay       = ⌈level / Rate⌉                            ticks, of a LeakyBucket
//
// where Capacity is Burst·Unit, or (Burst+1)·Unit of a LeakyBucket. So no rate is rounded
// and no sum drifts. A caller that waits exactly RetryAfter is admitted, unless another
// one came first; a caller that comes a microsecond early is not.
//
// A SlidingWindow computes its weights in integers, too. With e elapsed ticks of the W in
// a Window,
//
//	n units fit   if Prev·(W - e) ≤ (Quota - Level - n)·W
//	RetryAfter  = until e = W - ⌊(Quota - Level - n)·W / Prev⌋
//
// and if that is not in this window, the same in the next one, with Level for Prev.
//
// A tick is 1 µs, or the shortest of 10 µs, 100 µs, 1 ms … 1 s for which all these
// numbers stay below 2^53, so that they are exact in Redis' Lua, too. The reduced
// fractions of the usual policies are small: at 60 per minute a token is 1,000,000 parts,
// and 1 part drains per µs; 99,991 per day, a prime, still fits 1 µs with a level of up
// to 8.6·10^15; 1,000,003 per day is counted in ticks of 10 µs. Compile rejects a policy
// for which no tick will do.
//
// # Changes
//
// [Limit.Shape] says how a stored [Bucket] reads. Limits of one Name and one Shape share a
// count: 10 in a fixed minute and 20 in a fixed minute, or two buckets of one rate. If a
// Policy changes its Shape and keeps its Name, its new count begins with what the old one
// owes, in whole units, rounded up: 60 owed at 60 per minute are 60 owed at 601 per minute.
//
// While two versions of a program run, both counts stay. Each Limit decides by its own, and
// what is charged on one is charged on the other ([Limit.Follow]), so that the two together
// admit no more than each alone would. Each goes on at its own rate: 10 per day that becomes 10
// per hour admits 10 after an hour, though the old count still owes. They are forgotten together,
// when none owes anything.
//
// # Debt
//
// Settle may charge more than fits. The debt of a bucket is then paid back by all later
// callers, so it ends at [Limit.MaxDebt]: what comes back in ten Windows, or in a day if that
// is shorter, beyond Capacity. A [DebtError] says what was cut. Windows and logs forget any
// debt with the Window.
//
// # Clocks
//
// If a Store's clock is set back, or another server's clock takes over, a state may lie
// in the future. Its [Bucket.Ahead] says whether it was reserved for then; the rest was the
// clock. What was used then counts as used now: buckets, windows and logs go on as if the clock
// had stood still. No units come back because of it, and nobody waits for the clock to catch up.
// A window that was reserved ahead stays as far ahead as it was, at most a day.
package quota
