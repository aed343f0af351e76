package live_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside/live"
)

// question and answer are the JSON that the page sends and gets.
type (
	question struct {
		Text     string `json:"text"`
		Status   string `json:"status"`
		Received string `json:"received"`
		Vendor   string `json:"vendor"`
	}
	answer struct {
		Known           bool
		Wait, Meaning   string
		Until           int64
		Assumed, Fields []string
		Client, Call    string
		Quotas          []quotaShown
	}
	quotaShown struct {
		Name, Left, Of, Unit, Per, Next, Reset string
		Whole                                  int64
	}
)

// post sends body to the endpoint.
func post(body, kind string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://localhost/limits/explain", strings.NewReader(body))
	w := httptest.NewRecorder()
	r.Header.Set("Content-Type", kind)
	new(live.Page).ServeHTTP(w, r)
	return w
}

func explain(t testing.TB, q question) (a answer) {
	t.Helper()
	body, err := json.Marshal(q)
	require.NoError(t, err)
	w := post(string(body), "application/json")
	require.Equal(t, 200, w.Code, w.Body.String())
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	return a
}

// A vector is a row of ratelimit's tables.
type vector struct {
	Name    string
	Now     time.Time
	Status  int
	Headers map[string][]string
	Profile string // "" is any server's
	Body    string
	WantMS  *int64 `json:"want_ms"` // nil if none
}

func vectors(t testing.TB, file string) (all []vector) {
	data, err := os.ReadFile("../../ratelimit/testdata/" + file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &all))
	return all
}

// pasted returns v as an operator would paste it.
func (v vector) pasted() question {
	text := fmt.Sprintf("HTTP/1.1 %d Whatever\r\n", v.Status)
	for name, lines := range v.Headers {
		for _, line := range lines {
			text += name + ": " + line + "\r\n"
		}
	}
	return question{Text: text + "\r\n" + v.Body, Received: v.Now.Format(time.RFC3339Nano), Vendor: v.Profile}
}

// want returns the end of the code in the answer.
func (v vector) want() string {
	if v.WantMS == nil {
		return "0s, false"
	}
	return fmt.Sprint(time.Duration(*v.WantMS)*time.Millisecond, ", true")
}

func TestExplainAnswersEveryVector(t *testing.T) {
	all := vectors(t, "wire-vectors.json")
	require.Len(t, all, 207)
	for _, v := range append(all, vectors(t, "wire-vectors-profiles.json")...) {
		if v.Profile == "pace" { // a success asks for no wait
			v.Profile, v.WantMS = "", nil
		}
		a := explain(t, v.pasted())
		assert.Equal(t, v.WantMS != nil, a.Known, v.Name)
		assert.True(t, strings.HasSuffix(a.Call, v.want()), "%s: %s, want %s", v.Name, a.Call, v.want())
		assert.Equal(t, v.Profile != "", a.Meaning != "", v.Name)
	}
}

func TestPastedTextIsExplained(t *testing.T) {
	const received = "2026-11-20T19:30:00Z"
	now := time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)
	const client = "client := &http.Client{Transport: &heed.Transport{}}"
	wait := func(d time.Duration, text, assumed, field string, quotas ...quotaShown) answer {
		call := fmt.Sprintf("wait, ok := ratelimit.Wait(resp.StatusCode, resp.Header, time.Now()) // %v, true", d)
		return answer{Known: true, Wait: text, Until: now.Add(d).UnixMilli(), Assumed: []string{assumed},
			Fields: []string{field}, Quotas: quotas, Client: client, Call: call}
	}
	const noStatus = "The status is missing: 429 is assumed."
	for text, want := range map[string]answer{
		"120":                  wait(2*time.Minute, "2m", "It is read as the Retry-After of a 429.", "Retry-After"),
		"2026-11-20T19:32:00Z": wait(2*time.Minute, "2m", "It is read as the Retry-After of a 429.", "Retry-After"),
		"Retry-After: 7":       wait(7*time.Second, "7s", noStatus, "Retry-After"),
		"retry-after-ms: 1500": wait(1500*time.Millisecond, "1.5s", noStatus, "Retry-After-ms"),
		`"a";r=0;t=17`: wait(17*time.Second, "17s", "It is read as the RateLimit of a 429.", "RateLimit",
			quotaShown{Name: "a", Left: "0", Unit: "requests", Next: "17s"}),
	} {
		if want.Wait == "2m" { // longer than the default MaxWait
			want.Client = "client := &http.Client{Transport: &heed.Transport{\n" +
				"\tRetry: heed.RetryPolicy{MaxWait: 2 * time.Minute},\n}}"
		}
		if text == "retry-after-ms: 1500" {
			want.Until = now.Add(2 * time.Second).UnixMilli() // rounded up to a second
		}
		assert.Equal(t, want, explain(t, question{Text: text, Received: received}), text)
	}

	const success = "HTTP/1.1 200 OK\nRateLimit-Limit: 100\nRateLimit-Remaining: 99\nRateLimit-Reset: 30\n"
	a := explain(t, question{Text: success, Received: received})
	assert.False(t, a.Known)
	assert.Zero(t, a.Until)
	assert.Equal(t, []quotaShown{{Name: "default", Left: "99", Of: "100", Unit: "requests",
		Reset: "30s", Whole: now.Add(30 * time.Second).UnixMilli()}}, a.Quotas)

	a = explain(t, question{Text: "Retry-After: 90", Status: "503", Received: "Fri, 20 Nov 2026 19:30:00 GMT"})
	assert.Equal(t, "1m30s", a.Wait)
	assert.Equal(t, now.Add(90*time.Second).UnixMilli(), a.Until)
	assert.Empty(t, a.Assumed)

	const telegram = "HTTP/1.1 429 x\nContent-Type: application/json\n\n" + `{"parameters":{"retry_after":35}}`
	a = explain(t, question{Text: telegram, Vendor: "telegram", Received: received})
	assert.Equal(t, "A limit refused the request, and nothing was done.", a.Meaning)
	assert.Equal(t, `answer := ratelimit.Vendor("telegram").Read(resp, time.Now()) // limited, 35s, true`, a.Call)
	assert.Contains(t, a.Client, "it knows the host")

	for _, name := range ratelimit.VendorNames() {
		assert.NotEmpty(t, explain(t, question{Text: "HTTP/1.1 429 x", Vendor: name}).Meaning, name)
	}
}

