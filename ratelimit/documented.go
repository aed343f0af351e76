package ratelimit

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Documented is a limit of each credential that is known before the first response: at most Quota requests in
// any Window.
type Documented struct {
	Paths  []string // as in Scope.Keep; if empty, all requests
	Quota  int64
	Window time.Duration
}

// Covers reports whether the limit counts req.
func (d *Documented) Covers(req *http.Request) bool {
	if len(d.Paths) == 0 || req.URL == nil {
		return len(d.Paths) == 0
	}
	return slices.ContainsFunc(d.Paths, func(pattern string) bool {
		_, _, ok := match(pattern, req.Method, strings.TrimPrefix(req.URL.Path, "/"))
		return ok
	})
}
