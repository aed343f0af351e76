package ginlimit_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/heedhttp/heed/examples/frameworks/ginlimit"
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
	gin.DefaultWriter = httptest.NewRecorder() // in a program, leave it out
	engine := gin.New()
	engine.Use(gin.Logger(), gin.Recovery(), ginlimit.Middleware(limiter.Wrap))
	engine.GET("/hello", func(c *gin.Context) { c.String(200, "hello") })
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
