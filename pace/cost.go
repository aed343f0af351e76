package pace

import (
	"context"
	"net/http"
	"strconv"

	"github.com/heedhttp/heed"
)

// A costKey is the context key of the cost in one unit.
type costKey string

// WithCost returns a context whose requests cost n of unit, for Pacers whose Cost is nil.
// unit is "" for requests, or a word such as "tokens":
//
//	ctx = pace.WithCost(ctx, "tokens", 1500)
//
// Nest calls for costs in several units; the innermost call for a unit counts. A negative
// n is 0. The cost is not sent to the server.
func WithCost(ctx context.Context, unit string, n int64) context.Context {
	return context.WithValue(ctx, costKey(unit), max(n, 0))
}

// Cost returns the cost of req in unit that WithCost set. The default is 1 for the unit
// "", and 0 for any other.
func Cost(req *http.Request, unit string) int64 {
	if n, ok := knownCost(req, unit); ok {
		return n
	}
	if unit == "" {
		return 1
	}
	return 0
}

// knownCost returns what WithCost set. ok is false if it set nothing for unit.
func knownCost(req *http.Request, unit string) (n int64, ok bool) {
	n, ok = req.Context().Value(costKey(unit)).(int64)
	return n, ok
}

// costOf returns the result of fn, a Pacer's Cost, or of Cost if fn is nil. It may be
// negative.
func costOf(fn func(req *http.Request, unit string) int64, req *http.Request, unit string) (n int64) {
	if fn == nil {
		return Cost(req, unit)
	}
	return fn(req, unit)
}

// SettleHeader returns a function for Shared.Settle that reads the true cost from a
// response field, a decimal number:
//
//	Settle: pace.SettleHeader("X-Tokens-Used")
//
// Without a response, or if the field is absent, malformed or negative, the true cost is
// unknown and the function returns -1. For a cost in the response's body, see
// Shared.Correct.
func SettleHeader(name string) func(a heed.Attempt, unit string) int64 {
	return func(a heed.Attempt, _ string) int64 {
		if a.Response != nil {
			if n, ok := unitsIn(a.Response.Header, name); ok {
				return n
			}
		}
		return -1
	}
}

// unitsIn returns the number in a field. ok is false if there is none or it is negative.
func unitsIn(h http.Header, name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(h.Get(name), 10, 64)
	return n, err == nil && n >= 0
}

// A costs lists what a request costs in each unit. Nil means one request.
type costs []unitCost

type unitCost struct {
	unit      string
	n         int64     // if estimated, the highest that it may be, or 0
	estimated bool      // by what is learnt
	learnt    *estimate // of the request's route
}

// none reports whether the cost of every one of units is known, and 0.
func (c costs) none(units []string) bool {
	for _, one := range c {
		if one.n > 0 || one.estimated {
			return false
		}
	}
	return len(c) > 0 && len(c) == len(units)
}

// known reports whether the cost in unit is known, and not just estimated.
func (c costs) known(unit string) bool {
	for _, one := range c {
		if one.unit == unit {
			return !one.estimated
		}
	}
	return unit == ""
}

func (c costs) of(unit string) int64 {
	for _, one := range c {
		switch {
		case one.unit != unit:
		case one.estimated:
			return one.learnt.atMost(one.n)
		default:
			return min(max(0, one.n), highestCost)
		}
	}
	if unit == "" {
		return 1
	}
	return 0
}
