package pace

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
)

// Each lets a request go when all of pacers do: they are asked one after the
// other, and if one of them refuses, the others have their turns back. While
// it waits for one, it holds its turns of those before; so put the one with the
// longest line first.
//
// Pacers that are nil are left out. Without any, every request may go at once.
// What Each returns is a heed.BoundedPacer, whatever pacers are.
func Each(pacers ...heed.Pacer) heed.Pacer {
	var e each
	for _, p := range pacers {
		if p != nil {
			e = append(e, p)
		}
	}
	return e
}

type each []heed.Pacer

var _ heed.BoundedPacer = each(nil)

func (e each) Wait(req *http.Request) error {
	return e.all(req, func(p heed.Pacer) error { return p.Wait(req) })
}

func (e each) WaitAtMost(req *http.Request, most time.Duration) error {
	start := time.Now()
	return e.all(req, func(p heed.Pacer) error { return waitAtMost(p, req, most-time.Since(start)) })
}

func (e each) all(req *http.Request, wait func(heed.Pacer) error) error {
	for i, p := range e {
		if err := wait(p); err != nil {
			e[:i].Observe(heed.Attempt{Request: req, Err: heed.ErrNotSent})
			return err
		}
	}
	return nil
}

func (e each) Observe(a heed.Attempt) {
	for _, p := range e {
		p.Observe(a)
	}
}

// waitAtMost bounds the wait for any pacer: one that is no BoundedPacer has a
// deadline, of at least a millisecond, since without any time it might not even
// look.
func waitAtMost(p heed.Pacer, req *http.Request, most time.Duration) error {
	if b, ok := p.(heed.BoundedPacer); ok {
		return b.WaitAtMost(req, most)
	}
	ctx := req.Context()
	bounded, cancel := context.WithTimeout(ctx, max(most, time.Millisecond))
	defer cancel()
	err := p.Wait(req.WithContext(bounded))
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || sameDeadline(ctx, bounded) {
		return err
	}
	overdue := heed.OverdueError{Key: hostkey.Of(req.URL.Scheme, req.URL.Host), Wait: most, Left: most}
	if told := (*heed.OverdueError)(nil); errors.As(err, &told) {
		overdue.Key, overdue.Wait = told.Key, told.Wait
	}
	return &overdue
}

func sameDeadline(a, b context.Context) bool {
	at, aok := a.Deadline()
	bt, bok := b.Deadline()
	return aok && bok && at.Equal(bt)
}
