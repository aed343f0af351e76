package retryable_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
	"github.com/heedhttp/heed/testserver"
)

// A row is one of the table in docs/migrating.md: a script of a server, the client before,
// and the client after Install.
type row struct {
	says  string
	set   func(*retryablehttp.Client, *notes) // what is not as NewClient has it
	steps []testserver.Step
	fails error                  // of every attempt, instead of steps
	send  sender                 // if nil, a GET
	with  func() *heed.Transport // if nil, without a budget

	want        []int // the statuses that the server answers; 0 is none
	result      string
	least, most time.Duration // of each wait
}

// A difference is a row in which the client after Install behaves in another way.
type difference struct {
	row
	now    []int
	result string
}

type sender func(*retryablehttp.Client, string) (*http.Response, error)

// A report is what one of the two clients did.
type report struct {
	statuses []int
	result   string
	waits    []time.Duration
	told     notes
}

// notes are what hooks and loggers were told.
type notes []string

func (n *notes) add(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

func down(times int) testserver.Step { return testserver.Step{Status: 503, Times: times} }

func passthrough(c *retryablehttp.Client, _ *notes) {
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
}

const gaveUp = "GET http://server.test giving up after %d attempt(s)"

var same = []row{
	{
		says: "RetryMax",
		set:  func(c *retryablehttp.Client, _ *notes) { c.RetryMax = 2 }, steps: []testserver.Step{down(-1)},
		want: []int{503, 503, 503}, result: fmt.Sprintf(gaveUp, 3), least: time.Second, most: 30 * time.Second,
	}, {
		says: "RetryMax 0",
		set:  func(c *retryablehttp.Client, _ *notes) { c.RetryMax = 0 }, steps: []testserver.Step{down(-1)},
		want: []int{503}, result: fmt.Sprintf(gaveUp, 1),
	}, {
		says: "RetryMax -1",
		set:  func(c *retryablehttp.Client, _ *notes) { c.RetryMax = -1 }, steps: []testserver.Step{down(-1)},
		want: []int{503}, result: fmt.Sprintf(gaveUp, 1),
	}, {
		says:  "RetryWaitMin, RetryWaitMax",
		set:   func(c *retryablehttp.Client, _ *notes) { c.RetryMax = 9; waits(c, 50, 500) },
		steps: []testserver.Step{down(8)},
		want:  []int{503, 503, 503, 503, 503, 503, 503, 503, 200}, result: "200",
		least: 50 * time.Millisecond, most: 500 * time.Millisecond,
	}, {
		says:  "RetryWaitMin above RetryWaitMax",
		set:   func(c *retryablehttp.Client, _ *notes) { waits(c, 500, 50) },
		steps: []testserver.Step{down(2)},
		want:  []int{503, 503, 200}, result: "200", least: 50 * time.Millisecond, most: 50 * time.Millisecond,
	}, {
		says:  "no wait",
		set:   func(c *retryablehttp.Client, _ *notes) { waits(c, 0, 0) },
		steps: []testserver.Step{down(2)},
		want:  []int{503, 503, 200}, result: "200",
	}, {
		says:  "a negative wait",
		set:   func(c *retryablehttp.Client, _ *notes) { waits(c, -5, -1) },
		steps: []testserver.Step{down(2)},
		want:  []int{503, 503, 200}, result: "200",
	}, {
		says: "CheckRetry",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
				if resp != nil && resp.StatusCode == http.StatusConflict {
					return true, nil
				}
				return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
			}
		},
		steps: []testserver.Step{{Status: 409}, {Status: 503}, {Status: 501}},
		want:  []int{409, 503, 501}, result: "501", least: time.Second, most: 30 * time.Second,
	}, {
		says: "CheckRetry repeats a POST that was answered",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
				return resp != nil && resp.StatusCode == http.StatusConflict, nil
			}
		},
		send: post, steps: []testserver.Step{{Status: 409}},
		want: []int{409, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "an error of CheckRetry",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
				return false, fmt.Errorf("status %d", resp.StatusCode)
			}
		},
		steps: []testserver.Step{{Status: 404}},
		want:  []int{404}, result: fmt.Sprintf(gaveUp, 1) + ": status 404",
	}, {
		says: "an error of CheckRetry after broken connections",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.CheckRetry = func(context.Context, *http.Response, error) (bool, error) { return true, errors.New("worn out") }
		},
		fails: errors.New("broken"),
		want:  []int{0, 0, 0, 0, 0}, result: fmt.Sprintf(gaveUp, 5) + ": worn out",
	}, {
		says: "CheckRetry is asked once for each attempt",
		set: func(c *retryablehttp.Client, n *notes) {
			c.CheckRetry = func(_ context.Context, resp *http.Response, err error) (bool, error) {
				n.add("asked: %v", strings.HasSuffix(err.Error(), "broken"))
				return len(*n) < 3, nil
			}
		},
		fails: errors.New("broken"),
		want:  []int{0, 0, 0}, result: "broken",
	}, {
		says:  "ErrorPropagatedRetryPolicy",
		set:   func(c *retryablehttp.Client, _ *notes) { c.CheckRetry = retryablehttp.ErrorPropagatedRetryPolicy },
		steps: []testserver.Step{down(-1)},
		want:  []int{503, 503, 503, 503, 503}, least: time.Second, most: 30 * time.Second,
		result: fmt.Sprintf(gaveUp, 5) + ": unexpected HTTP status 503 Service Unavailable",
	}, {
		says:  "every status from 500 on but 501",
		steps: []testserver.Step{{Status: 520}, {Status: 505}, {Status: 599}},
		want:  []int{520, 505, 599, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says:  "a broken connection",
		steps: []testserver.Step{{Drop: true}},
		want:  []int{0, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "Backoff",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.Backoff = func(min, _ time.Duration, n int, _ *http.Response) time.Duration { return min * 7 }
		},
		steps: []testserver.Step{down(2)},
		want:  []int{503, 503, 200}, result: "200", least: 7 * time.Second, most: 7 * time.Second,
	}, {
		says: "LinearJitterBackoff",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.Backoff = retryablehttp.LinearJitterBackoff
			waits(c, 800, 1200)
		},
		steps: []testserver.Step{down(1)},
		want:  []int{503, 200}, result: "200", least: 800 * time.Millisecond, most: 1200 * time.Millisecond,
	}, {
		says: "RateLimitLinearJitterBackoff",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.Backoff = retryablehttp.RateLimitLinearJitterBackoff
			waits(c, 800, 1200)
		},
		steps: []testserver.Step{{Status: 429, RetryAfter: time.Minute}},
		want:  []int{429, 200}, result: "200", least: time.Minute, most: time.Minute + 10*time.Second,
	}, {
		says:  "a Retry-After of ten minutes",
		steps: []testserver.Step{{Status: 429, RetryAfter: 10 * time.Minute}},
		want:  []int{429, 200}, result: "200", least: 10 * time.Minute, most: 10*time.Minute + 10*time.Second,
	}, {
		says: "waits that add up to an hour",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = 10, 5*time.Minute, 10*time.Minute
		},
		steps: []testserver.Step{down(8)},
		want:  []int{503, 503, 503, 503, 503, 503, 503, 503, 200}, result: "200",
		least: 5 * time.Minute, most: 10 * time.Minute,
	}, {
		says: "HTTPClient.Timeout bounds each attempt",
		set: func(c *retryablehttp.Client, _ *notes) {
			c.RetryMax, c.HTTPClient.Timeout = 2, 5*time.Second
			c.CheckRetry = retryablehttp.DefaultRetryPolicy
		},
		steps: []testserver.Step{{Delay: 6 * time.Second, Times: 2}, {Delay: 4 * time.Second}},
		want:  []int{0, 0, 200}, result: "200", least: 5 * time.Second, most: 30 * time.Second,
	}, {
		says: "a Logger",
		set: func(c *retryablehttp.Client, n *notes) {
			c.Logger = printer{n}
		},
		steps: []testserver.Step{{Drop: true}, {Status: 503}},
		want:  []int{0, 503, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "a LeveledLogger",
		set: func(c *retryablehttp.Client, n *notes) {
			c.Logger = leveled{notes: n}
		},
		steps: []testserver.Step{{Drop: true}, {Status: 503}},
		want:  []int{0, 503, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "a LeveledLogger and the last failure",
		set: func(c *retryablehttp.Client, n *notes) {
			c.Logger = leveled{notes: n, but: "request not retried"}
		},
		fails: errors.New("broken"),
		want:  []int{0, 0, 0, 0, 0}, result: "broken",
	}, {
		says: "RequestLogHook, ResponseLogHook, PrepareRetry",
		set: func(c *retryablehttp.Client, n *notes) {
			c.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, i int) {
				n.add("request %d %s", i, req.Header.Get("Signature"))
			}
			c.PrepareRetry = func(req *http.Request) error {
				n.add("prepare")
				req.Header.Set("Signature", fmt.Sprint("signed ", len(*n)))
				return nil
			}
			c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) { n.add("response %d", resp.StatusCode) }
		},
		steps: []testserver.Step{{Drop: true}, {Status: 503}, {Status: 429}},
		want:  []int{0, 503, 429, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "an error of PrepareRetry",
		set: func(c *retryablehttp.Client, n *notes) {
			c.PrepareRetry = func(*http.Request) error { n.add("prepare"); return errors.New("no key") }
		},
		steps: []testserver.Step{down(-1)},
		want:  []int{503}, result: "no key",
	}, {
		says: "ErrorHandler after an error of PrepareRetry",
		set: func(c *retryablehttp.Client, n *notes) {
			c.PrepareRetry = func(*http.Request) error { return errors.New("no key") }
			c.ErrorHandler = func(_ *http.Response, err error, tries int) (*http.Response, error) {
				n.add("error %v, %d tries", err, tries)
				return nil, err
			}
		},
		steps: []testserver.Step{down(-1)},
		want:  []int{503}, result: "no key",
	}, {
		says: "ErrorHandler",
		set: func(c *retryablehttp.Client, n *notes) {
			c.ErrorHandler = func(resp *http.Response, err error, tries int) (*http.Response, error) {
				n.add("status %d, error %v, %d tries", resp.StatusCode, err, tries)
				resp.Body.Close()
				return nil, errors.New("handled")
			}
		},
		steps: []testserver.Step{down(-1)},
		want:  []int{503, 503, 503, 503, 503}, result: "handled", least: time.Second, most: 30 * time.Second,
	}, {
		says: "ErrorHandler after broken connections",
		set: func(c *retryablehttp.Client, n *notes) {
			c.ErrorHandler = func(resp *http.Response, err error, tries int) (*http.Response, error) {
				n.add("%v, %d tries, %v", resp, tries, strings.HasSuffix(err.Error(), "broken"))
				return resp, err
			}
		},
		fails: errors.New("broken"),
		want:  []int{0, 0, 0, 0, 0}, result: "broken",
	}, {
		says: "PassthroughErrorHandler", set: passthrough,
		steps: []testserver.Step{down(-1)},
		want:  []int{503, 503, 503, 503, 503}, result: "503", least: time.Second, most: 30 * time.Second,
	}, {
		says: "StandardClient",
		send: func(c *retryablehttp.Client, url string) (*http.Response, error) { return c.StandardClient().Get(url) },
		set:  func(c *retryablehttp.Client, _ *notes) { c.RetryMax = 1 }, steps: []testserver.Step{down(-1)},
		want: []int{503, 503}, least: time.Second, most: 30 * time.Second,
		result: `Get "http://server.test": ` + fmt.Sprintf(gaveUp, 2),
	}, {
		says: "ResponseHandler",
		send: func(c *retryablehttp.Client, url string) (*http.Response, error) {
			req, err := retryablehttp.NewRequest("GET", url, nil)
			if err != nil {
				return nil, err
			}
			req.SetResponseHandler(func(resp *http.Response) error { return resp.Body.Close() })
			return c.Do(req)
		},
		steps: []testserver.Step{down(2)},
		want:  []int{503, 503, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "a POST with an Idempotency-Key",
		send: func(c *retryablehttp.Client, url string) (*http.Response, error) {
			req, err := retryablehttp.NewRequest("POST", url, []byte("pay"))
			if err != nil {
				return nil, err
			}
			req.Header.Set("Idempotency-Key", "7")
			return c.Do(req)
		},
		steps: []testserver.Step{down(2)},
		want:  []int{503, 503, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "a POST that was refused", send: post,
		steps: []testserver.Step{{Status: 429}},
		want:  []int{429, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	}, {
		says: "If: retryable.If(client.CheckRetry) repeats a POST after a 503", send: post,
		with: func() *heed.Transport {
			check := retryable.If(retryablehttp.DefaultRetryPolicy)
			return &heed.Transport{Budget: heed.Unlimited, Retry: heed.RetryPolicy{If: check}}
		},
		steps: []testserver.Step{down(2)},
		want:  []int{503, 503, 200}, result: "200", least: time.Second, most: 30 * time.Second,
	},
}

var different = []difference{
	{
		row: row{
			says: "a POST after a 503", send: post, steps: []testserver.Step{down(2)},
			want: []int{503, 503, 200}, result: "200",
		},
		now: []int{503}, result: "POST http://server.test giving up after 1 attempt(s): not idempotent",
	}, {
		row: row{
			says: "a POST after a broken connection", send: post, steps: []testserver.Step{{Drop: true}},
			want: []int{0, 200}, result: "200",
		},
		now: []int{0}, result: "EOF",
	}, {
		row: row{
			says: "a name that does not exist",
			fails: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
				Err: "no such host", Name: "server.test", IsNotFound: true,
			}},
			want: []int{0, 0, 0, 0, 0}, result: "no such host",
		},
		now: []int{0}, result: "no such host",
	}, {
		row: row{
			says:  "408, and a 403 with a hint",
			steps: []testserver.Step{{Status: 408}, {Status: 403, RetryAfter: time.Second}},
			want:  []int{408}, result: "408",
		},
		now: []int{408, 403, 200}, result: "200",
	}, {
		row: row{
			says: "X-Should-Retry: false", set: passthrough,
			steps: []testserver.Step{hinting(503, "X-Should-Retry", "false")},
			want:  []int{503, 200}, result: "200",
		},
		now: []int{503}, result: "503",
	}, {
		row: row{
			says: "X-Should-Retry: false, and a CheckRetry that repeats a 409",
			set: func(c *retryablehttp.Client, _ *notes) {
				c.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
					return resp.StatusCode == http.StatusConflict, nil
				}
			},
			steps: []testserver.Step{hinting(409, "X-Should-Retry", "false")},
			want:  []int{409, 200}, result: "200",
		},
		now: []int{409}, result: fmt.Sprintf(gaveUp, 1),
	}, {
		row: row{
			says: "a Retry-After of more than a day", set: passthrough,
			steps: []testserver.Step{hinting(429, "Retry-After", "86401")},
			want:  []int{429, 200}, result: "200",
		},
		now: []int{429}, result: "429",
	}, {
		row: row{
			says: "budget", set: passthrough, steps: []testserver.Step{down(-1)}, with: func() *heed.Transport { return nil },
			want: []int{503, 503, 503, 503, 503}, result: "503",
		},
		now: []int{503, 503, 503, 503}, result: "503",
	}, {
		row: row{
			says: "an error of a ResponseHandler",
			set:  func(c *retryablehttp.Client, _ *notes) { c.RetryMax = 1 },
			send: func(c *retryablehttp.Client, url string) (*http.Response, error) {
				req, err := retryablehttp.NewRequest("GET", url, nil)
				if err != nil {
					return nil, err
				}
				req.SetResponseHandler(func(resp *http.Response) error { return errors.New("nonsense") })
				return c.Do(req)
			},
			want: []int{200, 200}, result: fmt.Sprintf(gaveUp, 2) + ": nonsense",
		},
		now: []int{200}, result: fmt.Sprintf(gaveUp, 1) + ": nonsense",
	}, {
		row: row{
			says: "a ResponseHandler after the last attempt",
			set:  passthrough,
			send: func(c *retryablehttp.Client, url string) (*http.Response, error) {
				req, err := retryablehttp.NewRequest("GET", url, nil)
				if err != nil {
					return nil, err
				}
				req.SetResponseHandler(func(*http.Response) error { return errors.New("called") })
				return c.Do(req)
			},
			steps: []testserver.Step{down(-1)},
			want:  []int{503, 503, 503, 503, 503}, result: "503",
		},
		now: []int{503, 503, 503, 503, 503}, result: "called",
	},
}

