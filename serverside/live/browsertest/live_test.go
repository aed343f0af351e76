package browsertest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
)

// literal returns v as JavaScript.
func literal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// A site is a limited server, and its page under /admin/limits/.
type site struct {
	testing.TB
	url    string
	page   *live.Page
	audit  func(serverside.Event)
	server *httptest.Server
}

func serve(t testing.TB, rules ...serverside.Rule) *site {
	page := new(live.Page)
	cfg := page.Instrument(serverside.Config{Rules: rules, Audit: func(serverside.Event) {}})
	limiter, err := serverside.New(cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/admin/limits/", http.StripPrefix("/admin/limits", page))
	mux.Handle("/v1/", limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &site{t, server.URL, page, cfg.Audit, server}
}

// ask sends n requests.
func (s *site) ask(n int, path string) {
	for range n {
		resp, err := http.Get(s.url + path)
		require.NoError(s, err)
		resp.Body.Close()
	}
}

// clean asserts that the tab has sent requests only to s, without errors.
func (s *site) clean(b *tab) {
	b.Helper()
	requests, faults := b.seen()
	assert.Empty(b, faults)
	assert.NotEmpty(b, requests)
	for _, url := range requests {
		assert.True(b, strings.HasPrefix(url, s.url+"/admin/limits/"), url)
	}
}

const hostile = `<img src=x onerror="document.title='broken'">`

func TestPageShowsWhatHappens(t *testing.T) {
	s := serve(t,
		serverside.Rule{Name: "api", Pattern: "/v1/", Policies: []quota.Policy{quota.PerHour(3)}},
		serverside.Rule{Name: hostile, Pattern: "/v1/hostile", DryRun: true, Policies: []quota.Policy{quota.PerHour(1)}})
	b := open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/"))
	b.await(`document.getElementById("connection").textContent === "Live"`)
	b.await(`document.querySelectorAll("#rules tr").length === 2`)
	assert.Equal(t, "0 in 2 min", b.text("#all-sum"))
	assert.Contains(t, b.text("#rules"), "At most 3 in 1h of requests to /v1/")

	s.ask(5, "/v1/x")
	b.await(`document.getElementById("all-sum").textContent === "5 in 2 min"`)
	assert.Equal(t, "3 in 2 min", b.text("#admitted-sum"))
	assert.Equal(t, "2 in 2 min", b.text("#denied-sum"))
	b.await(`document.querySelectorAll("#denials tr th").length === 2`)
	assert.Contains(t, b.text("#denials tr"), "429")
	b.await(`document.querySelector("#keys meter")?.value === 0 && document.querySelector("#keys meter").max === 3`)
	assert.Contains(t, eval[string](b, `document.querySelector("#chart path.denied").getAttribute("d")`), "L")

	s.ask(2, "/v1/hostile")
	s.audit(serverside.Event{Kind: serverside.Denied, Rule: hostile, Pattern: hostile, Key: hostile,
		Policies: []string{hostile}, Status: 429})
	s.audit(serverside.Event{Kind: serverside.HotKey, Rule: hostile, Pattern: hostile, Key: hostile})
	b.await(`document.querySelector("#denials td .key")?.title.startsWith("<img")`)
	b.await(`document.getElementById("notices").textContent.includes("<img")`)
	b.await(`document.getElementById("keys").textContent.includes("<img")`)
	assert.Equal(t, "hot", b.text("#keys .tag"))
	for _, id := range []string{"rules", "denials", "notices"} {
		assert.Contains(t, b.text("#"+id), "<img", id)
	}
	assert.Zero(t, eval[int](b, `document.images.length`))
	assert.Equal(t, "Limits", eval[string](b, `document.title`))
	assert.Equal(t, s.url+"/admin/limits/explain", eval[string](b, `document.querySelector("a").href`))
	s.clean(b)
}

// A key has a bar for each policy, labelled with the policy's name.
func TestPageShowsEachPolicyOfAKey(t *testing.T) {
	s := serve(t, serverside.Rule{Name: "api", Pattern: "/v1/", Policies: []quota.Policy{
		{Name: "burst", Quota: 1e6, Window: time.Second, Burst: 2}, // full again at each request
		quota.PerDay(4)}})
	b := open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/"))
	const bars = `Array.from(document.querySelectorAll("#keys meter"), (m) => m.value + "/" + m.max).join()`
	s.ask(1, "/v1/x")
	b.await(bars + ` === "1/2"`)
	s.ask(4, "/v1/x")
	b.await(bars + ` === "1/2,0/4"`)
	lines := func(cell int) []string {
		const cells = `Array.from(document.querySelector("#keys tr").cells[%d].children, (line) => line.textContent)`
		return eval[[]string](b, fmt.Sprintf(cells, cell))
	}
	assert.Equal(t, []string{"burst", "4/1d"}, lines(2))
	assert.Equal(t, []string{"1 of 2", "0 of 4"}, lines(4))
	assert.Len(t, lines(5), 2)
	const label = `document.querySelectorAll("#keys meter")[1].getAttribute("aria-label")`
	assert.Equal(t, "0 of 4 left, 4/1d", eval[string](b, label))
	assert.Equal(t, "1", b.text("#keys tr td:last-child"))
	s.clean(b)
}

func TestPausedPageCatchesUp(t *testing.T) {
	s := serve(t, serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(3)}})
	b := open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/"))
	b.await(`document.getElementById("connection").textContent === "Live"`)
	b.do(chromedp.Click("#pause"))
	assert.Equal(t, "true", eval[string](b, `document.getElementById("pause").getAttribute("aria-pressed")`))
	s.ask(2, "/v1/x")
	s.audit(serverside.Event{Kind: serverside.StoreFailed})
	b.await(`document.getElementById("store").textContent.startsWith("The Store has failed since")`)
	assert.Equal(t, "0 in 2 min", b.text("#all-sum"))
	b.do(chromedp.Click("#pause"))
	b.await(`document.getElementById("all-sum").textContent === "2 in 2 min"`)
	s.clean(b)
}

