// Package echoserver is an echo engine inside a limiter.
package echoserver

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/metrics"
)

// New returns a server that admits 60 requests a minute from each address, and limits guesses at
// passwords. Its metrics are registered with reg.
func New(reg prometheus.Registerer) (http.Handler, error) {
	counts, err := metrics.New(reg, metrics.Options{})
	if err != nil {
		return nil, err
	}
	limiter, err := serverside.New(counts.Instrument(serverside.Config{
		Key: serverside.ClientIP(), // behind proxies: ClientIP(their addresses...)
		Rules: []serverside.Rule{
			{Name: "address", Policies: []quota.Policy{quota.PerMinute(60)}},
			serverside.Logins("login", "POST /login", serverside.FormValue("user")),
		},
	}))
	if err != nil {
		return nil, err
	}
	engine := echo.New()
	engine.Use(middleware.Recover())
	engine.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	engine.POST("/login", func(c echo.Context) error {
		if c.FormValue("password") != "correct horse" { // look the user up
			return echo.NewHTTPError(http.StatusUnauthorized, "wrong user or password")
		}
		return c.JSON(http.StatusOK, echo.Map{"user": c.FormValue("user")})
	})
	return limiter.Wrap(engine), nil
}
