// Package echolimit makes a limiter of package serverside middleware of echo. Prefer to wrap the
// engine, limiter.Wrap(engine), which needs no adapter and sees every response.
package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// Middleware returns wrap, the Wrap or WrapEarly of a serverside.Limiter, as middleware of echo:
//
//	engine.Use(middleware.Logger(), middleware.Recover(), echolimit.Middleware(limiter.Wrap))
//
// It is echo.WrapMiddleware, except that an error that a handler returns is handled by
// Echo.HTTPErrorHandler before the limiter goes on, so that it sees the response. Middleware in
// front of it gets the response, and no error.
//
// A handler that writes nothing and returns nil has net/http answer 200, which is no success to
// the limiter (serverside.Response).
func Middleware(wrap func(http.Handler) http.Handler) echo.MiddlewareFunc {
	middleware := echo.WrapMiddleware(wrap)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return middleware(func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
	}
}
