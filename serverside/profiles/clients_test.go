package profiles_test

import (
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/heedhttp/heed"
)

// Retry loops of three typical clients, with their mistakes.

// A client sends a request until it is served, or gives up.
type client struct {
	name string
	get  func(c *http.Client, again func() *http.Request) (served bool)
}

var clients = []client{
	{"heed", func(c *http.Client, again func() *http.Request) bool {
		status, _ := send(c, again)
		return status == http.StatusOK
	}},
	{"Forge's", forgeLoop},
	{"API's", apiLoop},
	{"Patterns'", patternsLoop},
	{"deaf", deaf},
}

// send makes one attempt.
func send(c *http.Client, again func() *http.Request) (status int, h http.Header) {
	resp, err := c.Do(again())
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header
}

// patientClient returns heed's client over a transport.
func patientClient(base http.RoundTripper) *http.Client {
	retry := heed.RetryPolicy{MaxWait: 20 * time.Minute, MaxElapsed: time.Hour}
	return &http.Client{Transport: &heed.Transport{Base: base, Retry: retry}}
}

// setTimeout sleeps like JavaScript's setTimeout: for a millisecond if ms is NaN or needs more than
// 31 bits.
func setTimeout(ms float64) {
	if !(1 <= ms && ms <= math.MaxInt32) {
		ms = 1
	}
	time.Sleep(time.Duration(ms * float64(time.Millisecond)))
}

// dice is seeded in the matrix, so that each run is the same.
var dice = rand.Float64

func loadDice()   { dice = rand.New(rand.NewPCG(3, 4)).Float64 }
func unloadDice() { dice = rand.Float64 }

// forgeLoop reads a date as NaN, and retries at once.
func forgeLoop(c *http.Client, again func() *http.Request) bool {
	for i := range 3 {
		status, h := send(c, again)
		if status != http.StatusTooManyRequests {
			return status == http.StatusOK
		}
		wait := 1000 * number(h.Get("Retry-After"), 1)
		wait = math.Max(wait, 200*math.Pow(2, float64(i)))
		if i < 2 {
			setTimeout(wait + wait*dice()*0.3)
		}
	}
	return false
}

// number parses text, which defaults to otherwise, as a number or NaN.
func number(text string, otherwise float64) float64 {
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

var digits = regexp.MustCompile(`^\d+`)

// apiLoop retries up to a quarter too early, and cannot read dates.
func apiLoop(c *http.Client, again func() *http.Request) bool {
	for i := range 4 {
		status, h := send(c, again)
		if status != http.StatusTooManyRequests {
			return status == http.StatusOK
		}
		wait := math.Min(math.Pow(2, float64(i))*1000, 30000)
		if text := h.Get("Retry-After"); text != "" && digits.FindString(text) == text {
			wait = 1000 * number(text, 0)
		}
		if i < 3 {
			setTimeout(wait * (0.75 + dice()*0.5))
		}
	}
	return false
}

// patternsLoop sleeps once more after giving up, and retries at once after a date.
func patternsLoop(c *http.Client, again func() *http.Request) bool {
	for i := range 3 {
		status, h := send(c, again)
		if status != http.StatusTooManyRequests {
			return status == http.StatusOK
		}
		wait := math.Min(1000*math.Pow(2, float64(i)), 30000)
		if text := h.Get("Retry-After"); text != "" {
			wait = 1000 * number(digits.FindString(text), math.NaN())
		}
		setTimeout(wait)
	}
	return false
}

func deaf(c *http.Client, again func() *http.Request) bool {
	for range 12 {
		status, _ := send(c, again)
		if status == http.StatusOK {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}
