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
// A stored [Bucket] carries its Unit. If the numbers of a Policy change while its Name
// stays, what is owed is converted: 60 units owed at 60 per minute are 60 units owed at
// 601 per minute. So a reload forgives nothing, and replicas with different numbers
// during a roll-out multiply nothing. The same holds for a change of Algorithm: the units
// that one counted are owed to the other, those of a window from its start, those of a
// log from its newest entry. A state is forgotten when nothing would be owed by the
// numbers it was last charged with.
//
// # Clocks
//
// If a Store's clock is set back, or another server's clock takes over, a state may lie
// in the future. A bucket then owes now what it owed at that time, and keeps draining:
// nothing waits for the clock. A window or a log waits for that time, because its units
// may have been reserved for then, and forgetting them would exceed the limit. So while
// the clock catches up, a window admits nothing and a log counts its units longer. That
// takes at most a day: nothing is reserved further ahead, and a state of a later time,
// whatever the Algorithm, owes nothing.
package quota
