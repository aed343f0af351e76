package ginlimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/examples/frameworks/ginlimit"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}

// A limited engine has a limiter among its middleware.
type limited struct {
	*gin.Engine
	seen   []int // the statuses that the limiter saw
	unseen int   // how many it did not see, at most 1
}

func limit(t *testing.T, quotas int64, before ...gin.HandlerFunc) *limited {
	l := &limited{Engine: gin.New()}
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
	l.Use(ginlimit.Middleware(limiter.Wrap))
	return l
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestTheLimiterSeesTheStatusThatIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		handler gin.HandlerFunc
		status  int
		body    string
	}{
		"a status alone":    {func(c *gin.Context) { c.Status(401) }, 401, ""},
		"200 alone":         {func(c *gin.Context) { c.Status(200) }, 200, ""},
		"changed in time":   {func(c *gin.Context) { c.Status(200); c.AbortWithStatus(401) }, 401, ""},
		"changed too late":  {func(c *gin.Context) { c.String(200, "a"); c.Status(401) }, 200, "a"},
		"JSON":              {func(c *gin.Context) { c.JSON(403, "no") }, 403, `"no"`},
		"a string":          {func(c *gin.Context) { c.Status(202); io.WriteString(c.Writer, "a") }, 202, "a"},
		"bytes":             {func(c *gin.Context) { c.Writer.Write([]byte("a")) }, 200, "a"},
		"a flush":           {func(c *gin.Context) { c.Status(203); c.Writer.Flush() }, 203, ""},
		"an event":          {func(c *gin.Context) { c.SSEvent("a", "b") }, 200, "event:a\ndata:b\n\n"},
		"a renderer's -1":   {func(c *gin.Context) { c.Status(401); c.Status(-1) }, 401, ""},
		"written, and gone": {func(c *gin.Context) { c.String(200, "a"); c.Abort() }, 200, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var logged, size int
			l := limit(t, 10, func(c *gin.Context) {
				writer := c.Writer
				c.Next()
				assert.Same(t, writer, c.Writer, "gin's own writer is back")
				logged, size = c.Writer.Status(), c.Writer.Size()
			})
			l.GET("/", c.handler)
			w := get(l, "/")
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.body, w.Body.String())
			assert.Equal(t, []int{c.status}, l.seen)
			assert.Zero(t, l.unseen)
			assert.Equal(t, c.status, logged, "middleware in front sees it too")
			assert.Equal(t, len(c.body), max(0, size))
		})
	}
}

func TestTheLimiterGetsAStatusOnce(t *testing.T) {
	told := 0
	engine := gin.New()
	engine.Use(ginlimit.Middleware(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&teller{w, &told}, r) })
	}))
	engine.GET("/", func(c *gin.Context) {
		c.String(200, "a")
		c.Writer.WriteString("b")
	})
	assert.Equal(t, "ab", get(engine, "/").Body.String())
	assert.Equal(t, 1, told)
}

// A teller counts statuses.
type teller struct {
	http.ResponseWriter
	told *int
}

func (w *teller) WriteHeader(status int) {
	*w.told++
	w.ResponseWriter.WriteHeader(status)
}

// gin writes its own 404 when the chain has ended.
func TestTheLimiterSeesWhatNoRouteAnswers(t *testing.T) {
	l := limit(t, 10)
	l.HandleMethodNotAllowed = true
	l.POST("/only", func(*gin.Context) {})
	assert.Equal(t, "404 page not found", get(l, "/nowhere").Body.String())
	assert.Equal(t, "405 method not allowed", get(l, "/only").Body.String())
	l.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "mine") })
	assert.Equal(t, "mine", get(l, "/nowhere").Body.String())
	assert.Equal(t, []int{404, 405, 404}, l.seen)
	assert.Zero(t, l.unseen)
}

func TestAHandlerThatWritesNothingIsNotSeen(t *testing.T) {
	for name, handler := range map[string]gin.HandlerFunc{
		"nothing":    func(*gin.Context) {},
		"abort":      func(c *gin.Context) { c.Abort() },
		"error":      func(c *gin.Context) { c.Error(io.EOF) },
		"Render(-1)": func(c *gin.Context) { c.Status(-1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := limit(t, 10)
			l.GET("/", handler)
			assert.Equal(t, 200, get(l, "/").Code, "which gin writes")
			assert.Empty(t, l.seen)
			assert.Equal(t, 1, l.unseen)
		})
	}
}

func TestADenialEndsTheChain(t *testing.T) {
	var logged []int
	l := limit(t, 1, func(c *gin.Context) {
		c.Next()
		logged = append(logged, c.Writer.Status())
	})
	called := 0
	l.Use(func(*gin.Context) { called++ })
	l.GET("/", func(c *gin.Context) { c.Status(204) })
	for _, want := range []int{204, 429, 429} {
		assert.Equal(t, want, get(l, "/").Code)
	}
	assert.Equal(t, 429, get(l, "/nowhere").Code)
	assert.Equal(t, 1, called)
	assert.Equal(t, []int{204, 429, 429, 429}, logged)
}

func TestAPanicIsSeenAndRecovered(t *testing.T) {
	recovery := gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) })
	t.Run("in front", func(t *testing.T) {
		l := limit(t, 10, recovery)
		l.GET("/", func(c *gin.Context) { c.Status(200); panic("x") })
		assert.Equal(t, 500, get(l, "/").Code)
		assert.Equal(t, []int{500}, l.seen)
	})
	t.Run("behind", func(t *testing.T) {
		l := limit(t, 10)
		l.GET("/", recovery, func(c *gin.Context) { c.Status(200); panic("x") })
		assert.Equal(t, 500, get(l, "/").Code)
		assert.Equal(t, []int{500}, l.seen)
	})
}

// Middleware after the limiter may replace Context.Writer, as compression does.
func TestLaterMiddlewareMayReplaceTheWriter(t *testing.T) {
	l := limit(t, 10)
	l.Use(func(c *gin.Context) {
		c.Writer = &shouting{c.Writer}
		c.Next()
	})
	l.GET("/", func(c *gin.Context) { c.String(401, "no") })
	w := get(l, "/")
	assert.Equal(t, "no!", w.Body.String())
	assert.Equal(t, []int{401}, l.seen)
}

type shouting struct{ gin.ResponseWriter }

func (s *shouting) Write(b []byte) (int, error) {
	_, err := s.ResponseWriter.Write(append(b[:len(b):len(b)], '!'))
	return len(b), err
}
