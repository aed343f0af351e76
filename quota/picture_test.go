package quota_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/quota"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "draw docs/algorithms.svg")

const picturePath = "../docs/algorithms.svg"

// TestThePictureIsCurrent keeps the picture of what each Algorithm makes of the
// same arrivals.
func TestThePictureIsCurrent(t *testing.T) {
	want := draw(t)
	if *update {
		require.NoError(t, os.WriteFile(picturePath, []byte(want), 0o644))
	}
	got, err := os.ReadFile(picturePath)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go test ./quota -run Picture -update")
}

func TestThePageHasARowForEachAlgorithm(t *testing.T) {
	page, err := os.ReadFile("../docs/algorithms.md")
	require.NoError(t, err)
	var named []string
	for _, found := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*\\|$").FindAllStringSubmatch(string(page), -1) {
		named = append(named, found[1])
	}
	var names []string
	for _, p := range ways(1, s) {
		names = append(names, compile(t, p).Policy().Algorithm.String())
	}
	require.Equal(t, names, named)
}

// What is drawn: 10 units in 10 s, and who arrives in 45 s.
const (
	pictureQuota  = 10
	pictureWindow = 10 * s
	pictureEnd    = 45 * s
)

// arrivals are two crowds beside the end of a window, and then a steady stream of
// twice the limit.
func arrivals() (at []time.Duration) {
	for i := range 14 {
		at = append(at, 8*s+time.Duration(i)*120*ms, 10*s+time.Duration(i)*120*ms)
	}
	for i := range 40 {
		at = append(at, 22*s+time.Duration(i)*500*ms)
	}
	slices.Sort(at)
	return at
}

// A row is what becomes of the arrivals.
type row struct {
	name, note       string
	admitted, denied []time.Duration
	turns            []time.Duration // when those who were admitted are let through
}

func newRow(t *testing.T, p quota.Policy, note string) row {
	p.Quota, p.Window = pictureQuota, pictureWindow
	r := row{name: p.Algorithm.String(), note: note}
	c := newCount(t, p)
	begin := c.now
	for _, at := range arrivals() {
		c.now = begin + at.Microseconds()
		if d := c.take(1); d.Allowed {
			r.admitted, r.turns = append(r.admitted, at), append(r.turns, at+d.Delay)
		} else {
			r.denied = append(r.denied, at)
		}
	}
	return r
}

func rows(t *testing.T) []row {
	return []row{
		newRow(t, quota.Policy{Algorithm: quota.TokenBucket}, "what was saved up, and the rate"),
		newRow(t, quota.Policy{Algorithm: quota.LeakyBucket, Burst: 5}, "five wait in line, for their turn"),
		newRow(t, quota.Policy{Algorithm: quota.FixedWindow}, "twice the limit at a boundary"),
		newRow(t, quota.Policy{Algorithm: quota.SlidingWindow}, "the window before weighs"),
		newRow(t, quota.Policy{Algorithm: quota.SlidingLog}, "never more than the limit"),
	}
}

// within is how many of moments are in the window that ends with at.
func within(moments []time.Duration, at time.Duration) (n int) {
	for _, m := range moments {
		if at-pictureWindow < m && m <= at {
			n++
		}
	}
	return n
}

// busiest is the most in any window.
func busiest(moments []time.Duration) (most int) {
	for _, at := range moments {
		most = max(most, within(moments, at))
	}
	return most
}

