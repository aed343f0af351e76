package browsertest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/ratelimit"
	"github.com/heedhttp/heed/serverside"
)

// A vector is a row of ratelimit's tables.
type vector struct {
	Name    string              `json:"name"`
	Now     time.Time           `json:"now"`
	Status  int                 `json:"status"`
	Headers map[string][]string `json:"headers"`
	Profile string              `json:"profile"` // "" is any server's
	Body    string              `json:"body"`
	WantMS  *int64              `json:"want_ms"` // nil if none
}

// vectors are those of a table.
func vectors(t testing.TB, file string) (all []vector) {
	data, err := os.ReadFile("../../../ratelimit/testdata/" + file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &all))
	return all
}

// canonical is v with its fields as net/http has them.
func (v vector) canonical() vector {
	h := make(http.Header)
	for name, lines := range v.Headers {
		for _, line := range lines {
			h.Add(name, line)
		}
	}
	v.Headers = h
	return v
}

// An answer is what a response was found to mean, in milliseconds and words.
type answer struct {
	Wait    string   // as the package prints it
	Sources []string `json:",omitempty"`
	Meaning string   `json:",omitempty"`
	Limits  []string `json:",omitempty"`
}

// want is what Go makes of v.
func (v vector) want() answer {
	h := http.Header(v.Headers)
	if v.Profile != "" {
		p := ratelimit.Vendor(v.Profile)
		a := p.Judge(v.Status, h, []byte(v.Body), v.Now)
		return answer{Wait: fmt.Sprint(a.Wait, ", ", a.Known), Meaning: a.Meaning.String(), Limits: texts(p.Parse(h, v.Now))}
	}
	wait, ok := ratelimit.Wait(v.Status, h, v.Now)
	return answer{Wait: fmt.Sprint(wait, ", ", ok), Sources: ratelimit.Sources(v.Status, h, v.Now), Limits: texts(ratelimit.Parse(h, v.Now))}
}

func texts(limits []ratelimit.Limit) (all []string) {
	for _, l := range limits {
		all = append(all, fmt.Sprintf("%s|%s|%x|%d|%d|%d|%d|%d|%d", l.Name, l.Unit, l.Partition, l.Quota, l.Window, l.Remaining, l.Next, l.Reset, l.Cost))
	}
	return all
}

// answers has the page's modules answer, for vectors that are canonical.
func answers(b *tab, all []vector) []answer {
	b.Helper()
	type question struct {
		vector
		Nanos string
	}
	var questions []question
	for _, v := range all {
		questions = append(questions, question{v, strconv.FormatInt(v.Now.UnixNano(), 10)})
	}
	data, err := json.Marshal(questions)
	require.NoError(b, err)
	script := `Promise.all(["ratelimit.js", "vendors.js", "explain.js"].map((name) => import(location.href.replace(/explain$/, name)))).then(([r, {vendors}, e]) => {
		const hex = (s) => Array.from(s, (c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join("");
		const text = (l) => [l.name, l.unit, hex(l.partition), l.quota, l.window, l.remaining, l.next, l.reset, l.cost].join("|");
		return ` + string(data) + `.map((q) => {
			const [header, now] = [new Map(Object.entries(q.headers ?? {})), BigInt(q.Nanos)];
			if (!q.profile) {
				const [wait, ok] = r.wait(q.status, header, now);
				return {Wait: e.duration(wait) + ", " + ok, Sources: r.sources(q.status, header, now), Limits: r.parse(header, now).map(text)};
			}
			const p = vendors.find((v) => v.Name === q.profile);
			const a = r.judge(p, q.status, header, q.body, now);
			return {Wait: e.duration(a.wait) + ", " + a.known, Meaning: r.meanings[a.meaning], Limits: r.parseFor(p, header, now).map(text)};
		});
	})`
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]answer](script, chromedp.EvalAwaitPromise))
	require.NoError(b, err)
	require.Len(b, got, len(all))
	return got
}

