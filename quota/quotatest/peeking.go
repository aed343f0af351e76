package quotatest

import (
	"context"
	"errors"

	"github.com/heedhttp/heed/quota"
)

// peeking are the tests of a quota.Peeker.
var peeking = []test{
	{name: "Peek decides without taking anything", run: func(r *run) {
		if !r.peeks() {
			return
		}
		c, other := r.charge("key", 2, quota.PerSecond(3)), r.charge("other", 1, quota.PerHour(1))
		for range 3 {
			if ds := r.peek(c, other); !ds[0].Allowed || ds[0].Remaining != 3 || ds[0].ResetAfter != 0 ||
				ds[0].NextAfter != 0 || ds[1].Remaining != 1 {
				r.t.Errorf("fresh: %+v", ds)
			}
		}
		r.allowed(c)
		for range 3 {
			if d := r.peek(c)[0]; d.Allowed || d.Remaining != 1 || d.RetryAfter != 333_334*µs || !d.At.Equal(r.now()) {
				r.t.Errorf("charged: %+v", d)
			}
		}
		r.move(333_334 * µs)
		if d := r.peek(c)[0]; !d.Allowed || d.Remaining != 2 {
			r.t.Errorf("later: %+v", d)
		}
		if _, err := r.store.(quota.Peeker).Peek(
			context.Background(), nil, quota.Charge{},
		); !errors.As(err, new(*quota.ChargeError)) {
			r.t.Errorf("without a Limit: %v", err)
		}
	}},
}
