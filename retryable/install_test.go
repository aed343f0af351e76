package retryable_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
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

// What go-retryablehttp's own tests ask of a client, asked of one with heed in
// it: each is a timeline in a bubble, against a server that keeps a record.

func TestServerErrorsAreRetriedUntilTheyAreOver(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		synctest.Test(t, func(t *testing.T) {
			srv := testserver.New(t, testserver.Step{Status: 500}, testserver.Step{Status: 502}, testserver.Step{Status: 200})
			resp, err := installed(srv.Transport()).Do(request(t, method, srv.URL, nil))
			status, _ := content(t, resp, err)
			assert.Equal(t, 200, status)
			assert.Equal(t, []int{500, 502, 200}, statuses(srv), method)
			srv.Check(t)
		})
	}
}

func TestABrokenConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Drop: true}, testserver.Step{Status: 200})
		resp, err := installed(srv.Transport()).Get(srv.URL)
		status, _ := content(t, resp, err)
		assert.Equal(t, 200, status)
		assert.Equal(t, []int{0, 200}, statuses(srv))
		srv.Check(t)
	})
}

func TestAPostWithoutAKeyIsNotRepeated(t *testing.T) {
	for _, step := range []testserver.Step{{Status: 503, Body: "busy"}, {Drop: true}} {
		synctest.Test(t, func(t *testing.T) {
			srv := testserver.New(t, step)
			resp, err := installed(srv.Transport()).Post(srv.URL, "text/plain", []byte("pay"))
			if step.Drop {
				require.Error(t, err)
				require.Nil(t, resp)
			} else {
				status, body := content(t, resp, err)
				assert.Equal(t, 503, status)
				assert.Equal(t, "busy", body)
			}
			assert.Len(t, srv.Log(), 1)
			srv.Check(t)
		})
	}
}

func TestTheLastResponseIsReturnedWhole(t *testing.T) {
	for _, do := range []struct {
		name string
		get  func(c *retryablehttp.Client, url string) (*http.Response, error)
	}{
		{"Get", func(c *retryablehttp.Client, url string) (*http.Response, error) { return c.Get(url) }},
		{"StandardClient", func(c *retryablehttp.Client, url string) (*http.Response, error) {
			return c.StandardClient().Get(url)
		}},
	} {
		t.Run(do.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testserver.New(t, testserver.Step{Status: 503, Body: "down for maintenance", Times: -1})
				resp, err := do.get(installed(srv.Transport()), srv.URL)
				status, body := content(t, resp, err)
				assert.Equal(t, 503, status)
				assert.Equal(t, "down for maintenance", body)
				assert.Len(t, srv.Log(), 5)
				srv.Check(t)
			})
		})
	}
}

func TestAFailureIsTheHTTPClientsError(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		for _, get := range []func(*retryablehttp.Client) (*http.Response, error){
			func(c *retryablehttp.Client) (*http.Response, error) { return c.Get("http://api.example.com") },
			func(c *retryablehttp.Client) (*http.Response, error) {
				return c.StandardClient().Get("http://api.example.com")
			},
		} {
			b := always(0, broken)
			resp, err := get(installed(b))
			require.Nil(t, resp)
			require.ErrorIs(t, err, broken)
			assert.Equal(t, `Get "http://api.example.com": heed: 5 attempts failed: broken`, err.Error())
			assert.Equal(t, 5, b.count())
		}
	})
}

func TestPermanentFailuresAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unknown := always(0, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
		_, err := installed(unknown).Get("https://api.example.com")
		require.Error(t, err)
		assert.Equal(t, 1, unknown.count())

		srv := testserver.New(t)
		c, attempts := client(srv.Transport()), 0
		retryable.Install(c, &heed.Transport{Budget: heed.Unlimited, Trace: &heed.Trace{
			Decided: func(heed.Attempt, heed.Verdict, time.Duration) { attempts++ },
		}})
		_, err = c.Get("ftp" + strings.TrimPrefix(srv.URL, "http"))
		require.ErrorContains(t, err, "unsupported protocol scheme")
		for _, header := range [][2]string{{"Name-\033", "value"}, {"Name", "value \033"}} {
			req, err := http.NewRequest("GET", srv.URL, nil)
			require.NoError(t, err)
			req.Header[header[0]] = []string{header[1]}
			_, err = c.StandardClient().Do(req)
			require.ErrorContains(t, err, "invalid header")
		}
		assert.Equal(t, 3, attempts, "one of each")
		assert.Empty(t, srv.Log())
	})
}