func TestInstallKeepsWhatTheClientDid(t *testing.T) {
	for _, r := range same {
		t.Run(r.says, func(t *testing.T) {
			before, after := r.before(t), r.after(t)
			for name, got := range map[string]report{"before": before, "after": after} {
				assert.Equal(t, r.want, got.statuses, name)
				assertResult(t, r.result, got.result, name)
				for _, wait := range got.waits {
					assert.GreaterOrEqual(t, wait, r.least, name)
					assert.LessOrEqual(t, wait, r.most, name)
				}
			}
			assert.Equal(t, before.told, after.told)
		})
	}
}

func TestTheDifferencesAreThoseOfThePage(t *testing.T) {
	for _, d := range different {
		t.Run(d.says, func(t *testing.T) {
			before, after := d.before(t), d.after(t)
			assert.Equal(t, d.want, before.statuses, "before")
			assertResult(t, d.row.result, before.result, "before")
			assert.Equal(t, d.now, after.statuses, "after")
			assertResult(t, d.result, after.result, "after")
		})
	}
}

// assertResult compares a status, or the end of an error's text.
func assertResult(t *testing.T, want, got, name string) {
	t.Helper()
	assert.True(t, strings.HasSuffix(got, want), "%s: %q, not %q", name, got, want)
}

func (r *row) before(t *testing.T) report { return r.run(t, func(*retryablehttp.Client) {}) }

