package heed

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// A denial is what is known of a policy of which nothing was left when a request was
// refused.
//
// A server has several policies, and it is one of them that denies, or some. Which of
// them the next request meets nobody can know before the answer: it depends on routes
// and partitions that no field tells. Only Transport.Key tells such requests apart. So
// all requests of a key wait until each policy that denied one of them has something
// again, and are then let go at the interval of the slowest of these that is not whole
// by then; policies that were told and did not deny slow nobody down.
type denial struct {
	policy string        // as the server calls it; "" if that is not known
	every  time.Duration // the interval at which it admits requests
	whole  time.Duration // until its quota is whole again
}

// mostDenials is how many of them a lane remembers: no server has as many policies.
const mostDenials = 16

// denials are those of a's response that come back unit by unit. A window comes back
// whole, and so does what tells nothing; and of tokens or bytes it is not known how many
// a request takes.
func (a *Attempt) denials() (all []denial) {
	for _, l := range ratelimit.Parse(a.Response.Header, time.Time{}) {
		if l.Remaining != 0 || l.Quota <= 0 || l.Window <= 0 || l.Unit != "" {
			continue
		}
		if every := l.Window / time.Duration(l.Quota); 0 <= l.Next && l.Next <= 2*every+time.Second {
			all = append(all, denial{l.Name + "\x00" + l.Partition, every, max(l.Next+l.Window, l.Reset)})
		}
	}
	return all
}

// slowest is the longest interval of those that are not whole at that time; 0 if there
// is none.
func slowest(all []denial, at time.Duration) (every time.Duration) {
	for _, d := range all {
		if d.whole > at {
			every = max(every, d.every)
		}
	}
	return every
}

// unnamed is what a Board tells, which knows of keys, and not of policies.
func unnamed(every time.Duration) []denial {
	if every <= 0 {
		return nil
	}
	return []denial{{"", every, never}}
}

// denyLocked remembers what denied a request. An answer that is newer tells more of the
// same policy; what denied before the lane was last open is forgotten.
func (l *lane) denyLocked(now time.Duration, all []denial) {
	if !l.closed.Load() || l.overLocked(now) {
		l.denials = l.denials[:0]
	}
	for _, d := range all {
		d.whole += now
		i := slices.IndexFunc(l.denials, func(old denial) bool { return old.policy == d.policy })
		switch {
		case i >= 0:
			l.denials[i] = d
		case len(l.denials) < mostDenials:
			l.denials = append(l.denials, d)
		}
	}
}
