package browsertest_test

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/live"
)

var update = flag.Bool("update", false, "make docs/live.png anew, which takes two minutes")

// TestPicture makes the picture of the page, and if DARK is set, one in dark colours in that file.
func TestPicture(t *testing.T) {
	if !*update {
		t.Skip("without -update")
	}
	page := &live.Page{Title: "Limits of api.example.com"}
	rules := []serverside.Rule{
		{Name: "search", Pattern: "/v1/search", Policies: []quota.Policy{quota.PerMinute(60)}},
		{Name: "login", Pattern: "POST /login", Policies: []quota.Policy{
			{Quota: 10, Window: time.Minute, Algorithm: quota.SlidingLog}}},
		{
			Name: "api", Pattern: "/v1/",
			Policies: []quota.Policy{{Quota: 600, Window: time.Minute, Burst: 50}, quota.PerDay(20000)},
		},
		{Name: "next year's", Pattern: "/v1/", DryRun: true, Policies: []quota.Policy{quota.PerMinute(30)}},
	}
	for i := range rules {
		rules[i].Stage, rules[i].Key = serverside.AfterAuth, serverside.Header("X-User")
	}
	limiter, err := serverside.New(page.Instrument(serverside.Config{Audit: func(serverside.Event) {}, Rules: rules}))
	require.NoError(t, err)
	h := limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server := httptest.NewServer(page)
	t.Cleanup(server.Close) // after the tab
	b := open(t)
	b.do(chromedp.EmulateViewport(1080, 1440), chromedp.Navigate(server.URL+"/"))
	traffic(h, 125*time.Second)
	save(b, "../../../docs/live.png")
	if dark := os.Getenv("DARK"); dark != "" {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
		require.NoError(t, err)
		save(b, dark)
	}
}

// traffic sends the requests of a busy day, with a crawler that sends too many.
func traffic(h http.Handler, lasts time.Duration) {
	ask := func(method, target, user string) {
		r := httptest.NewRequest(method, target, nil)
		r.Header.Set("X-User", user)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for begun := time.Now(); time.Since(begun) < lasts; time.Sleep(100 * time.Millisecond) {
		s := time.Since(begun).Seconds()
		for range 4 + random.IntN(4) + int(3*math.Sin(s/9)) {
			ask("GET", "/v1/orders", fmt.Sprint("user ", random.IntN(12)))
		}
		if s > 50 && s < 80 || s > 115 {
			for range 3 {
				ask("GET", "/v1/search", "crawler")
			}
		}
		if random.IntN(8) == 0 {
			ask("POST", "/login", fmt.Sprint("user ", random.IntN(2)))
		}
	}
}

// save saves a screenshot with 256 colours.
func save(b *tab, file string) {
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b, err)
	full, err := png.Decode(bytes.NewReader(data))
	require.NoError(b, err)
	picture := image.NewPaletted(full.Bounds(), colours(full))
	draw.Draw(picture, picture.Bounds(), full, image.Point{}, draw.Src)
	var small bytes.Buffer
	require.NoError(b, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, picture))
	require.NoError(b, os.WriteFile(file, small.Bytes(), 0o644))
}

// colours returns the most frequent colours of a picture.
func colours(of image.Image) color.Palette {
	n := map[color.Color]int{}
	for y := range of.Bounds().Dy() {
		for x := range of.Bounds().Dx() {
			n[of.At(x, y)]++
		}
	}
	all := slices.Collect(maps.Keys(n))
	slices.SortFunc(all, func(a, b color.Color) int { return n[b] - n[a] })
	return all[:min(256, len(all))]
}
