// Package echolimit makes a limiter of package serverside into middleware of echo. Prefer to wrap
// the engine, limiter.Wrap(engine), which needs no adapter and sees every response.
package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// Middleware returns wrap, the Wrap or WrapEarly of a serverside.Limiter, as middleware of echo:
//
//	engine.Use(middleware.RequestLogger(), middleware.Recover(), echolimit.Middleware(limiter.Wrap))
//
// It is echo.WrapMiddleware, but Echo.HTTPErrorHandler handles the error of a handler before the
// limiter goes on, so that the limiter sees the response. Middleware before it gets the response
// and no error.
//
// If a handler writes nothing and returns nil, net/http answers 200. The limiter does not count
// that as a success (serverside.Response).
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
