package retryable_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
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

func TestRetryAfterIsObeyedInEveryForm(t *testing.T) {
	const told = 20 * time.Second
	for _, status := range []int{429, 503} {
		for name, value := range map[string]func(time.Time) string{
			"seconds":  func(time.Time) string { return "20" },
			"RFC 1123": func(at time.Time) string { return at.UTC().Format(http.TimeFormat) },
			"RFC 850":  func(at time.Time) string { return at.UTC().Format("Monday, 02-Jan-06 15:04:05 GMT") },
			"asctime":  func(at time.Time) string { return at.UTC().Format(time.ANSIC) },
		} {
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testserver.New(t, hinting(status, "Retry-After", value(time.Now().Add(told))))
					d := took(func() {
						resp, err := installed(srv.Transport()).Get(srv.URL)
						content(t, resp, err)
					})
					assert.Equal(t, []int{status, 200}, statuses(srv))
					assert.GreaterOrEqual(t, d, told)
					assert.LessOrEqual(t, d, told+told/10*3+30*time.Second) // its jitter, and the backoff's
					srv.Check(t)
				})
			})
		}
	}
}

func TestAWaitOfMoreThanADayIsNotBegun(t *testing.T) {
	for _, value := range []string{
		"86401",                         // a day and a second
		"1746136938",                    // an epoch
		"9223372036",                    // the most seconds that a time.Duration holds
		"9223372037",                    // one more, which is negative in their arithmetic
		"18446744074",                   // which is a third of a second in it
		"99999999999999999999",          // more than an int64 holds
		"Fri, 31 Dec 9999 23:59:59 GMT", // more than a time.Duration does
	} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, hinting(429, "Retry-After", value))
				assert.Zero(t, took(func() {
					resp, err := installed(srv.Transport()).Get(srv.URL)
					status, body := content(t, resp, err)
					assert.Equal(t, 429, status)
					assert.Equal(t, "later", body)
				}))
				assert.Len(t, srv.Log(), 1)
				srv.Check(t)
			})
		})
	}
}

func TestAHintThatMakesNoSenseCountsAsNone(t *testing.T) {
	for _, value := range []string{"", "-1", "soon", "1.5.2", "12s"} {
		t.Run(value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, hinting(503, "Retry-After", value))
				d := took(func() {
					resp, err := installed(srv.Transport()).Get(srv.URL)
					content(t, resp, err)
				})
				assert.Equal(t, []int{503, 200}, statuses(srv))
				assert.LessOrEqual(t, d, 2*time.Second, "the first backoff")
			})
		})
	}
}

func TestACancellationEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503, RetryAfter: 30 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel)
		req := request(t, "GET", srv.URL, nil).WithContext(ctx)
		assert.Equal(t, 7*time.Second, took(func() {
			_, err := installed(srv.Transport()).Do(req)
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, "not sent again after attempt 1, which ended with status 503")
		}))
		assert.Len(t, srv.Log(), 1)
	})
}

func TestACancellationIsTheErrorWheneverItComes(t *testing.T) {
	for name, install := range map[string]func(*retryablehttp.Client){
		"before": func(*retryablehttp.Client) {},
		"after":  func(c *retryablehttp.Client) { retryable.Install(c, &heed.Transport{Budget: heed.Unlimited}) },
	} {
		t.Run(name, func(t *testing.T) {
			for after := range 14 { // attempts of two seconds, and a second between them
				synctest.Test(t, func(t *testing.T) {
					srv := testserver.New(t, testserver.Step{Delay: 2 * time.Second, Status: 503, Times: -1})
					c := client(srv.Transport())
					c.ErrorHandler = nil
					c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = 10, time.Second, time.Second
					asked := 0
					c.CheckRetry = func(_ context.Context, resp *http.Response, err error) (bool, error) {
						asked++
						if err == nil {
							err = errors.New(resp.Status)
						}
						return true, err
					}
					install(c)
					ctx, cancel := context.WithCancel(t.Context())
					when := time.Duration(after)*time.Second + time.Second/2
					time.AfterFunc(when, cancel)
					assert.Equal(t, when, took(func() {
						resp, err := c.Do(request(t, "GET", srv.URL, nil).WithContext(ctx))
						assert.Nil(t, resp)
						assert.ErrorIs(t, err, context.Canceled)
						var timeout net.Error
						assert.False(t, errors.As(err, &timeout) && timeout.Timeout())
					}))
					assert.Equal(t, after/3+1, asked, "once for each attempt, and not for a wait")
				})
			}
		})
	}
}

func TestAWaitBeyondTheDeadlineIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503, RetryAfter: 30 * time.Second, Body: "busy"})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		assert.Zero(t, took(func() {
			resp, err := installed(srv.Transport()).Do(request(t, "GET", srv.URL, nil).WithContext(ctx))
			status, body := content(t, resp, err)
			assert.Equal(t, 503, status)
			assert.Equal(t, "busy", body)
		}))
	})
}

func TestOneRefusalHoldsBackAllRequestsOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: 10 * time.Second})
		c := installed(srv.Transport())
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				resp, err := c.Get(srv.URL)
				content(t, resp, err)
			})
		}
		wg.Wait()
		assert.Equal(t, []int{429, 200, 200, 200, 200, 200}, statuses(srv))
		srv.Check(t)
	})
}

func TestARefusedRequestTellsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Hour})
		c := client(srv.Transport())
		retryable.Install(c, &heed.Transport{Retry: heed.RetryPolicy{MaxWait: time.Minute}})
		resp, err := c.Get(srv.URL)
		content(t, resp, err)
		for _, get := range []func(string) (*http.Response, error){c.Get, c.StandardClient().Get} {
			_, err = get(srv.URL)
			var overdue *heed.OverdueError
			require.ErrorAs(t, err, &overdue)
			assert.Equal(t, time.Hour, overdue.Wait)
		}
		assert.Len(t, srv.Log(), 1)
	})
}