// agree asserts that the page and Go make the same of all.
func agree(b *tab, all []vector) {
	b.Helper()
	for i, got := range answers(b, all) {
		v := all[i]
		want := v.want()
		got.Sources, got.Limits = nilIfEmpty(got.Sources), nilIfEmpty(got.Limits)
		if !assert.Equal(b, want, got, "%s: %d %q %s %q", v.Name, v.Status, v.Headers, v.Profile, v.Body) {
			return
		}
	}
}

func nilIfEmpty(s []string) []string {
	if len(s) == 0 {
		return nil
	}
	return s
}

func explaining(t testing.TB) (*site, *tab) {
	s, b := serve(t, serverside.Rule{Name: "api", Policies: []quota.Policy{quota.PerHour(1)}}), open(t)
	b.do(chromedp.Navigate(s.url + "/admin/limits/explain"))
	b.await(`document.querySelectorAll("#vendor option").length > 30`)
	return s, b
}

// Every vector, and what is told beside the wait.
func TestThePageMeansWhatThePackageMeans(t *testing.T) {
	s, b := explaining(t)
	all := vectors(t, "wire-vectors.json")
	require.Len(t, all, 207)
	for _, v := range vectors(t, "wire-vectors-profiles.json") {
		if v.Profile == "pace" { // no vendor's
			v.Profile = ""
		}
		all = append(all, v)
	}
	all = append(all, edges()...)
	for i := range all {
		all[i] = all[i].canonical()
	}
	for i, got := range answers(b, all) {
		if v := all[i]; v.WantMS != nil && v.Status >= 300 {
			assert.Equal(t, fmt.Sprint(time.Duration(*v.WantMS)*time.Millisecond, ", true"), got.Wait, v.Name)
		}
	}
	agree(b, all)
	s.clean(b)
}

// edges are responses at the edge of a rule of which no vector is.
func edges() (all []vector) {
	now := time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)
	for _, c := range []struct{ profile, header string }{
		{"", `RateLimit: "a";r=0;t=5;pk=:abcde:`},
		{"", `RateLimit: "a";r=0;t=5;pk=:abcd=:`},
		{"", `RateLimit: "a";r=0;t=5;x=1.2345`},
		{"", `RateLimit: "a";r=0;t=5;x=1.234`},
		{"", `RateLimit: "a";r=0;t=5;x=%"%ff"`},
		{"", "RateLimit-Limit: 10|RateLimit-Remaining: 5|RateLimit-Reset: 30|X-RateLimit-Limit: 10|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 31"},
		{"", "RateLimit-Limit: 10|RateLimit-Remaining: 5|RateLimit-Reset: 30|X-RateLimit-Limit: 10|X-RateLimit-Remaining: 5|X-RateLimit-Reset: 32"},
		{"", "Date: Fri, 20 Nov 2026 16:30:00 GMT|Retry-After: Fri, 20 Nov 2026 20:30:00 GMT"},
		{"", "Date: Sat, 01 Jan 2000 00:00:00 GMT|Retry-After: Fri, 20 Nov 2026 20:30:00 GMT"},
		{"", "Retry-After: 3|Retry-After-Ms: 2000"},
		{"", "Retry-After: 3|Retry-After-Ms: 2001"},
		{"", "X-Retry-In: 2500\u03bcs"},
		{"", "Retry-After: 0.0000000000000000001"},
		{"", "Retry-After: 1.0010000000"},
		{"", "X-RateLimit-Remaining-Concurrent-Requests: 0|X-RateLimit-Reset-Concurrent-Requests: 5|X-RateLimit-Limit-Concurrent-Requests: 9"},
		{"", "X-RateLimit-Endpoint-Requests-Remaining: 0|X-RateLimit-Endpoint-Requests-Reset: 5"},
		{"npm", "Retry-After: 0"},
		{"npm", "Retry-After: 5"},
		{"dockerhub", "RateLimit-Limit: 100;w=21600|RateLimit-Remaining: 0;w=21600"},
		{"lemlist", "X-RateLimit-Remaining: 0|X-RateLimit-Reset: Fri Nov 20 2026 20:30:30 GMT+0100 (Central European Standard Time)"},
		{"zendesk", "Zendesk-RateLimit-Search: total=100; remaining=0; resets=41"},
		{"shopify", "X-Shopify-Shop-Api-Call-Limit: 40/40"},
		{"basecamp", `X-RateLimit: {"name":"API","period":10,"limit":50,"remaining":0,"until":"2026-11-20T19:30:03Z"}`},
		{"aws", "X-Amzn-ErrorType: a#ThrottlingException:http://b/"},
	} {
		v := vector{Name: c.header, Now: now, Status: 429, Headers: map[string][]string{}, Profile: c.profile}
		for line := range strings.SplitSeq(c.header, "|") {
			name, value, _ := strings.Cut(line, ": ")
			v.Headers[name] = []string{value}
		}
		all = append(all, v)
	}
	return all
}

