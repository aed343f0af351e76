package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/heedhttp/heed/quota"
	"github.com/redis/go-redis/v9"
)

// A part is a request with those charges of a call that one script can make, in their
// order.
type part struct {
	*call[request]
	places []int // of charges in the call; nil if they are all there are
	tag    string
	narrow int64 // the smallest of their limits' AtOnce
}

// split appends to parts what is to be done like an errand without charges: one part if
// there is one server for all charges, or they are in one slot. Otherwise there is one
// for each tag, the narrowest first, so that what is denied is denied before what is
// wide is taken.
func (s *Store) split(parts []part, like errand, charges []quota.Charge) []part {
	if _, single := s.Client.(*redis.Client); single || len(charges) < 2 || s.together(charges) {
		c := s.newRequest(like)
		c.work.charges = append(c.work.charges, charges...)
		return append(parts, part{call: c})
	}
	for i, c := range charges {
		tag := tagOf(s.prefix() + c.Key)
		at := slices.IndexFunc(parts, func(p part) bool { return p.tag == tag })
		if at < 0 {
			at = len(parts)
			parts = append(parts, part{call: s.newRequest(like), tag: tag, narrow: c.Limit.AtOnce()})
		}
		p := &parts[at]
		p.work.charges, p.places = append(p.work.charges, c), append(p.places, i)
		p.narrow = min(p.narrow, c.Limit.AtOnce())
	}
	slices.SortStableFunc(parts, func(p, q part) int { return cmp.Compare(p.narrow, q.narrow) })
	return parts
}

// free is for parts that have all been answered.
func (s *Store) free(parts []part) {
	for i := range parts {
		s.freeRequest(parts[i].call)
	}
}

// together reports whether charges are of one Key, which is worth knowing soon, or of
// Keys with one tag.
func (s *Store) together(charges []quota.Charge) bool {
	first := charges[0].Key
	return !slices.ContainsFunc(charges, func(c quota.Charge) bool { return c.Key != first }) ||
		!slices.ContainsFunc(charges, func(c quota.Charge) bool { return tagOf(s.prefix()+c.Key) != tagOf(s.prefix()+first) })
}

// make makes all charges of parts if they fit, or none, and has each part answered.
// Parts that were made before one was denied are given back, and then say what they
// hold without them.
func (s *Store) make(ctx context.Context, parts []part) (allowed bool, err error) {
	denied := len(parts)
	for i := range parts {
		if err := s.ask(ctx, parts[i].call); err != nil {
			if lost := s.giveBack(ctx, parts[:i]); lost != nil {
				err = partial{join(err, lost)}
			}
			return false, err
		}
		if !parts[i].work.allowed && !parts[i].work.peek {
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
	return false, join(s.look(ctx, parts[:denied]), s.look(ctx, parts[denied+1:]))
}

// look has each of parts answered once more, without taking.
func (s *Store) look(ctx context.Context, parts []part) error {
	for i := range parts {
		parts[i].work.peek = true
		if err := s.ask(ctx, parts[i].call); err != nil {
			return err
		}
	}
	return nil
}

// giveBack refunds what parts took, even if the caller has gone, or another server
// than theirs.
func (s *Store) giveBack(ctx context.Context, parts []part) error {
	var faults []error
	for i := range parts {
		if back := parts[i].work.revocation(); len(back.charges) > 0 {
			c := newCall[request]()
			c.work.errand, c.stubborn = *back, true
			faults = append(faults, s.ask(context.WithoutCancel(ctx), c))
		}
	}
	return join(faults...)
}

// decisions appends those of all parts to dst, each where its charge stood.
func decisions(dst []quota.Decision, parts []part, n int) []quota.Decision {
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	for p := range parts {
		e, places := &parts[p].work.errand, parts[p].places
		for i := range e.charges {
			place := i
			if places != nil {
				place = places[i]
			}
			dst[start+place] = e.decision(i)
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
