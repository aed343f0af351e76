package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// picture has panels of each form: one line, several lines, and bars.
func picture() Picture {
	return Picture{Title: `"a" <&> 'b'`, Note: "shares", Panels: []Panel{
		{Name: "<one>", Figure: "1 of 2", Kind: Bad, Xs: []float64{1, 2}, Most: 4,
			Ticks: []float64{0, 2}, Labels: []string{"0", "2"},
			From: 0.5, To: 1.5, Shade: "shaded", X: "s", Lines: []Line{{Ys: []float64{1, 2}}, {"one", Bad, []float64{2, 9}}}},
		{Name: "two", Xs: []float64{1, 2}, Most: 4, Ticks: []float64{0, 2}, Labels: []string{"0", "2"},
			Lines: []Line{{"a", Ours, []float64{1, 1}}, {"b", Other, []float64{1, 1}}}},
		{Name: "three", Xs: []float64{0, 1}, Most: 42, Ticks: []float64{0, 2}, Labels: []string{"0", "2"}, Limit: 3,
			Bars: []Bar{{Good: 4, Bad: 20}, {Good: 0.5}}},
	}}
}

func TestThePictureIsWellFormedAndHasAllText(t *testing.T) {
	var text []string
	for _, e := range elements(t, picture().SVG()) {
		text = append(text, e.text)
	}
	for _, want := range []string{`"a" <&> 'b'`, "<one>", "1 of 2", "shaded", "a 1.00", "b 1.00", "24", "0.5"} {
		assert.Contains(t, text, want)
	}
}

func TestBarsAreToTheScaleOfTheirPanel(t *testing.T) {
	var heights []string
	for _, e := range elements(t, picture().SVG()) {
		if class := e.attrs["class"]; e.name == "rect" && (class == "ours" || class == "bad") {
			heights = append(heights, e.attrs["height"])
		}
	}
	assert.Equal(t, []string{"20.4", "101.9", "2.5"}, heights) // 214 pixels are 42
}

func TestNothingIsDrawnOutsideThePicture(t *testing.T) {
	p := picture()
	p.Panels[2].Bars[0].Bad = 1e6
	for _, e := range elements(t, p.SVG()) {
		if e.name != "rect" {
			continue
		}
		number := func(name string) float64 {
			n, err := strconv.ParseFloat(e.attrs[name], 64)
			require.NoError(t, err, e)
			return n
		}
		assert.GreaterOrEqual(t, number("x"), 0.0)
		assert.GreaterOrEqual(t, number("y"), 0.0)
		assert.LessOrEqual(t, number("x")+number("width"), float64(width))
		assert.LessOrEqual(t, number("y")+number("height"), float64(height))
	}
}

func TestDrawShowsThePictureInATerminal(t *testing.T) {
	var out bytes.Buffer
	picture().Draw(&out)
	half := strings.Repeat("▄", 21) + strings.Repeat("█", 21)
	assert.Contains(t, out.String(), "Shares\none  │"+half+"│ 1 of 2\n")
	assert.Contains(t, out.String(), "\n      two\na    │▂▂")
	bars := "\nthree\n   0     4 +   20  ████" + strings.Repeat("░", 20) + "\n   1   0.5 +    0  █\n"
	assert.Contains(t, out.String(), bars)
}

func TestTheMedianIsTakenAtEachPoint(t *testing.T) {
	lines := []Line{{Ys: []float64{1, 9}}, {Ys: []float64{3, 7}}, {Ys: []float64{2, 8}}}
	assert.Equal(t, []float64{2, 8}, Median(lines))
}

type element struct {
	name  string
	attrs map[string]string
	text  string
}

// elements fails the test unless svg is well-formed XML.
func elements(t *testing.T, svg []byte) (all []*element) {
	var open []*element
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			all, open = append(all, e), append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text += strings.TrimSpace(string(token))
			}
		}
	}
}
