package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/redis/go-redis/v9"
)

// A part is those charges of a call that one script can make, in their order,
// and the answer to them.
type part struct {
	charges []quota.Charge
	places  []int // of charges in the call; nil if they are all there are
	burst   int64 // the smallest of their policies'
	answered
}

// split returns one part if there is one server for all charges, or one Key.
// Otherwise it returns one for each Key, the narrowest first, so that what is
// denied is denied before what is wide is taken.
func (s *Store) split(charges []quota.Charge) []part {
	if _, single := s.Client.(*redis.Client); single || oneKey(charges) {
		return []part{{charges: charges}}
	}
	var parts []part
	for i, c := range charges {
		at := slices.IndexFunc(parts, func(p part) bool { return p.charges[0].Key == c.Key })
		if at < 0 {
			at = len(parts)
			parts = append(parts, part{burst: c.Limit.Policy().Burst})
		}
		p := &parts[at]
		p.charges, p.places = append(p.charges, c), append(p.places, i)
		p.burst = min(p.burst, c.Limit.Policy().Burst)
	}
	slices.SortStableFunc(parts, func(p, q part) int { return cmp.Compare(p.burst, q.burst) })
	return parts
}

func oneKey(charges []quota.Charge) bool {
	return !slices.ContainsFunc(charges, func(c quota.Charge) bool { return c.Key != charges[0].Key })
}

// take makes all charges of parts if they fit within max, or none, and has each
// part answered. Parts that were made before one was denied are given back, and
// then say what they hold without them.
func (s *Store) take(ctx context.Context, parts []part, max time.Duration) (allowed bool, err error) {
	denied := len(parts)
	for i := range parts {
		if err := s.ask(ctx, &parts[i], max, true); err != nil {
			if lost := s.giveBack(ctx, parts[:i]); lost != nil {
				err = partial{join(err, lost)}
			}
			return false, err
		}
		if !parts[i].allowed {
			denied = i
			break
		}
	}
	if denied == len(parts) {
		return true, nil
	}
	if lost := s.giveBack(ctx, parts[:denied]); lost != nil {
		return false, partial{lost}
	}
	return false, join(s.look(ctx, parts[:denied], max), s.look(ctx, parts[denied+1:], max))
}

// look has each of parts answered, without taking.
func (s *Store) look(ctx context.Context, parts []part, max time.Duration) error {
	for i := range parts {
		if err := s.ask(ctx, &parts[i], max, false); err != nil {
			return err
		}
	}
	return nil
}

// giveBack refunds what parts took, even if the caller has gone, or another
// server than theirs.
func (s *Store) giveBack(ctx context.Context, parts []part) error {
	var faults []error
	for i := range parts {
		var refunds []quota.Charge
		for j, n := range parts[i].numbers {
			if c := parts[i].charges[j]; n.taken {
				c.N = -c.Units()
				refunds = append(refunds, c)
			}
		}
		faults = append(faults, s.settle(context.WithoutCancel(ctx), refunds, s.runAnyway))
	}
	return join(faults...)
}

// decisions appends those of all parts to dst, each where its charge stood.
func decisions(dst []quota.Decision, parts []part, n int) []quota.Decision {
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	for _, p := range parts {
		for i := range p.charges {
			place := i
			if p.places != nil {
				place = p.places[i]
			}
			dst[start+place] = p.decision(p.charges, i)
		}
	}
	return dst
}

// A partial error is that of a call some of whose charges may have been made. It
// is what it was for errors.Is, but not for errors.As: a redis.Error would say that
// none were.
type partial struct{ error }

func (p partial) Is(target error) bool { return errors.Is(p.error, target) }

// join is errors.Join, but leaves a single error as it is.
func join(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
