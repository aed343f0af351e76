package echolimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/frameworks/echolimit"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// A limited engine has a limiter among its middleware.
type limited struct {
	*echo.Echo
	seen   []int // the statuses that the limiter saw
	unseen int   // how many it did not see, at most 1
}

func limit(t *testing.T, quotas int64, before ...echo.MiddlewareFunc) *limited {
	l := &limited{Echo: echo.New()}
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{
			Name: "all", Policies: []quota.Policy{quota.PerHour(quotas)},
			Settle: func(r serverside.Response) int64 {
				l.seen = append(l.seen, r.Status)
				return r.Cost
			},
		}},
		Audit: func(e serverside.Event) {
			if e.Kind == serverside.ResponseUnseen {
				l.unseen++
			}
		},
	})
	require.NoError(t, err)
	l.Use(before...)
	l.Use(echolimit.Middleware(limiter.Wrap))
	return l
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestTheLimiterSeesTheStatusThatIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		handler echo.HandlerFunc
		status  int
	}{
		"a body":         {func(c echo.Context) error { return c.String(200, "a") }, 200},
		"a status alone": {func(c echo.Context) error { return c.NoContent(401) }, 401},
		"an HTTPError":   {func(echo.Context) error { return echo.ErrForbidden }, 403},
		"an error":       {func(echo.Context) error { return errors.New("x") }, 500},
		"an error, too late": {func(c echo.Context) error {
			return errors.Join(c.String(202, "a"), errors.New("x"))
		}, 202},
		"a flush": {func(c echo.Context) error {
			c.Response().WriteHeader(203)
			c.Response().Flush()
			return nil
		}, 203},
		"a panic, if recovers": {func(echo.Context) error { panic("x") }, 500},
	} {
		t.Run(name, func(t *testing.T) {
			var logged []int
			quiet := middleware.RecoverWithConfig(middleware.RecoverConfig{
				LogErrorFunc: func(_ echo.Context, err error, _ []byte) error { return err },
			})
			l := limit(t, 10, quiet, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					err := next(c)
					assert.NoError(t, err, "it is handled")
					logged = append(logged, c.Response().Status)
					return err
				}
			})
			l.GET("/", c.handler)
			assert.Equal(t, c.status, get(l, "/").Code)
			assert.Equal(t, []int{c.status}, l.seen)
			assert.Zero(t, l.unseen)
			if name != "a panic, if recovers" {
				assert.Equal(t, []int{c.status}, logged, "middleware in front sees it too")
			}
		})
	}
}

func TestTheLimiterSeesWhatNoRouteAnswers(t *testing.T) {
	l := limit(t, 10)
	l.POST("/only", func(echo.Context) error { return nil })
	assert.Equal(t, 404, get(l, "/nowhere").Code)
	assert.Equal(t, 405, get(l, "/only").Code)
	assert.Equal(t, []int{404, 405}, l.seen)
}

func TestAHandlerThatWritesNothingIsNotSeen(t *testing.T) {
	l := limit(t, 10)
	l.GET("/", func(echo.Context) error { return nil })
	assert.Equal(t, 200, get(l, "/").Code, "which net/http writes")
	assert.Empty(t, l.seen)
	assert.Equal(t, 1, l.unseen)
}

func TestADenialEndsTheChain(t *testing.T) {
	handled := 0
	l := limit(t, 1)
	l.HTTPErrorHandler = func(error, echo.Context) { handled++ }
	called := 0
	l.GET("/", func(c echo.Context) error {
		called++
		return c.NoContent(204)
	})
	for _, want := range []int{204, 429, 429} {
		assert.Equal(t, want, get(l, "/").Code)
	}
	assert.Equal(t, 1, called)
	assert.Zero(t, handled)
}

func TestAnErrorIsHandledOnce(t *testing.T) {
	handled := 0
	l := limit(t, 10)
	l.HTTPErrorHandler = func(err error, c echo.Context) {
		handled++
		c.NoContent(418)
	}
	l.GET("/", func(echo.Context) error { return errors.New("x") })
	assert.Equal(t, 418, get(l, "/").Code)
	assert.Equal(t, 1, handled)
	assert.Equal(t, []int{418}, l.seen)
}
