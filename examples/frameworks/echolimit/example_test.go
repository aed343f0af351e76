package echolimit_test

import (
	"fmt"
	"io"
	"net/http/httptest"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/heedhttp/heed/examples/frameworks/echolimit"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A limiter behind the logger, so that refused requests are logged too.
func ExampleMiddleware() {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "address", Policies: []quota.Policy{quota.PerMinute(2)}}},
		Audit: func(serverside.Event) {},
	})
	if err != nil {
		panic(err)
	}
	engine := echo.New()
	engine.Logger.SetOutput(io.Discard) // in a program, leave it out
	engine.Use(middleware.RequestLogger(), middleware.Recover(), echolimit.Middleware(limiter.Wrap))
	engine.GET("/hello", func(c echo.Context) error { return c.String(200, "hello") })
	for range 3 {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}
