package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/heedhttp/heed/quota"
)

// A part is an op on the charges of a call that one script can make: all of them, or on a Cluster or
// Ring those whose Keys have one hash tag. They are in the order of the call.
type part struct {
	*op
	question
	places []int // of its charges in the call
	tag    string
	atOnce int64 // the smallest of their limits' AtOnce
}

// split divides charges into parts, each a copy of like, an op without charges. Those with the
// smallest limits are first: they are the likeliest to be denied, and what others took before would
// have to be given back.
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

// askAll makes the charges of all parts, or if one part is denied of none, and has all answered. Parts
// that were made before that one are given back, and answered anew by a peek, as are those after it.
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
	p.question = s.denials.ask(p.charges, s.time())
	return s.ask(ctx, p.op)
}

// peekAll has each of parts answered by a peek. Those of a take become peeks: see op.made.
func (s *Store) peekAll(ctx context.Context, parts []part) error {
	for i := range parts {
		p := &parts[i]
		was := p.verb
		p.verb = peek
		if err := s.askPart(ctx, p); err != nil {
			return err
		}
		if was == reserve { // or else op.after would compute no wait
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

// decisions appends those of all parts to dst, each where its charge stood.
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
