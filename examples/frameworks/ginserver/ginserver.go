// Package ginserver is a gin engine inside a limiter.
package ginserver

import (
	"net/http"

	"github.com/gin-gonic/gin"
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
	engine := gin.New()
	engine.Use(gin.Recovery())
	engine.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	engine.POST("/login", func(c *gin.Context) {
		if c.PostForm("password") != "correct horse" { // look the user up
			c.JSON(http.StatusUnauthorized, gin.H{"error": "wrong user or password"})
			return
		}
		c.JSON(http.StatusOK, gin.H{"user": c.PostForm("user")})
	})
	return limiter.Wrap(engine), nil
}
