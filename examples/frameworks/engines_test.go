package main

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/frameworks/echolimit"
	"github.com/heedhttp/heed/examples/frameworks/ginlimit"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/testserver"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

// A way is how a limiter and a framework are combined.
type way struct {
	name   string
	limit  func(wrap func(http.Handler) http.Handler) http.Handler
	unseen []string // the passwords whose responses the limiter does not see
}

// unseenOf returns how often the limiter reports that it does not see responses to a password.
func (w way) unseenOf(password string) int {
	if slices.Contains(w.unseen, password) {
		return 1
	}
	return 0
}

// The passwords. The login answers the last two in other ways.
const (
	right    = "right"
	wrong    = "wrong"
	redirect = "redirect" // 303
	slow     = "slow"     // nothing, when the client has gone
)

func ways() []way {
	type wrapper = func(http.Handler) http.Handler
	return []way{
		{name: "chi inside Wrap", limit: func(wrap wrapper) http.Handler { return wrap(chiEngine()) }},
		{name: "chi middleware", limit: func(wrap wrapper) http.Handler { return chiEngine(wrap) }},
		{name: "gin inside Wrap", limit: func(wrap wrapper) http.Handler { return wrap(ginEngine()) }},
		{name: "gin middleware", limit: func(wrap wrapper) http.Handler { return ginEngine(ginlimit.Middleware(wrap)) }},
		{name: "gin middleware, naive", limit: func(wrap wrapper) http.Handler { return ginEngine(naiveGin(wrap)) },
			unseen: []string{right, wrong}},
		{name: "echo inside Wrap", limit: func(wrap wrapper) http.Handler { return wrap(echoEngine()) }},
		{name: "echo middleware", limit: func(wrap wrapper) http.Handler { return echoEngine(echolimit.Middleware(wrap)) }},
		{name: "echo middleware, naive",
			limit:  func(wrap wrapper) http.Handler { return echoEngine(echo.WrapMiddleware(wrap)) },
			unseen: []string{wrong}},
	}
}

// naiveGin is the usual adapter of net/http middleware for gin. What handlers write to
// Context.Writer goes past the limiter.
func naiveGin(wrap func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		called := false
		wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			called, c.Request = true, r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !called {
			c.Abort()
		}
	}
}

func chiEngine(middleware ...func(http.Handler) http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Use(middleware...)
	router.Get("/login", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "form") })
	router.Post("/login", func(w http.ResponseWriter, r *http.Request) {
		switch r.PostFormValue("password") {
		case right:
			w.WriteHeader(http.StatusOK)
		case redirect:
			http.Redirect(w, r, "/login", http.StatusSeeOther)
		case slow:
			<-r.Context().Done()
		default:
			http.Error(w, "wrong", http.StatusUnauthorized)
		}
	})
	router.HandleFunc("/stream", stream)
	return router
}

func ginEngine(middleware ...gin.HandlerFunc) http.Handler {
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.Use(middleware...)
	engine.GET("/login", func(c *gin.Context) { c.String(http.StatusOK, "form") })
	engine.POST("/login", func(c *gin.Context) {
		switch c.PostForm("password") {
		case right:
			c.Status(http.StatusOK)
		case redirect:
			c.Redirect(http.StatusSeeOther, "/login")
		case slow:
			<-c.Request.Context().Done()
		default:
			c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": "wrong"})
		}
	})
	engine.Any("/stream", func(c *gin.Context) { stream(c.Writer, c.Request) })
	return engine
}

func echoEngine(middleware ...echo.MiddlewareFunc) http.Handler {
	engine := echo.New()
	engine.Use(middleware...)
	engine.GET("/login", func(c echo.Context) error { return c.String(http.StatusOK, "form") })
	engine.POST("/login", func(c echo.Context) error {
		switch c.FormValue("password") {
		case right:
			return c.NoContent(http.StatusOK)
		case redirect:
			return c.Redirect(http.StatusSeeOther, "/login")
		case slow:
			<-c.Request().Context().Done()
			return nil
		default:
			return echo.ErrUnauthorized
		}
	})
	engine.Any("/stream", func(c echo.Context) error {
		stream(c.Response(), c.Request())
		return nil
	})
	return engine
}

// events has what a limiter reports. It is for one request at a time.
type events []serverside.Event

func (all *events) add(e serverside.Event) { *all = append(*all, e) }

func (all *events) count(kind serverside.EventKind) (n int) {
	for _, e := range *all {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func newLimiter(t *testing.T, audit func(serverside.Event), rules ...serverside.Rule) *serverside.Limiter {
	limiter, err := serverside.New(serverside.Config{Audit: audit, Rules: rules})
	require.NoError(t, err)
	return limiter
}

// loginRules limits guesses at passwords. The other rule is never reached.
func loginRules() []serverside.Rule {
	return []serverside.Rule{
		{Name: "address", Policies: []quota.Policy{{Quota: 100_000, Window: 1 << 40}}},
		serverside.Logins("login", "POST /login", serverside.FormValue("user")),
	}
}

// serveLogins starts a server in memory that limits guesses in this way.
func (w way) serveLogins(t *testing.T) (*testserver.Server, *events) {
	all := new(events)
	return serve(t, w.limit(newLimiter(t, all.add, loginRules()...).Wrap)), all
}

func serve(t *testing.T, h http.Handler) *testserver.Server {
	return testserver.NewLimited(t, func(http.Handler) http.Handler { return h })
}

// attempt returns a login of ann.
func attempt(t *testing.T, srv *testserver.Server, method, path, password string) *http.Request {
	form := url.Values{"user": {"ann"}, "password": {password}}
	r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// status sends r once, and follows no redirect.
func status(t *testing.T, srv *testserver.Server, r *http.Request) int {
	resp, err := srv.Transport().RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// logIn tries passwords, and returns the statuses.
func logIn(t *testing.T, srv *testserver.Server, passwords ...string) (all []int) {
	for _, password := range passwords {
		all = append(all, status(t, srv, attempt(t, srv, "POST", "/login", password)))
	}
	return all
}
