package retryable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/retryable"
)

// A client before Install and one after it have the same settings and the same server. Each
// notes what the server answers, and what its functions are told, in order.
func TestRandomSettingsDoTheSameAsBefore(t *testing.T) {
	for seed := range uint64(500) {
		synctest.Test(t, func(t *testing.T) {
			before := told(seed, func(*retryablehttp.Client) {})
			after := told(seed, func(c *retryablehttp.Client) {
				retryable.Install(c, &heed.Transport{Budget: heed.Unlimited, Board: heed.NoBoard})
			})
			require.Equal(t, before, after, "seed %d", seed)
			assert.NotEmpty(t, before)
		})
	}
}

func told(seed uint64, install func(*retryablehttp.Client)) (n notes) {
	r := rand.New(rand.NewPCG(seed, 0))
	broken := errors.New("broken")
	c := client(&base{f: func(req *http.Request) (*http.Response, error) {
		status := []int{0, 200, 404, 409, 429, 500, 501, 503, 599}[r.IntN(9)]
		n.add("answer %d to %s", status, req.Header["Signature"])
		if status == 0 {
			return nil, broken
		}
		return answer(req, status), nil
	}})
	c.RetryMax = r.IntN(5)
	c.CheckRetry = []retryablehttp.CheckRetry{
		retryablehttp.DefaultRetryPolicy, retryablehttp.ErrorPropagatedRetryPolicy,
		func(_ context.Context, resp *http.Response, err error) (bool, error) {
			n.add("check %v, %v", status(resp), last(err))
			return err != nil || resp.StatusCode == http.StatusConflict, nil
		},
		func(_ context.Context, resp *http.Response, err error) (bool, error) {
			n.add("check %v, %v", status(resp), last(err))
			return err != nil || resp.StatusCode > 400, errors.New("checked")
		},
	}[r.IntN(4)]
	unsigned := r.IntN(9)
	c.PrepareRetry = func(req *http.Request) error {
		n.add("prepare")
		req.Header.Set("Signature", fmt.Sprint(len(n)))
		if unsigned--; unsigned == 0 {
			return errors.New("no key")
		}
		return nil
	}
	c.RequestLogHook = func(_ retryablehttp.Logger, _ *http.Request, i int) { n.add("request %d", i) }
	c.ResponseLogHook = func(_ retryablehttp.Logger, resp *http.Response) { n.add("response %d", status(resp)) }
	c.ErrorHandler = []retryablehttp.ErrorHandler{
		nil, retryablehttp.PassthroughErrorHandler,
		func(_ *http.Response, err error, tries int) (*http.Response, error) {
			n.add("handle %s after %d", last(err), tries)
			return answer(nil, 418), nil
		},
	}[r.IntN(3)]
	install(c)
	method := []string{"GET", "PUT"}[r.IntN(2)]
	req, err := retryablehttp.NewRequest(method, "http://api.example.com", []byte("cargo"))
	if err != nil {
		panic(err)
	}
	resp, err := c.Do(req)
	n.add("result %s", last(err))
	if err == nil {
		n.add("status %d", status(resp))
	}
	return n
}

func status(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

// last is the cause of an error: what comes before may differ.
func last(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()[strings.LastIndex(err.Error(), ": ")+1:]
}
