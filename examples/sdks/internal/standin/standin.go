// Package standin plays an API in memory, so that an example needs no account and no network.
package standin

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// Refusing returns an API that refuses the first request with a status and fields, as names and
// values in turn, and answers all others with the same JSON.
func Refusing(status int, refusal, answer string, fields ...string) http.RoundTripper {
	var requests atomic.Int64
	return API(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if requests.Add(1) > 1 {
			_, _ = io.WriteString(w, answer)
			return
		}
		for i := 0; i+1 < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, refusal)
	})
}

// An API is a handler that answers requests to any URL, in memory.
type API http.HandlerFunc

// RoundTrip lets a answer req.
func (a API) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	w := httptest.NewRecorder()
	a(w, req)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}