// What nobody wrote a vector for: the lines of all vectors, mixed, cut and changed, at
// other moments and for all vendors.
func TestThePageMeansWhatThePackageMeansOfWhatIsMadeUp(t *testing.T) {
	s, b := explaining(t)
	random := rand.New(rand.NewPCG(7, 11))
	seeds := append(vectors(t, "wire-vectors.json"), vectors(t, "wire-vectors-profiles.json")...)
	rounds := 2
	if testenv.Long() {
		rounds = 60
	}
	for range rounds {
		var all []vector
		for range 1000 {
			all = append(all, madeUp(random, seeds))
		}
		agree(b, all)
	}
	s.clean(b)
}

func pick[T any](random *rand.Rand, all []T) T { return all[random.IntN(len(all))] }

var (
	statuses = []int{0, 200, 302, 400, 403, 420, 429, 429, 429, 430, 500, 503, 529}
	names    = []string{"Retry-After", "Retry-After-Ms", "X-Retry-In", "X-Retry-After", "Ratelimit", "Ratelimit-Policy", "Ratelimit-Limit", "Ratelimit-Remaining",
		"Ratelimit-Reset", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After", "X-Rate-Limit-Reset",
		"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens", "X-Ratelimit-Limit-Minute", "Anthropic-Ratelimit-Requests-Reset", "Date", "Age", "Backoff"}
	values = []string{"0", "1", "59.5", "1795203012", "1795203012000.5", "00120", "99999999999999999999999", "-1", "1m30.5s", "17ms", "6\u00b5s", "2d",
		"Fri, 20 Nov 2026 19:32:00 GMT", "Friday, 20-Nov-26 19:32:00 GMT", "Sunday, 06-Nov-94 08:49:37 +0130", "Fri Nov 20 19:32:00 2026",
		"2026-11-20T19:32:00.123456789Z", "2026-11-20 19:32 +01:00", "Thu, 29 Feb 2024 23:59:60 GMT", "Fri Nov 20 2026 20:32:30 GMT+0100 (CET)",
		`"default";r=0;t=17`, `"a";r=5;t=60, "b";r=0;t=9;pk=:cHJvag==:`, `limit=10, remaining=0, reset=7`, `"default";q=100;w=60`, `"a";q=5;qu="tokens";w=1, 100;w=60`,
		`10, 10;w=1, 1000;w=3600`, `0;w=21600`, `"x";r=1;n=%"f%c3%bc";b=?1;d=@17;f=1.5;t=(1 2)`, `("a" "b");r=1`, `"a\"b";r=0;t=3`, `"default";a=0;w=45;c=5`, `"a";r=5;t=60;a=0;w=90, "b";a=9;c=-1`, "4", "6"}
)

