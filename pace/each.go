package pace

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/internal/hostkey"
)

// Each returns a Pacer that admits a request when all of pacers do:
//
//	Pacer: pace.Each(pace.PerHost(10, 1), &pace.Advertised{})
//
// They are asked in order. While a request waits for one, it keeps the tokens of those
// before, so put the slowest first. If one refuses, those before get their tokens back.
//
// Nil pacers are skipped; without any, every request is admitted at once. The result is a
// heed.BoundedPacer even if pacers are not.
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

// waitAtMost bounds the wait for any Pacer. One that is not a BoundedPacer gets a
// deadline of at least a millisecond, because with less it might refuse without a check.
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
	most = max(most, 0)
	overdue := heed.OverdueError{Key: hostkey.Of(req.URL.Scheme, req.URL.Host), Wait: max(most, atLeast), Left: most}
	if inner := (*heed.OverdueError)(nil); errors.As(err, &inner) {
		overdue.Key = inner.Key
		if inner.Wait > 0 {
			overdue.Wait = inner.Wait
		}
	}
	return &overdue
}

func sameDeadline(a, b context.Context) bool {
	at, aok := a.Deadline()
	bt, bok := b.Deadline()
	return aok && bok && at.Equal(bt)
}
