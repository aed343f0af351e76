package retryable_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
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

func TestEachKindOfBodyIsReplayedAsItWas(t *testing.T) {
	const text = "the same bytes each time"
	for name, c := range map[string]struct {
		body   any
		length int64 // that go-retryablehttp finds out
	}{
		"nothing":       {nil, 0},
		"bytes":         {[]byte(text), int64(len(text))},
		"bytes.Buffer":  {bytes.NewBufferString(text), int64(len(text))},
		"bytes.Reader":  {bytes.NewReader([]byte(text)), int64(len(text))},
		"io.ReadSeeker": {strings.NewReader(text), int64(len(text))},
		"io.Reader":     {io.MultiReader(strings.NewReader(text)), int64(len(text))},
		"empty reader":  {io.MultiReader(), 0},
		"ReaderFunc":    {retryablehttp.ReaderFunc(opened(text)), int64(len(text))},
		"func":          {opened(text), int64(len(text))},
		"func, no Len":  {func() (io.Reader, error) { return io.MultiReader(strings.NewReader(text)), nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := arrival{c.length, text}
				if name == "nothing" || name == "empty reader" {
					want.body = ""
				}
				b := inTurn(503, 429, 503, 200)
				req := request(t, "POST", "http://api.example.com", c.body)
				req.Header.Set("Idempotency-Key", "7")
				resp, err := installed(b).Do(req)
				status, _ := content(t, resp, err)
				assert.Equal(t, 200, status)
				assert.Equal(t, []arrival{want, want, want, want}, b.seen)
			})
		})
	}
}

func opened(text string) func() (io.Reader, error) {
	return func() (io.Reader, error) { return strings.NewReader(text), nil }
}

func TestTheContentLengthIsOnTheWireEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lengths []int64
		srv := testserver.NewLimited(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				lengths = append(lengths, r.ContentLength)
				io.Copy(io.Discard, r.Body)
				if len(lengths) < 3 {
					w.WriteHeader(503)
				}
			})
		})
		req := request(t, "PUT", srv.URL, []byte("twelve bytes"))
		resp, err := installed(srv.Transport()).Do(req)
		content(t, resp, err)
		assert.Equal(t, []int64{12, 12, 12}, lengths)
	})
}

func TestAStreamIsReplayedWithinMaxBodyBuffer(t *testing.T) {
	const text = "a stream that net/http cannot rewind"
	for _, c := range []struct {
		max  int64
		want []int
	}{
		{0, []int{429, 200}}, // Install sets it
		{int64(len(text)), []int{429, 200}},
		{int64(len(text)) - 1, []int{429}},
		{-1, []int{429}},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := testserver.New(t, testserver.Step{Status: 429, RetryAfter: time.Second})
			rc := client(srv.Transport())
			retryable.Install(rc, &heed.Transport{Budget: heed.Unlimited, Retry: heed.RetryPolicy{MaxBodyBuffer: c.max}})
			req, err := http.NewRequest("POST", srv.URL, io.MultiReader(strings.NewReader(text)))
			require.NoError(t, err)
			req.ContentLength = int64(len(text))
			require.Nil(t, req.GetBody)
			resp, err := rc.StandardClient().Do(req)
			content(t, resp, err)
			assert.Equal(t, c.want, statuses(srv))
			for _, e := range srv.Log() {
				assert.EqualValues(t, len(text), e.BodyLength)
			}
			srv.Check(t)
		})
	}
}

func TestAnUpgradedConnectionOutlivesTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection := &tracked{Reader: strings.NewReader("switched")}
		var ctx context.Context
		b := always(0, nil)
		b.f = func(req *http.Request) (*http.Response, error) {
			ctx = req.Context()
			resp := answer(req, 101)
			resp.Body = connection
			return resp, nil
		}
		c := client(b)
		c.HTTPClient.Timeout = time.Second
		retryable.Install(c, nil)
		resp, err := c.Get("http://api.example.com")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Same(t, connection, resp.Body, "with whatever methods it has")
		assert.NoError(t, ctx.Err())
	})
}

func TestABodyThatWasReadEndsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		b := always(0, nil)
		b.f = func(req *http.Request) (*http.Response, error) {
			ctx = req.Context()
			resp := answer(req, 200)
			resp.Body = io.NopCloser(strings.NewReader("all of it"))
			return resp, nil
		}
		c := client(b)
		c.HTTPClient.Timeout = time.Hour
		retryable.Install(c, nil)
		resp, err := c.Get("http://api.example.com")
		require.NoError(t, err)
		assert.NoError(t, ctx.Err())
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.ErrorIs(t, ctx.Err(), context.Canceled, "though it was not closed")
	})
}
