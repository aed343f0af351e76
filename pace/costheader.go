package pace

import "net/http"

// CostHeader returns a function for the Cost of a Queue: what the field of that name
// says, as a decimal number, or 1 if it is absent, malformed or less than 1. The field
// is sent, too: WithCost says it to nobody else.
func CostHeader(name string) func(*http.Request) int64 {
	return func(req *http.Request) int64 {
		if n, ok := unitsIn(req.Header, name); ok {
			return max(n, 1)
		}
		return 1
	}
}