func (r *row) after(t *testing.T) report {
	return r.run(t, func(c *retryablehttp.Client) {
		with := &heed.Transport{Budget: heed.Unlimited}
		if r.with != nil {
			with = r.with()
		}
		retryable.Install(c, with)
	})
}

func (r *row) run(t *testing.T, install func(*retryablehttp.Client)) (rep report) {
	synctest.Test(t, func(t *testing.T) {
		c := retryablehttp.NewClient()
		c.Logger = nil
		srv := testserver.New(t, r.steps...)
		c.HTTPClient.Transport = srv.Transport()
		failing := always(0, r.fails)
		if r.fails != nil {
			c.HTTPClient.Transport = failing
		}
		if r.set != nil {
			r.set(c, &rep.told)
		}
		install(c)
		rep.result = r.outcome(c, srv.URL)
		rep.statuses = slices.Concat(statuses(srv), make([]int, failing.count()))
		log := srv.Log()
		for i := range log[:max(0, len(log)-1)] {
			rep.waits = append(rep.waits, log[i+1].Arrived.Sub(log[i].Arrived))
		}
	})
	return rep
}

// outcome sends the request, and returns the status or the text of the error.
func (r *row) outcome(c *retryablehttp.Client, url string) string {
	send := r.send
	if send == nil {
		send = (*retryablehttp.Client).Get
	}
	resp, err := send(c, url)
	if resp != nil {
		resp.Body.Close()
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode)
}

