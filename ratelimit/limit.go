package ratelimit

import (
	"cmp"
	"time"
)

// A Limit is the state of one policy at one moment: what Parse returns and Set writes. An
// unknown field is 0 or "", or -1 where 0 has a meaning.
//
// Set clamps numbers to [0, 999999999999999], the range of an Integer of RFC 9651.
type Limit struct {
	Name      string        // the policy's name; if empty, "default"
	Unit      string        // what is counted, such as "tokens"; if empty, requests
	Partition string        // the partition key: whose quota this is; any bytes
	Quota     int64         // units per window; 0 if unknown
	Window    time.Duration // 0 if unknown
	Remaining int64         // units left; -1 if unknown
	Next      time.Duration // from At until Remaining+1 units fit; 0 if all of Quota is left; -1 if unknown
	Reset     time.Duration // from At until all of Quota is left; -1 if unknown
	Cost      int64         // units that the request took; 0 if unknown; Set does not write it
	Algorithm string        // how units come back: TokenBucket or another of the constants; "" if unknown
	At        time.Time     // when the server decided, or when the client received the response
}

// Wait returns how long after At no request will be admitted. It is 0 if something is
// left, or if Remaining is unknown. If Next is unknown it is Reset: a fixed window admits
// nothing before its end.
func (l *Limit) Wait() time.Duration {
	if l.Remaining != 0 {
		return 0
	}
	return max(l.until(), 0)
}

// until returns the time until more is left than now, or unknown.
func (l *Limit) until() time.Duration {
	if l.Next >= 0 {
		return l.Next
	}
	return max(l.Reset, unknown)
}

// whole fills in Next and Reset if all of the quota is left.
func (l *Limit) whole() {
	if l.Quota > 0 && l.Remaining >= l.Quota {
		l.Next, l.Reset = max(l.Next, 0), max(l.Reset, 0)
	}
}

// tightness orders limits by how soon they refuse: the smallest part of the quota first,
// and of equal parts the longest wait. Unknown states come last. The other fields break
// ties, because limits are collected from a map.
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

// left returns the part of the quota that is left, or more than 1 if it is unknown.
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