func TestPastedResponseIsReceivedNow(t *testing.T) {
	before := time.Now()
	a := explain(t, question{Text: "120"})
	assert.GreaterOrEqual(t, a.Until, before.Add(2*time.Minute).Truncate(time.Second).UnixMilli())
	assert.LessOrEqual(t, a.Until, time.Now().Add(2*time.Minute+time.Second).UnixMilli())
}

func TestInvalidQuestionIsRefused(t *testing.T) {
	const kind = "application/json"
	padding := strings.Repeat("x", 64<<10-len(`{"text":""}`))
	for _, c := range []struct {
		body, kind string
		status     int
		reason     string
	}{
		{`{"text": "soon"}`, kind, 400, "neither a response header nor a value"},
		{`{}`, kind, 400, "neither a response header nor a value"},
		{`{"text": "120", "status": "4"}`, kind, 400, "number of three digits"},
		{`{"text": "120", "status": "-429"}`, kind, 400, "number of three digits"},
		{`{"text": "120", "status": "4291"}`, kind, 400, "number of three digits"},
		{`{"text": "120", "received": "today"}`, kind, 400, "must be a date"},
		{`{"text": "120", "vendor": "nobody"}`, kind, 400, "vendor is unknown"},
		{`{"text": 120}`, kind, 400, "JSON object"},
		{`{"text": "120"} {}`, kind, 400, "JSON object"},
		{`120`, kind, 400, "JSON object"},
		{``, kind, 400, "JSON object"},
		{`{"text":"` + padding + `"}`, kind, 400, "neither a response header nor a value"},
		{`{"text":"` + padding + `x"}`, kind, 413, "64 KiB"},
		{`{"text": "120"}`, "text/plain", 415, "application/json"}, // forms can send this type
		{`{"text": "120"}`, "application/x-www-form-urlencoded", 415, "application/json"},
		{`{"text": "120"}`, "multipart/form-data; boundary=x", 415, "application/json"},
		{`{"text": "120"}`, "", 415, "application/json"},
		{`{"text": "120"}`, "application/json; charset=utf-8", 200, ""},
	} {
		w := post(c.body, c.kind)
		assert.Equal(t, c.status, w.Code, "%.80s", c.body)
		assert.Contains(t, w.Body.String(), c.reason)
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.NotContains(t, w.Body.String(), "xxx", "what was sent is not repeated")
	}
}

// Times at the ends of the calendar, and the longest wait.
func TestTimesBeyondTheCalendar(t *testing.T) {
	for _, received := range []string{"0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} {
		a := explain(t, question{Text: "Retry-After: 99999999999", Received: received, Status: "429"})
		at, err := time.Parse(time.RFC3339, received)
		require.NoError(t, err)
		assert.Equal(t, time.Duration(1<<31)*time.Second, time.UnixMilli(a.Until).Sub(at))
	}
}

// Whatever is pasted, the endpoint answers 200 or 400.
func FuzzExplain(f *testing.F) {
	for _, v := range append(vectors(f, "wire-vectors.json"), vectors(f, "wire-vectors-profiles.json")...) {
		q := v.pasted()
		f.Add(q.Text, q.Received, q.Vendor)
	}
	f.Fuzz(func(t *testing.T, text, received, vendor string) {
		body, err := json.Marshal(question{Text: text, Received: received, Vendor: vendor})
		require.NoError(t, err)
		w := post(string(body), "application/json")
		switch w.Code {
		case http.StatusOK:
			assert.True(t, json.Valid(w.Body.Bytes()))
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			assert.NotEmpty(t, w.Body.String())
		default:
			t.Errorf("%d", w.Code)
		}
	})
}