func post(c *retryablehttp.Client, url string) (*http.Response, error) {
	return c.Post(url, "text/plain", []byte("pay"))
}

func waits(c *retryablehttp.Client, min, max time.Duration) {
	c.RetryWaitMin, c.RetryWaitMax = min*time.Millisecond, max*time.Millisecond
}

// A printer is a Logger that notes the level of each line.
type printer struct{ *notes }

func (p printer) Printf(format string, args ...any) {
	level, _, _ := strings.Cut(fmt.Sprintf(format, args...), "]")
	p.add("%s]", level)
}

// A leveled is a LeveledLogger that notes the level and the message of each line, but for
// one message.
type leveled struct {
	*notes
	but string
}

func (l leveled) Error(msg string, _ ...any) { l.line("error", msg) }
func (l leveled) Warn(msg string, _ ...any)  { l.line("warn", msg) }
func (l leveled) Info(msg string, _ ...any)  { l.line("info", msg) }
func (l leveled) Debug(msg string, _ ...any) { l.line("debug", msg) }

func (l leveled) line(level, msg string) {
	if msg != l.but {
		l.add("%s %s", level, msg)
	}
}

func TestOnlyTheLastResponsesCookiesAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		install func(*retryablehttp.Client)
		want    string
	}{
		"before": {func(*retryablehttp.Client) {}, "[number=503 number=200]"},
		"after":  {func(c *retryablehttp.Client) { retryable.Install(c, nil) }, "[number=200]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kept jar
				b, n := always(0, nil), 0
				b.f = func(req *http.Request) (*http.Response, error) {
					n++
					resp := answer(req, []int{503, 200}[n-1])
					resp.Header.Set("Set-Cookie", fmt.Sprint("number=", resp.StatusCode))
					return resp, nil
				}
				rc := client(b)
				rc.HTTPClient.Jar = &kept
				c.install(rc)
				resp, err := rc.Get("http://api.example.com")
				content(t, resp, err)
				assert.Equal(t, c.want, fmt.Sprint(kept))
			})
		})
	}
}

