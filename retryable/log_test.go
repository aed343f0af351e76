package retryable_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
)

// A recorder is a LeveledLogger that keeps whole lines.
type recorder struct{ notes }

func (r *recorder) Error(msg string, kv ...any) { r.add("error %s %v", msg, kv) }
func (r *recorder) Warn(msg string, kv ...any)  { r.add("warn %s %v", msg, kv) }
func (r *recorder) Info(msg string, kv ...any)  { r.add("info %s %v", msg, kv) }
func (r *recorder) Debug(msg string, kv ...any) { r.add("debug %s %v", msg, kv) }

// A printing is a Logger that keeps whole lines.
type printing struct{ notes }

func (p *printing) Printf(format string, args ...any) { p.add(format, args...) }

// logged is what a Transport with LogTrace of logger logs of a story that ends with a giving up.
func logged(t *testing.T, logger any) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		client := &http.Client{Transport: &heed.Transport{
			Budget: heed.Unlimited, Trace: retryable.LogTrace(logger),
			Retry: heed.RetryPolicy{
				MaxAttempts: 3,
				Backoff:     func(heed.Attempt) time.Duration { return 2 * time.Second },
			},
			Base: &base{f: func(req *http.Request) (*http.Response, error) {
				if n++; n == 2 {
					return nil, &url.Error{Op: "Get", URL: req.URL.String(), Err: errors.New("two\nlines")}
				}
				return answer(req, 503), nil
			}},
		}}
		resp, err := client.Get("http://user:s3cret@api.example.com/s3cret?key=s3cret")
		content(t, resp, err)
	})
}

func TestLogTraceSpeaksToALeveledLogger(t *testing.T) {
	r := new(recorder)
	logged(t, r)
	assert.Equal(t, notes{
		"debug retrying request [method GET host api.example.com status 503 attempt 1 max 3 " +
			"wait 2s cause backoff]",
		"error request failed [method GET host api.example.com error two\nlines]",
		"debug retrying request [method GET host api.example.com error two\nlines attempt 2 max 3 " +
			"wait 2s cause backoff]",
		"warn request not retried [method GET host api.example.com status 503 verdict out of attempts " +
			"attempt 3 max 3 wait 2s limit RetryPolicy.MaxAttempts]",
	}, r.notes)
}

func TestLogTraceSpeaksToALoggerInOneLineEach(t *testing.T) {
	p := new(printing)
	logged(t, p)
	assert.Equal(t, notes{
		`[DEBUG] retrying request method=GET host=api.example.com status=503 attempt=1 max=3 ` +
			`wait=2s cause=backoff`,
		`[ERR] request failed method=GET host=api.example.com error="two\nlines"`,
		`[DEBUG] retrying request method=GET host=api.example.com error="two\nlines" attempt=2 max=3 ` +
			`wait=2s cause=backoff`,
		`[WARN] request not retried method=GET host=api.example.com status=503 verdict="out of attempts" ` +
			`attempt=3 max=3 wait=2s limit=RetryPolicy.MaxAttempts`,
	}, p.notes)
}

func TestLogTraceSpeaksToSlog(t *testing.T) {
	var out bytes.Buffer
	logged(t, slog.New(slog.NewTextHandler(&out, nil)))
	assert.Contains(t, out.String(), "level=ERROR msg=\"request failed\"")
	assert.Contains(t, out.String(), "level=WARN msg=\"request not retried\"")
	assert.NotContains(t, out.String(), "retrying request", "which is of level Debug")
	assert.NotContains(t, out.String(), "s3cret")
}

func TestLogTraceOfNothingIsNoTrace(t *testing.T) {
	assert.Nil(t, retryable.LogTrace(nil))
	want := "retryable: LogTrace: a string is neither a Logger nor a LeveledLogger"
	assert.PanicsWithValue(t, want, func() { retryable.LogTrace("stderr") })
}

func TestAPostThatIsNotRetriedIsLogged(t *testing.T) {
	r := new(recorder)
	c := client(inTurn(503, 200))
	c.Logger = r
	retryable.Install(c, nil)
	resp, err := c.Post("http://api.example.com/", "text/plain", []byte("pay"))
	content(t, resp, err)
	assert.Equal(t, notes{
		"debug performing request [method POST url http://api.example.com/]", // go-retryablehttp's own
		"warn request not retried [method POST host api.example.com status 503 cause not idempotent]",
	}, r.notes)
}

func TestTheLoggerMayBeSetAfterInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := installed(inTurn(503, 200))
		r := new(recorder)
		c.Logger = r
		resp, err := c.Get("http://api.example.com")
		content(t, resp, err)
		require.Len(t, r.notes, 2)
		assert.Contains(t, r.notes[1], "debug retrying request")
	})
}

func TestTheHooksAndATraceAreBothTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told notes
		c := client(inTurn(503, 200))
		c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) { told.add("hook %d", resp.StatusCode) }
		retryable.Install(c, &heed.Transport{Trace: &heed.Trace{
			Decided: func(a heed.Attempt, _ heed.Verdict, _ time.Duration) {
				told = append(told, fmt.Sprint("trace ", a.Response.StatusCode))
			},
		}})
		resp, err := c.Get("http://api.example.com")
		content(t, resp, err)
		assert.Equal(t, notes{"hook 503", "trace 503", "trace 200", "hook 200"}, told)
	})
}
