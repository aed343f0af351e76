package quota

// LeakyBucket spaces evenly what it admits, Quota units per Window: one unit is
// let through at once, and up to Burst more are admitted to wait for their turn,
// which Decision.Delay says, as limit_req of nginx does with a burst and without
// nodelay. Whoever asks does the waiting. The next one is denied. Its state is two
// integers.
//
// It admits at most Burst + 1 + Quota·t/Window units in any time t, and if each
// waits for its turn, lets through at most 1 + Quota·t/Window: of several units at a
// time, those behind the first have its turn.
//
// A Burst of zero means Quota here too. Without a waiting line, use a TokenBucket with a
// Burst of 1.
const LeakyBucket Algorithm = 1
