package heed

import (
	"net/http"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// An interval is that at which a server admits requests, unless it counts in fixed windows:
// what is used of one comes back all at once.
type interval struct {
	policy   string // as the server calls it, with its partition
	quota    int64
	every    time.Duration
	believed bool          // the server says that it counts so, or its answers show it
	reported bool          // its answers tell what is left
	left     int64         // what the newest one told, less what was sent since
	sent     time.Duration // when the request of that answer was sent
}

// boardInterval is one that a Board tells.
func boardInterval(every time.Duration) interval {
	if every <= 0 {
		return interval{}
	}
	return interval{every: min(every, longestCoolDown), believed: true}
}

// intervalOf is the longest of the policies that a response says are exhausted. One that is
// longer than a minute is no reason to be slow for hours.
func intervalOf(h http.Header) (i interval) {
	for _, l := range ratelimit.Parse(h, time.Time{}) {
		if l.Remaining != 0 || l.Quota <= 0 || l.Window <= 0 || l.Unit != "" || l.Algorithm == ratelimit.FixedWindow {
			continue // of tokens or bytes it is not known how many a request takes
		}
		every := l.Window / time.Duration(l.Quota)
		if every > longestInterval || l.Next < 0 || l.Next > 2*every+time.Second {
			continue // its next unit is too far away for a bucket's
		}
		i.add(interval{
			policy: policyOf(l), quota: l.Quota, every: every,
			believed: l.Algorithm != "",
		})
	}
	return i
}

func policyOf(l ratelimit.Limit) string { return l.Name + "\x00" + l.Partition }

// add keeps the longer interval, but one that is believed rather than one that is not, and
// the newer of one policy.
func (i *interval) add(other interval) {
	switch {
	case other.every <= 0:
	case i.every == 0, other.policy == i.policy && other.policy != "",
		other.believed && !i.believed, other.believed == i.believed && other.every > i.every:
		*i = other
	}
}

// learn takes note of what is left, as a good answer tells it, less what is not to be used:
// what requests under way need and, while others wait, one unit, so that a server that counts
// a little more, or a network that brings two at once, does not refuse. An interval was a guess until here: a bucket has
// little right after it was empty, and a new window nearly all.
func (i *interval) learn(a answer, reserve int) {
	if i.every == 0 {
		return
	}
	least := int64(-1)
	for _, l := range a.limits {
		if l.Unit != "" || l.Remaining < 0 {
			continue
		}
		if least < 0 || l.Remaining < least {
			least = l.Remaining
		}
		if !i.believed && policyOf(l) == i.policy {
			i.believed = l.Remaining < i.quota/2
			if !i.believed {
				*i = interval{}
				return
			}
		}
	}
	if i.reported = least >= 0; !i.reported {
		return
	}
	left := least - int64(reserve)
	if a.sent <= i.sent { // answers overtake each other: an older one may tell less, but not more
		left = min(left, i.left)
	}
	i.left, i.sent = left, max(i.sent, a.sent)
}
