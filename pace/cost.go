package pace

import (
	"net/http"
	"strconv"

	"github.com/heedhttp/heed"
)

// CostHeader returns a function for the Cost of a Queue or a Shared: what the
// field of that name says, as a decimal number, or 1 if it is absent, malformed
// or less than 1. It is for requests of which it is known how many units they
// take, such as tokens. The field is sent, too.
func CostHeader(name string) func(*http.Request) int64 {
	return func(req *http.Request) int64 {
		if n, ok := unitsIn(req.Header, name); ok {
			return max(n, 1)
		}
		return 1
	}
}

// SettleHeader returns a function for the Settle of a Shared: what the field of
// that name says in the response, as a decimal number. If there is no response,
// or no such field, it is what expected says of the request, which should be
// the Shared's Cost; if that is nil, 1.
//
// What a request did cost may stand in the response's body instead. For that, see
// Shared.Correct.
func SettleHeader(name string, expected func(*http.Request) int64) func(heed.Attempt) int64 {
	return func(a heed.Attempt) int64 {
		if a.Response != nil {
			if n, ok := unitsIn(a.Response.Header, name); ok {
				return n
			}
		}
		if expected == nil {
			return 1
		}
		return expected(a.Request)
	}
}

// unitsIn is the number in a field; ok is false unless there is one that is not
// negative.
func unitsIn(h http.Header, name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(h.Get(name), 10, 64)
	return n, err == nil && n >= 0
}
