package cool

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// An Interval is the time between two requests that a server admits, if it counts in a bucket and
// not in fixed windows, whose units all come back at once.
type Interval struct {
	policy    string // the server's name for it, with its partition
	quota     int64
	every     time.Duration
	confirmed bool          // the server says that it uses a bucket, or its answers show it
	reported  bool          // the server's answers say how much is left
	left      int64         // what the newest one said, less what was sent since
	sent      time.Duration // when that answer's request was sent
}

// Every returns the time between two requests, or 0 if it is only a guess.
func (i Interval) Every() time.Duration {
	if !i.confirmed {
		return 0
	}
	return i.every
}

// BoardInterval returns the interval that a Board reports.
func BoardInterval(every time.Duration) Interval {
	if every <= 0 {
		return Interval{}
	}
	return Interval{every: min(every, LongestCoolDown), confirmed: true}
}

// IntervalOf returns the longest interval of the policies that a response reports as exhausted.
// Intervals longer than a minute are ignored, or requests would be slow for hours.
func IntervalOf(h http.Header) (i Interval) {
	for _, l := range ratelimit.Parse(h, time.Time{}) {
		if l.Remaining != 0 || l.Quota <= 0 || l.Window <= 0 || l.Unit != "" || l.Algorithm == ratelimit.FixedWindow {
			continue // it is unknown how many tokens or bytes a request needs
		}
		every := l.Window / time.Duration(l.Quota)
		if every > longestInterval || l.Next < 0 || l.Next > 2*every+time.Second {
			continue // a bucket would have its next unit sooner
		}
		i.add(Interval{
			policy: policyOf(l), quota: l.Quota, every: every,
			confirmed: l.Algorithm != "",
		})
	}
	return i
}

func policyOf(l ratelimit.Limit) string { return l.Name + "\x00" + l.Partition }

// add keeps the longer interval, but prefers a confirmed one, and the newer one of the same policy.
func (i *Interval) add(other Interval) {
	switch {
	case other.every <= 0:
	case i.every == 0, other.policy == i.policy && other.policy != "",
		other.confirmed && !i.confirmed, other.confirmed == i.confirmed && other.every > i.every:
		*i = other
	}
}

// learn records from a good answer how much is left. It subtracts reserve: what requests under way
// need and, while others wait, one unit more, because a server may count slightly more and a
// network may deliver two requests together. The first answer also shows whether the guess of a
// bucket was right: a bucket has little left right after it was empty, and a new window nearly all.
func (i *Interval) learn(a Answer, reserve int) {
	if i.every == 0 {
		return
	}
	least := int64(-1)
	for _, l := range a.Limits {
		if l.Unit != "" || l.Remaining < 0 {
			continue
		}
		if least < 0 || l.Remaining < least {
			least = l.Remaining
		}
		if !i.confirmed && policyOf(l) == i.policy {
			i.confirmed = 2*l.Remaining < i.quota
			if !i.confirmed {
				*i = Interval{}
				return
			}
		}
	}
	if i.reported = least >= 0; !i.reported {
		return
	}
	left := least - int64(reserve)
	if a.Sent <= i.sent { // this answer was overtaken by a newer one: it can only lower what is left
		left = min(left, i.left)
	}
	i.left, i.sent = left, max(i.sent, a.Sent)
}
