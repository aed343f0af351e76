package redisstore

import (
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// What is revoked of a charge: if its cell has still the value it was left with, it
// gets back the one it had, and it is as if the charge had never been made. Otherwise
// others have charged it since, and what was taken is refunded. It is said once for a
// cell, with the first charge; the zero value says nothing.
type revoked struct{ left, before string }

// revocation is the errand that takes back what e took, if it took anything.
func (e *errand) revocation() *errand {
	back := &errand{verb: toRevoke}
	for i := range e.charges {
		if e.took(i) {
			back.revoke(e.charges[i], e.now, &e.visits[i])
		}
	}
	return back
}

// revoke adds c, which took what v says.
func (e *errand) revoke(c quota.Charge, now int64, v *visit) {
	first := slices.IndexFunc(e.charges, func(d quota.Charge) bool { return d.SameBucket(&c) })
	c.N, c.At = -c.Units(), time.UnixMicro(now).Add(v.wait)
	e.charges, e.revoked = append(e.charges, c), append(e.revoked, revoked{})
	if first < 0 {
		first = len(e.charges) - 1
		e.revoked[first].before = encode(v.before)
	}
	e.revoked[first].left = encode(v.after)
}

// restore undoes the charges of e on c, if nothing else has charged it since, and
// reports whether they are undone.
func (c *cell) restore(e *errand, r revoked) bool {
	if r.left != "" && c.value == r.left && !c.changed {
		c.bucket, _ = believed(r.before, e.now)
		c.changed, c.revoked = true, e
	}
	return c.revoked == e
}