// madeUp is a response like some of seeds.
func madeUp(random *rand.Rand, seeds []vector) vector {
	seed := pick(random, seeds)
	v := vector{Name: "made up of " + seed.Name, Now: seed.Now, Status: seed.Status, Headers: seed.canonical().Headers, Body: seed.Body}
	v.Headers = maps.Clone(v.Headers)
	if v.Headers == nil {
		v.Headers = map[string][]string{}
	}
	if random.IntN(2) == 0 {
		v.Status = pick(random, statuses)
	}
	for range random.IntN(4) {
		v.Headers[pick(random, names)] = []string{changed(random, pick(random, values))}
	}
	for range random.IntN(3) {
		other := pick(random, seeds).canonical()
		if keys := slices.Sorted(maps.Keys(other.Headers)); len(keys) > 0 {
			name := pick(random, keys)
			v.Headers[name] = append(slices.Clone(v.Headers[name]), changed(random, pick(random, other.Headers[name])))
		}
	}
	if random.IntN(2) == 0 {
		v.Profile = pick(random, ratelimit.VendorNames())
	}
	v.Now = v.Now.Add(time.Duration(random.Int64N(int64(1000*time.Hour))) - 500*time.Hour)
	return v
}

// changed is a line with a slip or two, most often none.
func changed(random *rand.Rand, line string) string {
	const letters = `0123456789.,;:"=- ()?@%abcrtqwzGMTZ`
	for range max(0, random.IntN(5)-2) {
		at := random.IntN(len(line) + 1)
		switch random.IntN(3) {
		case 0:
			line = line[:at] + string(letters[random.IntN(len(letters))]) + line[at:]
		case 1:
			line = line[:at]
		case 2:
			line = line[at:] + line[:at]
		}
	}
	return strings.ToValidUTF8(line, "?") // as JSON has it
}

// A paste is what somebody fills in, and what he sees then.
type paste struct {
	Text, Status, Vendor string
	Received             time.Time

	Wait, Shows, Snippet string // what is seen
}

// fillIn fills in the form, and returns what is seen.
func (b *tab) fillIn(all []paste) (seen []paste) {
	b.Helper()
	data, err := json.Marshal(all)
	require.NoError(b, err)
	seen = eval[[]paste](b, string(data)+`.map((p) => {
		const byId = (id) => document.getElementById(id);
		for (const id of ["text", "status", "vendor", "received"]) byId(id).value = p[id[0].toUpperCase() + id.slice(1)];
		byId("form").dispatchEvent(new Event("input"));
		return {...p, Wait: byId("wait").textContent, Shows: byId("answer").textContent, Snippet: byId("snippet").textContent};
	})`)
	require.Len(b, seen, len(all))
	return seen
}