// A jar keeps all cookies.
type jar []*http.Cookie

func (j *jar) SetCookies(_ *url.URL, cookies []*http.Cookie) { *j = append(*j, cookies...) }
func (j *jar) Cookies(*url.URL) []*http.Cookie               { return nil }

func TestACoolDownHoldsOtherRequestsUnlessTurnedOff(t *testing.T) {
	for _, c := range []struct {
		board heed.Board
		least time.Duration
	}{{nil, 9 * time.Second}, {heed.NoBoard, 0}} {
		synctest.Test(t, func(t *testing.T) {
			srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
			client := client(srv.Transport())
			client.RetryMax = 0
			retryable.Install(client, &heed.Transport{Board: c.board})
			resp, err := client.Get(srv.URL)
			content(t, resp, err)
			time.Sleep(time.Second)
			waited := took(func() {
				resp, err := client.Get(srv.URL)
				content(t, resp, err)
			})
			if c.least == 0 {
				assert.Zero(t, waited)
			}
			assert.GreaterOrEqual(t, waited, c.least)
		})
	}
}

func TestTheTimeoutBoundsTheReadingOfTheBody(t *testing.T) {
	for name, install := range map[string]func(*retryablehttp.Client){
		"before": func(*retryablehttp.Client) {},
		"after":  func(c *retryablehttp.Client) { retryable.Install(c, nil) },
		"after, again": func(c *retryablehttp.Client) {
			retryable.Install(c, nil)
			retryable.Install(c, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(time.Second)
						w.WriteHeader(200)
						w.(http.Flusher).Flush()
						<-r.Context().Done()
					})
				})
				c := client(srv.Transport())
				c.HTTPClient.Timeout = 5 * time.Second
				install(c)
				assert.Equal(t, 5*time.Second, took(func() {
					resp, err := c.Get(srv.URL)
					require.NoError(t, err)
					defer resp.Body.Close()
					_, err = resp.Body.Read(make([]byte, 1))
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					var timeout net.Error
					require.ErrorAs(t, err, &timeout)
					assert.True(t, timeout.Timeout())
				}))
			})
		})
	}
}

