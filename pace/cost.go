package pace

import (
	"context"
	"net/http"
	"strconv"

	"github.com/heedhttp/heed"
)

// costKey is the context's key of a cost in a unit.
type costKey string

// WithCost returns a context whose requests cost n of unit: "" for requests, or a
// word such as "tokens". A request may have costs in several units: nest the calls.
// Of two in one unit the inner one holds. A negative n is 0.
//
// Pacers whose Cost is nil go by it. Nothing of it is sent to the server.
func WithCost(ctx context.Context, unit string, n int64) context.Context {
	return context.WithValue(ctx, costKey(unit), max(n, 0))
}

// Cost returns what WithCost has put into req's context for unit. Without that, a
// request costs 1 of the unit "", and nothing of any other.
func Cost(req *http.Request, unit string) int64 {
	if n, ok := knownCost(req, unit); ok {
		return n
	}
	if unit == "" {
		return 1
	}
	return 0
}

// knownCost is what WithCost says; ok is false if it says nothing of unit.
func knownCost(req *http.Request, unit string) (n int64, ok bool) {
	n, ok = req.Context().Value(costKey(unit)).(int64)
	return n, ok
}

// costOf is what fn, the Cost of a pacer, says of req, which may be negative; or if fn is
// nil, what Cost says.
func costOf(fn func(req *http.Request, unit string) int64, req *http.Request, unit string) (n int64) {
	if fn == nil {
		return Cost(req, unit)
	}
	return fn(req, unit)
}

// SettleHeader returns a function for the Settle of a Shared: the decimal number in
// the field of that name in the response, whatever the unit. Without a response, or
// if the field is absent, malformed or negative, the true cost is not known: -1.
//
// For a cost that is in the response's body, see Shared.Correct.
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

// unitsIn is the number in a field; ok is false unless there is one that is not
// negative.
func unitsIn(h http.Header, name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(h.Get(name), 10, 64)
	return n, err == nil && n >= 0
}

// A costs is what a request costs in each unit. Nil is one request.
type costs []unitCost

type unitCost struct {
	unit string
	n    int64
}

// none reports whether the cost of every one of units is known, and 0.
func (c costs) none(units []string) bool {
	for _, one := range c {
		if one.n > 0 {
			return false
		}
	}
	return len(c) > 0 && len(c) == len(units)
}

func (c costs) of(unit string) int64 {
	for _, one := range c {
		if one.unit == unit {
			return min(max(0, one.n), highestCost)
		}
	}
	if unit == "" {
		return 1
	}
	return 0
}
