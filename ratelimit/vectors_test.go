package ratelimit_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// A vector is a row of testdata/wire-vectors.json: a response, and the wait that
// it asks for.
type vector struct {
	Name    string              `json:"name"`
	Now     time.Time           `json:"now"`
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers"`
	WantMS  *int64              `json:"want_ms"` // nil if none
	Why     string              `json:"why"`
}

// header returns the fields as net/http would.
func (v vector) header() http.Header {
	h := http.Header{}
	for name, lines := range v.Headers {
		for _, line := range lines {
			h.Add(name, line)
		}
	}
	return h
}

var (
	explicitName = regexp.MustCompile(`(?i)^(x-ratelimit-|x-ms-|x-amz-|x-)?retry-(after(-ms)?|in)$`)
	quotaName    = regexp.MustCompile(`(?i)^(x-|anthropic-)?rate-?limit`)
)

// needsQuota reports whether only fields that tell the state of a quota can
// answer v: it has such fields, its status allows them to count, and none of the
// explicit delays, which would go before them, can be a number or a date.
func (v vector) needsQuota() bool {
	quota, explicit := false, false
	for name, lines := range v.Headers {
		if explicitName.MatchString(name) {
			explicit = explicit || slices.ContainsFunc(lines, func(s string) bool { return strings.ContainsAny(s, "0123456789") })
		} else {
			quota = quota || quotaName.MatchString(name)
		}
	}
	return quota && !explicit && v.Status >= 400
}

func TestVectorsThatNeedNoQuotaFields(t *testing.T) {
	data, err := os.ReadFile("testdata/wire-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, v := range vectors {
		if v.needsQuota() {
			continue
		}
		ran++
		want := none
		if v.WantMS != nil {
			want = (time.Duration(*v.WantMS) * time.Millisecond).String()
		}
		if got := answer(v.Status, v.header(), v.Now); got != want {
			t.Errorf("%s: got %s, want %s: %s", v.Name, got, want, v.Why)
		}
	}
	if ran != 109 || len(vectors) != 176 {
		t.Errorf("ran %d rows of %d, want 109 of 176", ran, len(vectors))
	}
}

// none is the answer when no wait is asked for.
const none = "none"

// answer is Wait's, in words.
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
