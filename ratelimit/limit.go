package ratelimit

import (
	"cmp"
	"time"
)

// A Limit is the state of one policy at one moment, as the header fields tell
// it. What they do not tell is 0 or "", but -1 where 0 has a meaning. Set writes
// negative numbers as 0, and those of more than 15 digits as 999999999999999, the
// largest Integer of RFC 9651.
type Limit struct {
	Name      string        // the policy's name; if empty, "default"
	Unit      string        // what is counted, such as "tokens"; if empty, requests
	Partition string        // the partition key: whose quota this is; any bytes
	Quota     int64         // units per window; 0 if unknown
	Window    time.Duration // 0 if unknown
	Remaining int64         // units left; -1 if unknown
	Next      time.Duration // from At until one more unit than Remaining fits; 0 if the quota is whole; -1 if unknown
	Reset     time.Duration // from At until the quota is whole again; -1 if unknown
	Cost      int64         // units that the request took; 0 if unknown; Set does not write it
	Algorithm string        // how units come back: TokenBucket or another of the constants; "" if unknown
	At        time.Time     // the moment of the decision, or when the response was received
}

// Wait returns how long, from At, there is nothing to be had: 0 if something is
// left, or if it is not known that nothing is. Where only Reset is known, it is
// that: servers whose windows are fixed have nothing to give before.
func (l *Limit) Wait() time.Duration {
	if l.Remaining != 0 {
		return 0
	}
	return max(l.until(), 0)
}

// until returns how long it is until more is left than now, or unknown.
func (l *Limit) until() time.Duration {
	if l.Next >= 0 {
		return l.Next
	}
	return max(l.Reset, unknown)
}

// whole completes what is known of l if all of its quota is left.
func (l *Limit) whole() {
	if l.Quota > 0 && l.Remaining >= l.Quota {
		l.Next, l.Reset = max(l.Next, 0), max(l.Reset, 0)
	}
}

// tightness orders limits, the tightest first: what is used up, the longest wait
// first; then by the part of the quota that is left; then those of which less is
// known. What is equal is told apart, since the order must not depend on that of
// a map.
func tightness(a, b Limit) int {
	return cmp.Or(
		cmp.Compare(a.left(), b.left()),
		cmp.Compare(b.until(), a.until()),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Unit, b.Unit),
		cmp.Compare(a.Partition, b.Partition),
		cmp.Compare(a.Quota, b.Quota),
		cmp.Compare(a.Window, b.Window),
		cmp.Compare(a.Remaining, b.Remaining),
		cmp.Compare(a.Cost, b.Cost),
		cmp.Compare(a.Algorithm, b.Algorithm),
	)
}

// left is the part of the quota that is left: more than 1 if it is not known.
func (l *Limit) left() float64 {
	switch {
	case l.Remaining < 0:
		return 3
	case l.Remaining == 0:
		return 0
	case l.Quota <= 0:
		return 2
	}
	return min(float64(l.Remaining)/float64(l.Quota), 1)
}