// A drawing is an SVG that grows.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(class string, x, y float64, format string, args ...any) {
	d.add(`<text class="%s" x="%.1f" y="%.1f">%s</text>`, class, x, y, fmt.Sprintf(format, args...))
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.add(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

// The measures of the picture.
const (
	pictureWidth = 960.0
	plotLeft     = 250.0
	plotRight    = 936.0
	rowTop       = 92.0
	rowHeight    = 104.0
	plotHeight   = 64.0 // of 20 units
)

func x(at time.Duration) float64 {
	return plotLeft + (plotRight-plotLeft)*at.Seconds()/pictureEnd.Seconds()
}

func draw(t *testing.T) string {
	d := new(drawing)
	all := rows(t)
	height := rowTop + rowHeight*float64(len(all)) + 34
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`, pictureWidth, height, pictureWidth, height)
	d.add("<title>What five algorithms admit of the same %d arrivals under a limit of 10 in 10 s</title>", len(arrivals()))
	d.WriteString(pictureStyle)
	d.add(`<rect class="ground" x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8"/>`, pictureWidth-1, height-1)
	d.text("title", 24, 40, "The same %d arrivals, a limit of 10 in 10 s", len(arrivals()))
	d.legend()
	for i, r := range all {
		d.row(r, rowTop+rowHeight*float64(i))
	}
	for at := time.Duration(0); at <= pictureEnd; at += 5 * s {
		d.text("middle", x(at), height-14, "%d s", int(at.Seconds()))
	}
	d.add("</svg>")
	return d.String()
}

func (d *drawing) legend() {
	at := 24.0
	for _, entry := range []struct {
		class, text string
		width       float64
	}{{"admitted", "admitted", 82}, {"denied", "denied", 70}, {"turn", "let through, after its Delay", 190}, {"area", "admitted in the last 10 s", 170}} {
		d.add(`<rect class="%s" x="%.1f" y="56.0" width="11.0" height="11.0"/>`, entry.class, at)
		d.text("", at+17, 66, "%s", entry.text)
		at += 17 + entry.width
	}
	d.line("limit", at, 62, at+24, 62)
	d.text("", at+31, 66, "the limit")
}

// row draws one chart, below top.
func (d *drawing) row(r row, top float64) {
	ground := top + plotHeight + 10
	level := func(n int) float64 { return ground - plotHeight*float64(n)/20 }
	d.text("name", 24, top+22, "%s", r.name)
	d.text("", 24, top+40, "%s", r.note)
	d.text(figure(busiest(r.admitted)), 24, top+74, "%d", busiest(r.admitted))
	d.text("", 72, top+64, "at most in any 10 s")
	d.text("", 72, top+79, "%d admitted of %d", len(r.admitted), len(r.admitted)+len(r.denied))
	for at := time.Duration(0); at <= pictureEnd; at += pictureWindow {
		d.line("grid", x(at), top+4, x(at), ground+17)
	}
	d.add(`<path class="area" d="%s"/>`, outline(r.admitted, ground, level))
	d.line("limit", plotLeft, level(pictureQuota), plotRight, level(pictureQuota))
	d.text("end", plotLeft-6, level(pictureQuota)+4, "10")
	d.line("axis", plotLeft, ground, plotRight, ground)
	d.marks("denied", r.denied, ground+2)
	d.marks("admitted", r.admitted, ground+2)
	if r.name == quota.LeakyBucket.String() {
		d.marks("turn", r.turns, ground+10)
	}
}

// figure is the class of how many there were at most.
func figure(n int) string {
	if n > pictureQuota {
		return "figure denied"
	}
	return "figure admitted"
}

func (d *drawing) marks(class string, moments []time.Duration, top float64) {
	for _, at := range moments {
		if at > pictureEnd {
			return
		}
		d.add(`<rect class="%s" x="%.1f" y="%.1f" width="1.6" height="7.0"/>`, class, x(at)-0.8, top)
	}
}

// outline is a path around how many of moments are in the last window.
func outline(moments []time.Duration, ground float64, level func(n int) float64) string {
	var changes []time.Duration
	for _, at := range moments {
		changes = append(changes, at, at+pictureWindow)
	}
	slices.Sort(changes)
	path := fmt.Sprintf("M%.1f %.1f", x(0), ground)
	for _, at := range slices.Compact(changes) {
		if at = min(at, pictureEnd); at == pictureEnd {
			break
		}
		path += fmt.Sprintf("H%.1fV%.1f", x(at), level(within(moments, at)))
	}
	return path + fmt.Sprintf("H%.1fV%.1fZ", x(pictureEnd), ground)
}

const pictureStyle = `<style>
	text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a }
	.title { font-size: 19px; font-weight: 600; fill: #1f2328 }
	.name { font-size: 15px; font-weight: 600; fill: #1f2328 }
	.figure { font-size: 30px; font-weight: 600 }
	.middle { text-anchor: middle }
	.end { text-anchor: end }
	.ground { fill: #ffffff; stroke: #d0d7de }
	.grid { stroke: #d0d7de; stroke-width: 1 }
	.axis { stroke: #57606a; stroke-width: 1 }
	.limit { stroke: #1f2328; stroke-width: 1.2; stroke-dasharray: 3 3 }
	.area { fill: #0072b2; fill-opacity: 0.25 }
	.admitted { fill: #009e73 }
	.denied { fill: #d55e00 }
	.turn { fill: #0072b2 }
	@media (prefers-color-scheme: dark) {
		text { fill: #9198a1 }
		.title, .name { fill: #f0f6fc }
		.ground { fill: #0d1117; stroke: #3d444d }
		.grid { stroke: #2a313c }
		.axis { stroke: #9198a1 }
		.limit { stroke: #f0f6fc }
		.area { fill: #4aa8e0; fill-opacity: 0.3 }
		.admitted { fill: #14b88a }
		.denied { fill: #f0762b }
		.turn { fill: #4aa8e0 }
	}
</style>
`
