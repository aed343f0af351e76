package redisstore

import (
	"context"
	"time"

	"github.com/heedhttp/heed/quota"
)

// Denials are what a Store remembers, with times as a test has them: at and sent
// since some moment, now and over since the Unix epoch.
type Denials struct{ denials denials }

func (d *Denials) Decide(dst []quota.Decision, at time.Duration, charges ...quota.Charge) ([]quota.Decision, bool) {
	return d.denials.deny(dst, charges, at)
}

// Ask has answer called as Redis would be, and learns what it says.
func (d *Denials) Ask(sent time.Duration, answer func() (now, over time.Time, buckets []quota.Bucket), charges ...quota.Charge) {
	r := request{question: d.denials.ask(charges, sent)}
	now, over, buckets := answer()
	r.now, r.charges = now.UnixMicro(), charges
	for _, b := range buckets {
		r.visits = append(r.visits, visit{before: b})
	}
	d.denials.note(&r, over.Sub(now))
}

func (d *Denials) Forget(key string) { d.denials.forget(key) }

// SettleByLease settles c as a Lease of s does.
func SettleByLease(ctx context.Context, s *Store, c quota.Charge) error {
	return s.run(ctx, &errand{verb: toSettle, charges: []quota.Charge{c}})
}

// RememberBy has what s remembers go by another clock, as Redis does.
func RememberBy(s *Store, now func() time.Time) {
	begin := now().Add(-60 * 365 * 24 * time.Hour) // for a clock that is set back
	s.clock = func() time.Duration { return now().Sub(begin) }
}

// MostDenials is how many are remembered at most.
const MostDenials = denialSets * len(denialSet{}.slots)