// CheckRetry and ResponseLogHook may read the body of a response that is retried, too.
func TestTheTimeoutBoundsTheReadingOfEachBody(t *testing.T) {
	for name, install := range map[string]func(*retryablehttp.Client){
		"before": func(*retryablehttp.Client) {},
		"after":  func(c *retryablehttp.Client) { retryable.Install(c, &heed.Transport{Budget: heed.Unlimited}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.WriteHeader(503)
						w.(http.Flusher).Flush()
						<-r.Context().Done()
					})
				})
				c := client(srv.Transport())
				c.RetryMax, c.HTTPClient.Timeout = 1, 5*time.Second
				read := 0
				c.CheckRetry = func(_ context.Context, resp *http.Response, _ error) (bool, error) {
					if resp == nil {
						return false, nil
					}
					_, err := io.ReadAll(resp.Body)
					assert.Error(t, err)
					read++
					return true, nil
				}
				install(c)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				assert.LessOrEqual(t, took(func() {
					resp, err := c.Do(request(t, "GET", srv.URL, nil).WithContext(ctx))
					require.NoError(t, err)
					resp.Body.Close()
				}), 12*time.Second)
				assert.Equal(t, 2, read)
			})
		})
	}
}

func TestATimeoutIsTheErrorThatItWas(t *testing.T) {
	for name, install := range map[string]func(*retryablehttp.Client){
		"before": func(*retryablehttp.Client) {},
		"after":  func(c *retryablehttp.Client) { retryable.Install(c, &heed.Transport{Budget: heed.Unlimited}) },
	} {
		for retries := range 2 {
			t.Run(fmt.Sprint(name, ", RetryMax ", retries), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testserver.New(t, testserver.Step{Delay: time.Minute, Times: -1})
					c := client(srv.Transport())
					c.RetryMax, c.HTTPClient.Timeout = retries, 5*time.Second
					install(c)
					_, err := c.Get(srv.URL)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					var timeout net.Error
					require.ErrorAs(t, err, &timeout)
					assert.True(t, timeout.Timeout())
					assert.Len(t, srv.Log(), retries+1)
				})
			})
		}
	}
}

func TestADeadlineIsAnErrorThatSaysSo(t *testing.T) {
	for name, install := range map[string]func(*retryablehttp.Client){
		"before": func(*retryablehttp.Client) {},
		"after":  func(c *retryablehttp.Client) { retryable.Install(c, nil) },
	} {
		for sender, do := range map[string]func(*retryablehttp.Client, *retryablehttp.Request) (*http.Response, error){
			"Do": (*retryablehttp.Client).Do,
			"StandardClient": func(c *retryablehttp.Client, req *retryablehttp.Request) (*http.Response, error) {
				return c.StandardClient().Do(req.Request)
			},
		} {
			t.Run(name+", "+sender, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Minute, Times: -1})
					c := client(srv.Transport())
					c.ErrorHandler = nil
					install(c)
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					waited := took(func() {
						resp, err := do(c, request(t, "GET", srv.URL, nil).WithContext(ctx))
						require.Nil(t, resp)
						require.ErrorIs(t, err, context.DeadlineExceeded)
						var timeout net.Error
						require.ErrorAs(t, err, &timeout)
						assert.True(t, timeout.Timeout())
					})
					assert.LessOrEqual(t, waited, 30*time.Second)
					assert.Len(t, srv.Log(), 1)
				})
			})
		}
	}
}