// The way people use it: what is pasted and chosen, and what they see.
func TestWhatIsPastedIsExplained(t *testing.T) { // F204
	s, b := explaining(t)
	now := time.Date(2026, 11, 20, 19, 30, 0, 0, time.UTC)
	wants := []paste{
		{Text: "120", Wait: "Wait 2m:", Shows: "It is taken for a Retry-After of a 429."},
		{Text: "2026-11-20T19:32:00Z", Wait: "Wait 2m:", Shows: "It says so in Retry-After."},
		{Text: "1795203012", Wait: "Wait 12s:", Shows: "It is taken for a X-RateLimit-Reset of a 429."},
		{Text: `"default";r=0;t=17`, Wait: "Wait 17s:", Shows: "It is taken for a RateLimit of a 429."},
		{Text: "< HTTP/2 503\n< retry-after: 90\n", Wait: "Wait 1m30s:", Shows: "until"},
		{Text: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", Status: "200", Wait: "It asks for no wait", Shows: "default"},
		{Text: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", Wait: "Wait 30s:", Shows: "No status is told"},
		{Text: "HTTP/1.1 429 x\nContent-Type: application/json\n\n" + `{"parameters":{"retry_after":35}}`, Vendor: "telegram", Wait: "Wait 35s:", Shows: "A limit refused the request"},
		{Text: "HTTP/1.1 429 x\nContent-Type: application/json\n\n" + `{"error":{"code":"insufficient_quota"}}`, Vendor: "openai", Wait: "It asks for no wait", Shows: "No wait helps"},
		{Text: "soon", Wait: "This is neither"},
		{Text: hostile, Wait: "This is neither"},
		{Text: "RateLimit: " + strconv.Quote(hostile) + ";r=0;t=3", Wait: "Wait 3s:", Shows: "<img"},
		{Text: "120", Status: "4", Wait: "The status is no code"},
	}
	for i := range wants {
		wants[i].Received = now
	}
	for _, v := range vectors(t, "wire-vectors.json") {
		v = v.canonical()
		if len(v.Headers) == 0 || slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(v.Headers))...), isOdd) {
			continue
		}
		var text strings.Builder
		fmt.Fprintf(&text, "HTTP/1.1 %d Whatever\r\n", v.Status)
		require.NoError(t, http.Header(v.Headers).Write(&text))
		wait, ok := ratelimit.Wait(v.Status, v.Headers, v.Now)
		want := paste{Text: text.String(), Received: v.Now, Wait: "It asks for no wait", Snippet: fmt.Sprintf("// %v, %v", wait, ok)}
		if ok {
			want.Wait = "Wait "
		}
		wants = append(wants, want)
	}
	require.Greater(t, len(wants), 150)
	for i, seen := range b.fillIn(wants) {
		want := wants[i]
		assert.True(t, strings.HasPrefix(seen.Wait, want.Wait), "%s: %s", want.Text, seen.Wait)
		assert.Contains(t, seen.Shows, want.Shows, want.Text)
		assert.Contains(t, seen.Snippet, want.Snippet, want.Text)
	}
	assert.Zero(t, eval[int](b, `document.images.length`))
	var parts []string
	for _, name := range []string{"explain", "style.css", "explain.js", "ratelimit.js", "vendors.js", "icon.svg"} {
		parts = append(parts, s.url+"/admin/limits/"+name)
	}
	requests, _ := b.seen()
	assert.Subset(t, parts, requests, "nothing is sent")
	assert.LessOrEqual(t, len(requests), len(parts))
	s.clean(b)
}

// isOdd reports whether a line cannot be pasted: what is pasted is trimmed, for one.
func isOdd(line string) bool {
	return strings.TrimSpace(line) != line || strings.ContainsAny(line, "\r\n")
}

// Even a script that somebody got into the page could send nothing.
func TestWhatIsPastedCannotBeSent(t *testing.T) { // F204
	s, b := explaining(t)
	for _, attempt := range []string{
		`fetch("` + s.url + `/admin/limits/events").then(() => "sent", () => "blocked")`,
		`new Promise((done) => { const e = new EventSource("events"); e.onopen = () => done("sent"); e.onerror = () => done("blocked") })`,
		`new Promise((done) => { const i = new Image(); i.src = "http://127.0.0.1:1/?text"; i.onload = () => done("sent"); i.onerror = () => done("blocked") })`,
	} {
		_, before := b.seen()
		got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](attempt, chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		assert.Equal(t, "blocked", got, attempt)
		require.Eventually(t, func() bool { _, after := b.seen(); return len(after) > len(before) }, patience, 10*time.Millisecond, "by the policy: %s", attempt)
	}
}

func TestDurationsAreAsGoPrintsThem(t *testing.T) {
	_, b := explaining(t)
	var literals, want []string
	for _, d := range []time.Duration{0, time.Millisecond, 999 * time.Millisecond, time.Second, 1500 * time.Millisecond, 20 * time.Second, time.Minute,
		90 * time.Second, time.Hour, time.Hour + 20*time.Second, 100*time.Hour + 10*time.Millisecond, 1 << 31 * time.Second} {
		literals, want = append(literals, fmt.Sprintf("%dn", d)), append(want, d.String())
	}
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](
		`import(location.href + ".js").then((e) => [`+strings.Join(literals, ", ")+`].map(e.duration))`, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	assert.Equal(t, want, got)
}
