package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/heedhttp/heed/quota"
)

// split returns an op for all charges, or on a Cluster or Ring one for those with the same hash tag, in the
// order of the call. Ops with small limits come first: they are the likeliest to be denied, and
// whatever was taken before a denial must be given back. A settle of no units is left out.
func (s *Store) split(v verb, within time.Duration, charges []quota.Charge) (parts []*op) {
	var tags []string
	for i, c := range charges {
		if v == settle && c.N == 0 {
			continue
		}
		tag := ""
		if s.redis().single == nil {
			tag = tagOf(s.prefix() + c.Key)
		}
		at := slices.Index(tags, tag)
		if at < 0 {
			at = len(tags)
			tags, parts = append(tags, tag), append(parts, newOp(v, within))
		}
		o := parts[at]
		o.charges, o.places = append(o.charges, c), append(o.places, i)
	}
	slices.SortStableFunc(parts, func(o, p *op) int { return cmp.Compare(o.atOnce(), p.atOnce()) })
	return parts
}

// atOnce returns the smallest AtOnce of the limits of o.
func (o *op) atOnce() (least int64) {
	least = exact
	for i := range o.charges {
		least = min(least, o.charges[i].Limit.AtOnce())
	}
	return least
}

// makeAll makes the charges of all parts of a call, or of none if one part is denied, and fills in all
// answers. After a denial, it gives back the parts before, and answers them and the parts after it by
// a peek.
func (s *Store) makeAll(ctx context.Context, parts []*op) (allowed bool, err error) {
	if len(parts) > 1 && parts[0].verb == reserve {
		if allowed, err := s.query(ctx, parts); err != nil || !allowed {
			return false, err
		}
	}
	denied := len(parts)
	for i, o := range parts {
		if err := s.ask(ctx, o); err != nil {
			if lost := s.giveBack(ctx, parts[:i]); lost != nil {
				err = partial{join(err, lost)}
			}
			return false, err
		}
		if !o.allowed && o.verb != peek {
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
	for i, o := range parts {
		if i == denied {
			continue
		}
		was := o.verb
		o.verb = peek
		if err := s.ask(ctx, o); err != nil {
			return false, err
		}
		if was == reserve { // op.after computes a wait for it only as a reserve
			o.verb, o.allowed = reserve, false
		}
	}
	return false, nil
}

// query reports whether all parts of a reservation fit, and fills in all answers. What a reservation takes from
// a later window cannot be given back without a trace: the count of the present window is gone. So a part is
// reserved only if the others fit, too.
func (s *Store) query(ctx context.Context, parts []*op) (allowed bool, err error) {
	allowed = true
	for _, o := range parts {
		o.verb = query
		err := s.ask(ctx, o)
		o.verb = reserve
		if err != nil {
			return false, err
		}
		allowed = allowed && o.allowed
	}
	for _, o := range parts {
		o.allowed = allowed
	}
	return allowed, nil
}

// giveBack refunds what parts took, even if ctx has ended or the server of another part is down. While
// a server does not answer, it first waits within the timeout for a probe to succeed.
func (s *Store) giveBack(ctx context.Context, parts []*op) error {
	var faults []error
	for _, o := range parts {
		back := o.undoing()
		if back == nil {
			continue
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.client.timeout)
		_ = s.client.serverOf(s.prefix() + back.charges[0].Key).WaitReady(within) // ask returns the same error
		faults = append(faults, s.ask(within, back))
		cancel()
	}
	return join(faults...)
}

// A partial error means that some charges of a call may have been made. errors.Is sees the error
// inside, but errors.As does not: a redis.Error would mean that no charge was made.
type partial struct{ error }

func (p partial) Is(target error) bool { return errors.Is(p.error, target) }

// join is errors.Join, but returns a single error unchanged.
func join(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