func TestTheErrorOfAResponseHandlerIsFinal(t *testing.T) {
	b, body := inTurn(200), &tracked{Reader: strings.NewReader("nonsense")}
	answerOK := b.f
	b.f = func(req *http.Request) (*http.Response, error) {
		resp, err := answerOK(req)
		resp.Body = body
		return resp, err
	}
	nonsense := errors.New("nonsense")
	req := request(t, "GET", "http://api.example.com", nil)
	req.SetResponseHandler(func(*http.Response) error { return nonsense })
	c := installed(b)
	c.ErrorHandler = nil
	retryable.Install(c, nil)
	resp, err := c.Do(req)
	require.ErrorIs(t, err, nonsense)
	require.Nil(t, resp)
	assert.Equal(t, 1, body.closed)
	assert.Equal(t, 1, b.count())
}

func TestAFailureLeavesTheConnectionsOfOthersAlone(t *testing.T) {
	b := always(0, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
	c, tr := client(b), &heed.Transport{Budget: heed.Unlimited}
	retryable.Install(c, tr)
	for range 3 {
		_, err := c.Get("http://api.example.com")
		require.Error(t, err)
	}
	assert.Zero(t, b.closes)

	tr.CloseIdleConnections()
	assert.Equal(t, 1, b.closes, "the Transport can do it")
}

func TestRetriesUseTheConnectionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testserver.New(t, testserver.Step{Status: 503, Body: strings.Repeat("busy ", 1000), Times: 3})
		c := installed(srv.Transport())
		for range 3 {
			resp, err := c.Get(srv.URL)
			content(t, resp, err)
		}
		peers := make(map[string]bool)
		for _, e := range srv.Log() {
			peers[e.Remote] = true
		}
		assert.Len(t, srv.Log(), 6)
		assert.Len(t, peers, 1)
	})
}

func TestInstallingAgainReplacesWhatWasInstalled(t *testing.T) {
	first := &heed.Transport{Budget: heed.Unlimited}
	for name, prepare := range map[string]func(c *retryablehttp.Client) *heed.Transport{
		"once": func(*retryablehttp.Client) *heed.Transport { return first },
		"the same": func(c *retryablehttp.Client) *heed.Transport {
			tr := &heed.Transport{Budget: heed.Unlimited}
			retryable.Install(c, tr)
			return tr
		},
		"another": func(c *retryablehttp.Client) *heed.Transport {
			retryable.Install(c, &heed.Transport{Budget: heed.Unlimited})
			return &heed.Transport{Budget: heed.Unlimited}
		},
		"by hand before": func(c *retryablehttp.Client) *heed.Transport {
			tr := &heed.Transport{Budget: heed.Unlimited, Base: c.HTTPClient.Transport}
			c.HTTPClient.Transport = tr
			return tr
		},
		"another by hand before": func(c *retryablehttp.Client) *heed.Transport {
			c.HTTPClient.Transport = &heed.Transport{Budget: heed.Unlimited, Base: c.HTTPClient.Transport}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := always(503, nil)
				c := client(b)
				tr, want := prepare(c), 5
				if tr == nil {
					want = 4 // as the budget of a new Transport has three retries
				}
				retryable.Install(c, tr)
				resp, err := c.Get("http://api.example.com")
				content(t, resp, err)
				assert.Equal(t, want, b.count(), "one loop, not one around another")
			})
		})
	}
}

func TestATransportIsNotInstalledIntoItself(t *testing.T) {
	c, tr := client(nil), &heed.Transport{Budget: heed.Unlimited}
	c.HTTPClient.Transport = tr // and so it sends through http.DefaultTransport
	retryable.Install(c, tr)
	_, err := c.Get("unheard-of://api.example.com")
	require.ErrorContains(t, err, "unsupported protocol scheme")
}

func TestABaseOfTheCallersReplacesThatOfTheClient(t *testing.T) {
	former, own := inTurn(200), inTurn(200)
	c := client(former)
	retryable.Install(c, &heed.Transport{Budget: heed.Unlimited, Base: own})
	resp, err := c.Get("http://api.example.com")
	content(t, resp, err)
	assert.Zero(t, former.count())
	assert.Equal(t, 1, own.count())
}

func TestTheHTTPClientThatOthersShareStaysAsItWas(t *testing.T) {
	b := inTurn(503)
	shared := &http.Client{Transport: b}
	c := client(nil)
	c.HTTPClient = shared
	retryable.Install(c, nil)
	assert.Same(t, b, shared.Transport)
	assert.NotSame(t, shared, c.HTTPClient)
}

func TestAClientWithoutAnHTTPClientGetsItsUsualOne(t *testing.T) {
	c := &retryablehttp.Client{}
	retryable.Install(c, nil)
	require.NotNil(t, c.HTTPClient)
	_, err := c.Get("unheard-of://api.example.com")
	require.ErrorContains(t, err, "unsupported protocol scheme")
}

func TestInstallSaysThatTheClientIsMissing(t *testing.T) {
	assert.PanicsWithValue(t, "retryable: Install: the client is nil", func() { retryable.Install(nil, nil) })
}
