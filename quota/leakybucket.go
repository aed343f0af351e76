package quota

// LeakyBucket spaces admitted requests evenly, Quota units per Window. One unit goes at
// once, and up to Burst more are admitted with a Decision.Delay, like limit_req of nginx
// with a burst and without nodelay. The caller must wait for that long. Further units are
// denied. Its state is two integers.
//
// It admits at most Burst + 1 + Quota·t/Window units in any time t. If every caller waits
// for its Delay, at most 1 + Quota·t/Window go. A charge of several units goes as one.
//
// A Burst of zero means Quota here, too. For no waiting line, use a TokenBucket with a
// Burst of 1.
const LeakyBucket Algorithm = 1
