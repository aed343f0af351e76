package main

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

	"github.com/heedhttp/heed/examples/internal/stage"
)

// An element is one of a picture.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

func (e element) number(t *testing.T, name string) float64 {
	n, err := strconv.ParseFloat(e.attrs[name], 64)
	require.NoError(t, err, "%s of %v", name, e)
	return n
}

// elements fails the test unless svg is well-formed XML.
func elements(t *testing.T, svg []byte) (all []element) {
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			all = append(all, e)
		case xml.CharData:
			if len(all) > 0 {
				all[len(all)-1].text += strings.TrimSpace(string(token))
			}
		}
	}
}

func with(all []element, class string) (some []element) {
	for _, e := range all {
		if e.attrs["class"] == class {
			some = append(some, e)
		}
	}
	return some
}

func TestThePictureIsWellFormedAndNamesEachPart(t *testing.T) {
	all := elements(t, picture(`"jobs" <&> 'workers'`, 20, fixedResults()))
	assert.Equal(t, "svg", all[0].name)
	assert.Equal(t, `"jobs" <&> 'workers'`, with(all, "title")[0].text)
	names := with(all, "name")
	assert.Equal(t, "naive", names[0].text)
	assert.Equal(t, "a <b> & c", names[2].text)
}

func TestTheBarsOfThePictureAreToOneScale(t *testing.T) {
	all := elements(t, picture("", 20, fixedResults()))
	admitted, refused := with(all, "admitted")[1:], with(all, "refused")[1:] // without the legend's
	require.Len(t, admitted, 3)
	require.Len(t, refused, 3)
	const pixel = float64(plotHeight) / 540 // of a request
	for i, n := range []float64{40, 1, 1} {
		assert.InDelta(t, n*pixel, admitted[i].number(t, "height"), 0.1)
	}
	for i, n := range []float64{500, 500, 3} {
		assert.InDelta(t, n*pixel, refused[i].number(t, "height"), 0.1)
	}
	assert.InDelta(t, plotTop, refused[0].number(t, "y"), 0.1)
}

func TestNothingInThePictureIsOutsideOfIt(t *testing.T) {
	results := fixedResults()
	long := stage.Tally{Seconds: make([]stage.Second, 300)}
	long.Seconds[299] = stage.Second{Refused: 9999}
	for _, e := range elements(t, picture("", 20, append(results, stage.Result{Tally: long}))) {
		if e.name != "rect" {
			continue
		}
		assert.GreaterOrEqual(t, e.number(t, "x"), 0.0)
		assert.GreaterOrEqual(t, e.number(t, "width"), 0.0)
		assert.LessOrEqual(t, e.number(t, "x")+e.number(t, "width"), float64(pictureWidth))
		assert.LessOrEqual(t, e.number(t, "y")+e.number(t, "height"), float64(pictureHeight))
	}
}

func TestAPictureOfNothingIsWellFormed(t *testing.T) {
	assert.NotEmpty(t, elements(t, picture("", 1, []stage.Result{{}})))
}
