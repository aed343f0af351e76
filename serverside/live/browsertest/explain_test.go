package browsertest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

func explaining(t testing.TB) (*site, *tab) {
	s, b := serve(t, serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(1)}}), open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/explain"))
	return s, b
}

// fillIn fills in the form, by names of fields.
func (b *tab) fillIn(fields map[string]string) {
	b.Helper()
	for _, id := range []string{"text", "status", "received", "vendor"} {
		b.run(`document.getElementById("` + id + `").value = ` + literal(fields[id]) + `, null`)
	}
	b.run(`document.getElementById("form").dispatchEvent(new Event("input")), null`)
}

func TestPastedTextIsExplained(t *testing.T) {
	s, b := explaining(t)
	const telegram = "HTTP/1.1 429 Too Many Requests\n\n" + `{"parameters":{"retry_after":35}}`
	const spent = "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30"
	const received = "2026-11-20T19:30:00Z"
	type fields = map[string]string
	for _, c := range []struct {
		fields         fields
		heading, shows string
	}{
		{fields{"text": "120", "received": received}, "Wait 2m: until ", "It is read as the Retry-After of a 429."},
		{fields{"text": "< HTTP/2 503\n< retry-after: 90\n"}, "Wait 1m30s: until ", "This is in Retry-After."},
		{fields{"text": "X-RateLimit-Limit: 9\n" + spent}, "Wait 30s: until ", "09 requests30s: "},
		{fields{"text": spent, "status": "200"}, "It does not ask to wait.", "default"},
		{fields{"text": telegram, "vendor": "telegram"}, "Wait 35s: until ", "A limit refused the request"},
		{fields{"text": telegram, "status": "503"}, "It does not ask to wait.", "ratelimit.Wait(resp.StatusCode"},
		{fields{"text": "soon"}, "Not understood: this is neither a response header", ""},
		{fields{"text": hostile}, "Not understood: ", ""},
		{fields{"text": `RateLimit: "<img src=x onerror=alert(1)>";r=0;t=3`}, "Wait 3s: until ", "<img"},
		{fields{"text": "120", "status": "4"}, "Not understood: the status must be a number", ""},
		{fields{"text": strings.Repeat("x", 64<<10)}, "Not understood: this is longer than 64 KiB", ""},
		{fields{}, "", ""},
	} {
		b.fillIn(c.fields)
		if c.heading == "" {
			b.await(`document.getElementById("wait").textContent === ""`)
		} else {
			b.await(`document.getElementById("wait").textContent.startsWith(` + literal(c.heading) + `)`)
		}
		b.await(`document.getElementById("answer").textContent.includes(` + literal(c.shows) + `)`)
	}
	assert.Zero(t, eval[int](b, `document.images.length`))
	assert.True(t, eval[bool](b, `document.getElementById("code").hidden`))
	requests, faults := b.seen()
	for _, url := range requests {
		assert.True(t, strings.HasPrefix(url, s.url+"/admin/limits/"), url)
	}
	for _, fault := range faults { // the browser reports each refusal
		assert.Regexp(t, `status of 4(00|13) .*/explain$`, fault)
	}
}

// A late answer does not replace a newer one.
func TestLatestQuestionIsAnswered(t *testing.T) {
	s, b := explaining(t)
	b.run(`window.real = window.fetch, window.waiting = [], null`)
	b.run(`window.fetch = (...question) => new Promise((done) => waiting.push(() => done(real(...question)))), null`)
	for i, text := range []string{"120", "60"} {
		b.fillIn(map[string]string{"text": text})
		b.await(`waiting.length === ` + literal(i+1))
	}
	b.run(`waiting[1](), null`)
	b.await(`document.getElementById("wait").textContent.startsWith("Wait 1m:")`)
	b.run(`new MutationObserver(() => document.title = "changed").
		observe(document.getElementById("wait"), {childList: true}), null`)
	b.run(`waiting[0](), null`)
	time.Sleep(200 * time.Millisecond) // time for the late answer
	assert.NotEqual(t, "changed", eval[string](b, `document.title`))
	s.clean(b)
}

func TestUnreachableServerIsShown(t *testing.T) {
	s, b := explaining(t)
	s.server.CloseClientConnections()
	s.server.Close()
	b.fillIn(map[string]string{"text": "120"})
	b.await(`document.getElementById("wait").textContent === "The server does not answer."`)
}

// Even an injected script could send nothing to another origin.
func TestPastedTextIsSentOnlyToTheServer(t *testing.T) {
	_, b := explaining(t)
	for _, attempt := range []string{
		`fetch("http://127.0.0.1:1/").then(() => "sent", () => "blocked")`,
		`new Promise((done) => {
			const e = new EventSource("http://127.0.0.1:1/");
			e.onopen = () => done("sent");
			e.onerror = () => done("blocked");
		})`,
		`new Promise((done) => {
			const i = new Image();
			i.src = "http://127.0.0.1:1/?text";
			i.onload = () => done("sent");
			i.onerror = () => done("blocked");
		})`,
	} {
		_, before := b.seen()
		got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](attempt, chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		assert.Equal(t, "blocked", got, attempt)
		require.Eventually(t, func() bool {
			_, after := b.seen()
			return len(after) > len(before) && strings.Contains(after[len(after)-1], "Content Security Policy")
		}, patience, 10*time.Millisecond, "by the policy: %s", attempt)
	}
}
