package heed_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed"
)

// nest puts n Transports around rt, each with a RoundTripper in between that clones the request.
func nest(rt http.RoundTripper, n int) http.RoundTripper {
	for range n {
		inner := rt
		rt = &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			return inner.RoundTrip(req.Clone(req.Context())) // as RoundTrippers that sign or trace do
		})}
	}
	return rt
}

func TestNestedTransportsDoNotMultiplyAttempts(t *testing.T) {
	for name, answer := range map[string]reply{
		"503": unavailable, "an error": {err: errBroken}, "429": throttle("1"), "a plain 429": {status: 429},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := 1; n <= 4; n++ {
					s := newScript(answer)
					for i := range 3 {
						before := s.count()
						if resp, err := nest(s, n).RoundTrip(get(t.Context())); err == nil {
							resp.Body.Close()
						}
						sent := s.count() - before
						assert.LessOrEqual(t, sent, 4, "%d Transports, call %d", n, i)
						assert.Greater(t, sent, 1, "it is retried")
					}
				}
			})
		})
	}
}

func TestAnOuterTransportRetriesIfTheInnerMayNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(unavailable, unavailable, ok)
		inner := &heed.Transport{Base: s, Retry: heed.RetryPolicy{MaxAttempts: -1}}
		assert.Equal(t, 200, status(t, &heed.Transport{Base: inner}, get(t.Context())))
		assert.Equal(t, 3, s.count())
	})
}

func TestASubRequestOfBaseIsRetriedSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, s := newScript(unavailable, ok), newScript(unavailable, ok)
		auth := &heed.Transport{Base: tokens}
		outer := &heed.Transport{Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			sub, _ := http.NewRequestWithContext(req.Context(), "GET", "http://tokens.example.com/", nil)
			assert.Equal(t, 200, status(t, auth, sub))
			return s.RoundTrip(req)
		})}
		assert.Equal(t, 200, status(t, outer, get(t.Context())))
		assert.Equal(t, []int{3, 2}, []int{tokens.count(), s.count()})
	})
}

var onlyResponse = &http.Response{StatusCode: 503, Proto: "HTTP/1.1", ProtoMajor: 1, Header: http.Header{},
	Body: http.NoBody}

func TestABaseThatReusesOneResponseIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			for _, resp := range []*http.Response{onlyResponse, {StatusCode: 503, Body: http.NoBody}} {
				sent := 0
				tr := &heed.Transport{Budget: heed.Unlimited, Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
					sent++
					return resp, nil
				})}
				for range 2 {
					assert.Equal(t, 503, status(t, tr, get(t.Context())))
				}
				assert.Equal(t, 8, sent)
			}
		}
	})
}
