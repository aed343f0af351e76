package retryable_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/retryable"
	"github.com/heedhttp/heed/testserver"
)

func TestARedirectIsFollowedAndItsTargetRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Route("/old", hinting(302, "Location", "/new"))
		srv.Route("/new", testserver.Step{Status: 503, Times: 3}, testserver.Step{Status: 200, Body: "here"})
		resp, err := installed(srv.Transport()).Get(srv.URL + "/old")
		status, body := content(t, resp, err)
		assert.Equal(t, 200, status)
		assert.Equal(t, "here", body)
		want := []string{"GET /old", "GET /new", "GET /new", "GET /new", "GET /new"}
		assert.Equal(t, want, paths(srv), "each hop is a request of its own")
		srv.Check(t)
	})
}

func TestARedirectTakesTheBodyAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t)
		srv.Route("/old", testserver.Step{Status: 503}, hinting(307, "Location", "/new"))
		srv.Route("/new", testserver.Step{Status: 503}, testserver.Step{Status: 201})
		resp, err := installed(srv.Transport()).Do(request(t, "PUT", srv.URL+"/old", strings.NewReader("cargo")))
		status, _ := content(t, resp, err)
		assert.Equal(t, 201, status)
		assert.Equal(t, []string{"PUT /old", "PUT /old", "PUT /new", "PUT /new"}, paths(srv))
		for _, e := range srv.Log() {
			assert.EqualValues(t, len("cargo"), e.BodyLength)
		}
		srv.Check(t)
	})
}

func TestARedirectThatLeadsNowhereIsNotRetried(t *testing.T) {
	for name, location := range map[string]string{"malformed": "http://[broken", "endless": "/loop"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t)
				step := hinting(302, "Location", location)
				step.Times = -1
				srv.Route("/loop", step)
				c := client(srv.Transport())
				c.ErrorHandler = nil
				retryable.Install(c, nil)
				resp, err := c.Get(srv.URL + "/loop")
				require.Error(t, err)
				require.Nil(t, resp, "either a response or an error")
				var at *url.Error
				assert.ErrorAs(t, err, &at)
				assert.Len(t, srv.Log(), map[string]int{"malformed": 1, "endless": 10}[name])
			})
		})
	}
}

func TestCheckRedirectOfTheHTTPClientIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, hinting(302, "Location", "/new"))
		c := client(srv.Transport())
		c.HTTPClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		retryable.Install(c, nil)
		resp, err := c.Get(srv.URL)
		status, _ := content(t, resp, err)
		assert.Equal(t, 302, status)
	})
}
