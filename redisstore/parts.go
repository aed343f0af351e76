package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/heedhttp/heed/quota"
)

// A part is an op on those charges of a call that one script can make: all charges, or on a Cluster
// or Ring those with the same hash tag. They keep the order of the call.
type part struct {
	*op
	denialRead
	places []int // of its charges in the call
	tag    string
	atOnce int64 // the smallest AtOnce of their limits
}

// split divides charges into parts. Each is a copy of like, which has no charges. Parts with small
// limits come first: they are the likeliest to be denied, and whatever was taken before a denial must
// be given back.
func (s *Store) split(like op, charges []quota.Charge) (parts []part) {
	single := s.redis().single != nil
	for i, c := range charges {
		tag := ""
		if !single {
			tag = tagOf(s.prefix() + c.Key)
		}
		at := slices.IndexFunc(parts, func(p part) bool { return p.tag == tag })
		if at < 0 {
			at = len(parts)
			o := like
			parts = append(parts, part{op: &o, tag: tag, atOnce: c.Limit.AtOnce()})
		}
		p := &parts[at]
		p.charges, p.places = append(p.charges, c), append(p.places, i)
		p.atOnce = min(p.atOnce, c.Limit.AtOnce())
	}
	slices.SortStableFunc(parts, func(p, q part) int { return cmp.Compare(p.atOnce, q.atOnce) })
	return parts
}

// askAll makes the charges of all parts, or of none if one part is denied, and fills in all answers. After
// a denial, it gives back the parts before, and answers them and the parts after it by a peek.
func (s *Store) askAll(ctx context.Context, parts []part) (allowed bool, err error) {
	denied := len(parts)
	for i := range parts {
		if err := s.askPart(ctx, &parts[i]); err != nil {
			if lost := s.giveBack(ctx, parts[:i]); lost != nil {
				err = partial{join(err, lost)}
			}
			return false, err
		}
		if !parts[i].allowed && parts[i].verb != peek {
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
	return false, join(s.peekAll(ctx, parts[:denied]), s.peekAll(ctx, parts[denied+1:]))
}

func (s *Store) askPart(ctx context.Context, p *part) error {
	p.denialRead = s.denials.read(p.charges, s.time())
	return s.ask(ctx, p.op)
}

// peekAll answers parts by a peek. A take becomes a peek: see op.made.
func (s *Store) peekAll(ctx context.Context, parts []part) error {
	for i := range parts {
		p := &parts[i]
		was := p.verb
		p.verb = peek
		if err := s.askPart(ctx, p); err != nil {
			return err
		}
		if was == reserve { // op.after computes a wait for it only as a reserve
			p.verb, p.allowed = reserve, false
		}
	}
	return nil
}

// giveBack refunds what parts took, even if ctx has ended or the server of another part is down.
func (s *Store) giveBack(ctx context.Context, parts []part) error {
	var faults []error
	for i := range parts {
		if back := parts[i].revocation(); len(back.charges) > 0 {
			faults = append(faults, s.askPatiently(context.WithoutCancel(ctx), back))
		}
	}
	return join(faults...)
}

// decisions appends the decisions of all parts to dst, in the order of the call's charges.
func decisions(dst []quota.Decision, parts []part, n int) []quota.Decision {
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	for _, p := range parts {
		for i, place := range p.places {
			dst[start+place] = p.decision(i)
		}
	}
	return dst
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