// On narrow screens only tables scroll.
func TestPageFitsItsWindow(t *testing.T) {
	s := serve(t,
		serverside.Rule{Name: strings.Repeat("long", 25), Pattern: "/v1/", Policies: []quota.Policy{
			{Quota: 600, Window: time.Minute, Burst: 50}, quota.PerDay(20000)}},
		serverside.Rule{Name: "dry", Pattern: "/v1/reports", DryRun: true, Policies: []quota.Policy{quota.PerHour(1)}})
	b := open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/"))
	s.ask(60, "/v1/reports")
	b.await(`document.querySelectorAll("#denials td .key").length > 0`)
	const overflows = `Array.from(document.querySelectorAll(%q), (e) => e.scrollWidth - e.clientWidth).some((n) => n > 0)`
	for _, width := range []int64{360, 600, 950, 1600} {
		b.do(chromedp.EmulateViewport(width, 1000))
		b.await(fmt.Sprintf("innerWidth === %d", width))
		assert.False(t, eval[bool](b, fmt.Sprintf(overflows, "html")), width)
		assert.Equal(t, width < 900, eval[bool](b, fmt.Sprintf(overflows, ".wide")), width)
	}
	s.clean(b)
}

func TestDisconnectedOldestPageDoesNotReconnect(t *testing.T) {
	s := serve(t, serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(3)}})
	s.page.MaxViewers = 1
	first, second := open(t), open(t)
	_, err := chromedp.Call(first.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.streams = []; window.EventSource = class extends EventSource {
			constructor(url) { super(url); streams.push(this); }
		}`})
	require.NoError(t, err)
	for _, b := range []*tab{first, second} {
		b.do(chromedp.Navigate(s.url + "/admin/limits/"))
		b.await(`document.getElementById("connection").textContent === "Live"`)
	}
	first.await(`document.getElementById("connection").textContent.startsWith("Not connected: too many viewers")`)
	assert.Equal(t, []int{2}, eval[[]int](first, `streams.map((s) => s.readyState)`), "closed, and no other")
	s.ask(2, "/v1/x")
	second.await(`document.getElementById("all-sum").textContent === "2 in 2 min"`)
	assert.Equal(t, "0 in 2 min", first.text("#all-sum"))
	s.clean(first)
	s.clean(second)
}

// A page of another site cannot read events, ask questions or disconnect viewers.
func TestAnotherSiteReadsNothing(t *testing.T) {
	s := serve(t, serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(3)}})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>other</title>"))
	}))
	t.Cleanup(other.Close)
	s.page.MaxViewers = 1
	b, attacker := open(t), open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/"))
	b.await(`document.getElementById("connection").textContent === "Live"`)
	attacker.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	attacker.run(`window.limits = ` + literal(s.url+"/admin/limits/") + `, null`)
	for _, attempt := range []string{
		`fetch(limits + "events").then(() => "read", () => "blocked")`,
		`fetch(limits + "events", {mode: "no-cors"}).then((r) => r.type, () => "blocked")`,
		`fetch(limits + "explain", {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"}).
			then(() => "read", () => "blocked")`,
		`new Promise((done) => {
			const e = new EventSource(limits + "events");
			e.onopen = () => done("read");
			e.onerror = () => done("blocked");
		})`,
	} {
		got, err := chromedp.Run(attacker.ctx, chromedp.Evaluate[string](attempt, chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		assert.Contains(t, []string{"blocked", "opaque"}, got, attempt)
	}
	s.ask(1, "/v1/x")
	b.await(`document.getElementById("all-sum").textContent === "1 in 2 min"`)
	assert.Equal(t, "Live", b.text("#connection"), "its place was not taken")
	s.clean(b)
}

func TestPageReconnects(t *testing.T) {
	s := serve(t, serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(3)}})
	b := open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/"))
	b.await(`document.getElementById("connection").textContent === "Live"`)
	s.ask(2, "/v1/x")
	b.run(`window.said = [], new MutationObserver(() => said.push(document.getElementById("connection").textContent)).
		observe(document.getElementById("connection"), {childList: true, characterData: true, subtree: true}), null`)
	s.server.CloseClientConnections()
	b.await(`said.some((text) => text.startsWith("Not connected"))`) // it may be connected again by now
	s.ask(2, "/v1/x")
	b.await(`document.getElementById("connection").textContent === "Live"`)
	// The history is sent again, but counted once.
	b.await(`document.getElementById("all-sum").textContent === "4 in 2 min"`)
	assert.Equal(t, "1 in 2 min", b.text("#denied-sum"))
}

// The other tests would notice violations.
func TestPolicyViolationsAreNoticed(t *testing.T) {
	s := serve(t, serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(3)}})
	b := open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/"))
	_, faults := b.seen()
	require.Empty(t, faults)
	for _, breach := range []string{
		`document.body.insertAdjacentHTML("beforeend", "<img src=x onerror=1>")`,
		`document.body.append(Object.assign(document.createElement("script"), {textContent: "document.title = 'broken'"}))`,
		`document.body.append(Object.assign(document.createElement("img"), {src: "http://127.0.0.1:1/"}))`,
		`void fetch("http://127.0.0.1:1/").catch(() => {})`,
	} {
		_, before := b.seen()
		b.run(breach + ", null")
		require.Eventually(t, func() bool {
			_, after := b.seen()
			return len(after) > len(before)
		}, patience, 10*time.Millisecond, breach)
	}
	assert.Equal(t, "Limits", eval[string](b, `document.title`))
}
