package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/explain"
	"github.com/heedhttp/heed/ratelimit"
)

var now = time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)

func TestTextIsAResponseOrAValue(t *testing.T) {
	const noStatus = "The status is missing: 429 is assumed."
	for _, c := range []struct {
		text    string
		status  int
		wait    string
		assumed string
	}{
		{"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\r\n", 0, "7s", ""},
		{"< HTTP/2 503 \n< retry-after: 90\n< \n", 0, "1m30s", ""},
		{"* Connected\n> GET / HTTP/1.1\n> Accept: */*\n>\n< HTTP/1.1 429\n< Retry-After: 7\n", 0, "7s", ""},
		{"Retry-After: 7", 0, "7s", noStatus},
		{"Retry-After: 7", 503, "7s", ""},
		{"HTTP/1.1 429\nRetry-After: 7", 200, "", ""},
		{"HTTP/1.1 429\n\nRetry-After: 7", 0, "", ""}, // a body
		{"HTTP/1.1 99999999999999999999\nRetry-After: 7", 0, "7s", noStatus},
		{"HTTP/1.1 -1\nRetry-After: 7", 0, "7s", noStatus},
		{"HTTP/1.1 100 Continue\n\nHTTP/1.1 429 x\nRetry-After: 7\n", 0, "7s", ""},
		{"< HTTP/1.1 429\n< Retry-After: 5\n< \n< HTTP/1.1 503 x\n< Retry-After: 9\n", 0, "9s", ""},
		{"HTTP/1.1 302\nRetry-After: 5\n\nHTTP/1.1 429 x\n\nRetry-After: 9", 0, "", ""},
		{"Retry-After: 5\nRETRY-AFTER: 8", 0, "8s", noStatus},
		{"120", 0, "2m", "It is read as the Retry-After of a 429."},
		{" 2026-11-20T19:32:00Z\n", 0, "2m", "It is read as the Retry-After of a 429."},
		{"1795203012", 0, "12s", "It is read as the X-RateLimit-Reset of a 429."},
		{`"a";r=0;t=17`, 0, "17s", "It is read as the RateLimit of a 429."},
		{`"a";q=9;w=60`, 0, "", "It is read as the RateLimit-Policy of a 429."},
	} {
		a, err := explain.Text(c.text, c.status, nil, now)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.wait, a.Wait, c.text)
		assert.Equal(t, c.wait != "", a.Known, c.text)
		assert.Equal(t, c.assumed, strings.Join(a.Assumed, " "), c.text)
	}
	for _, text := range []string{"", "\n", "soon", "HTTP/1.1 x", ": 7", "-1", "Späť: 7"} {
		_, err := explain.Text(text, 429, nil, now)
		assert.ErrorContains(t, err, "neither a response header nor a value", text)
	}
}

func TestBodyIsReadForAVendor(t *testing.T) {
	text := "HTTP/1.1 429 x\n\n" + `{"parameters":{"retry_after":35}}` + "\n"
	a, err := explain.Text(text, 0, ratelimit.Vendor("telegram"), now)
	require.NoError(t, err)
	assert.Equal(t, "35s", a.Wait)
	assert.Equal(t, "A limit refused the request, and nothing was done.", a.Meaning)
	assert.Empty(t, a.Fields)
}

// Waits are rounded up to a millisecond, but a wait until a date ends at that date.
func TestWaitEndsWithItsSecond(t *testing.T) {
	for _, c := range []struct {
		now  string
		want string
	}{
		{"2026-11-20T19:30:00.1234567Z", "2026-11-20T19:32:00Z"},
		{"2026-11-20T19:30:00Z", "2026-11-20T19:32:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.now)
		require.NoError(t, err)
		a, err := explain.Text("Retry-After: Fri, 20 Nov 2026 19:32:00 GMT", 429, nil, at)
		require.NoError(t, err)
		assert.Equal(t, c.want, time.UnixMilli(a.Until).UTC().Format(time.RFC3339))
	}
	for wait, want := range map[string]time.Time{"1": now, "2": now.Add(time.Second)} {
		a, err := explain.Text("Retry-After-Ms: "+wait, 429, nil, now)
		require.NoError(t, err)
		assert.Equal(t, want.UnixMilli(), a.Until)
	}
}

func TestBriefOmitsZeroUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 400 * time.Microsecond: "0s", time.Millisecond: "1ms", 1500 * time.Millisecond: "1.5s", time.Minute: "1m",
		90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s",
		48 * time.Hour: "2d", 49 * time.Hour: "2d1h", 24*time.Hour + time.Second: "1d1s",
	} {
		assert.Equal(t, want, explain.Brief(d))
	}
}

func TestWaitsOfYearsAreRounded(t *testing.T) {
	for value, want := range map[string]string{
		"31557599": "365d5h59m59s", "31557600": "1 year", "63115200": "2 years", "99999999999": "68 years",
	} {
		a, err := explain.Text("Retry-After: "+value, 429, nil, now)
		require.NoError(t, err)
		assert.Equal(t, want, a.Wait)
	}
}

func TestA429WithoutAHintIsExplained(t *testing.T) {
	for text, want := range map[string]bool{
		"HTTP/1.1 429 x":                           true,
		"HTTP/1.1 429 x\nServer: x":                true,
		"HTTP/1.1 429 x\nRetry-After: 7":           false,
		"HTTP/1.1 429 x\nRateLimit-Policy: 9;w=60": false,
		"HTTP/1.1 503 x":                           false,
		"HTTP/1.1 200 OK":                          false,
	} {
		a, err := explain.Text(text, 0, nil, now)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Contains(strings.Join(a.Notes, " "), "Pacer: pace.PerHost(10, 1)"), text)
	}
}
