package ratelimit_test

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// A vector is a row of testdata/wire-vectors.json: a response and the wait that it asks
// for.
type vector struct {
	Name    string              `json:"name"`
	Now     time.Time           `json:"now"`
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers"`
	WantMS  *int64              `json:"want_ms"` // nil if it asks for none
	Why     string              `json:"why"`
}

// header returns the fields with canonical names, as net/http does.
func (v vector) header() http.Header {
	h := http.Header{}
	for name, lines := range v.Headers {
		for _, line := range lines {
			h.Add(name, line)
		}
	}
	return h
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/wire-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		want := none
		if v.WantMS != nil {
			want = (time.Duration(*v.WantMS) * time.Millisecond).String()
		}
		if got := answer(v.Status, v.header(), v.Now); got != want {
			t.Errorf("%s: got %s, want %s: %s", v.Name, got, want, v.Why)
		}
	}
	if len(vectors) != 207 {
		t.Errorf("ran %d rows, want 207", len(vectors))
	}
}

// none is the answer of a response that asks for no wait.
const none = "none"

// answer returns the result of Wait in words.
func answer(status int, h http.Header, now time.Time) string {
	wait, ok := ratelimit.Wait(status, h, now)
	switch {
	case ok:
		return wait.String()
	case wait != 0:
		return "not ok, and yet " + wait.String()
	default:
		return none
	}
}
