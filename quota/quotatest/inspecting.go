package quotatest

import (
	"cmp"
	"slices"

	"github.com/heedhttp/heed/quota"
)

// inspecting are the tests of a quota.Inspector.
var inspecting = []test{
	{name: "Inspect returns the counts of a key by name, and Reset forgets them", run: func(r *run) {
		if !r.inspects() {
			return
		}
		if states := r.inspect("key"); len(states) != 0 {
			r.t.Errorf("an unused key: %+v", states)
		}
		charges := r.charges(mixed)
		dry := charges[0]
		dry.DryRun = true
		charges = append(charges, dry)
		r.allowed(charges...)
		r.allowed(r.charge("other", 3, quota.PerDay(5)))
		slices.SortFunc(charges, func(c, d quota.Charge) int {
			return cmp.Or(cmp.Compare(c.Limit.Name(), d.Limit.Name()), boolean(c.DryRun)-boolean(d.DryRun))
		})
		states := r.inspect("key")
		if len(states) != len(charges) {
			r.t.Fatalf("%d states of %d", len(states), len(charges))
		}
		now := r.now().UnixMicro()
		for i, c := range charges {
			d := c.Limit.Describe(c.Limit.Drain(states[i].Bucket, now), now)
			if states[i].Name != c.Limit.Name() || states[i].DryRun != c.DryRun || d.Remaining != atOnce(c.Limit)-1 {
				r.t.Errorf("state %d is not of %s: %+v", i, c.Limit.Name(), states[i])
			}
		}
		r.reset("key")
		if states := r.inspect("key"); len(states) != 0 {
			r.t.Errorf("after Reset: %+v", states)
		}
		for _, c := range charges {
			r.remaining(atOnce(c.Limit), c)
		}
		r.remaining(2, r.charge("other", 1, quota.PerDay(5)))
		r.reset("nobody")
	}},
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
