package ratelimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/heedhttp/heed/ratelimit"
	"github.com/stretchr/testify/assert"
)

func TestParseCallReadsWhatSetCallWrote(t *testing.T) {
	for _, test := range []struct{ said, heard ratelimit.Call }{
		{ratelimit.Call{}, ratelimit.Call{}},
		{
			ratelimit.Call{Attempt: 3, TimeLeft: 1500 * time.Millisecond},
			ratelimit.Call{Attempt: 3, TimeLeft: 1500 * time.Millisecond},
		},
		{
			ratelimit.Call{Attempt: 1, TimeLeft: 2999 * time.Microsecond},
			ratelimit.Call{Attempt: 1, TimeLeft: 2 * time.Millisecond},
		},
		{ratelimit.Call{TimeLeft: 1}, ratelimit.Call{TimeLeft: time.Millisecond}},
		{ratelimit.Call{Attempt: -1, TimeLeft: -time.Second}, ratelimit.Call{}},
		{
			ratelimit.Call{Attempt: 1 << 40, TimeLeft: 1<<63 - 1},
			ratelimit.Call{Attempt: 1<<31 - 1, TimeLeft: 1 << 31 * time.Second},
		},
	} {
		h := http.Header{}
		ratelimit.SetCall(h, test.said)
		assert.Equal(t, test.heard, ratelimit.ParseCall(h), "%v", h)
	}
	for _, name := range []string{ratelimit.AttemptField, ratelimit.TimeLeftField} {
		assert.Equal(t, http.CanonicalHeaderKey(name), name)
	}
}

func TestMalformedCallsAreUnknown(t *testing.T) {
	for _, values := range [][]string{
		nil, {}, {""}, {"-1"}, {"+1"}, {"1.5"}, {" 1"}, {"1", "2"}, {"0x1"}, {"1e3"}, {"1000000000000000"},
		{"١"},
	} {
		h := http.Header{ratelimit.AttemptField: values, ratelimit.TimeLeftField: values}
		assert.Equal(t, ratelimit.Call{}, ratelimit.ParseCall(h), "%q", values)
	}
}

func FuzzCall(f *testing.F) {
	f.Add("1", "250")
	f.Add("999999999999999", "0")
	f.Fuzz(func(t *testing.T, attempt, left string) {
		h := http.Header{ratelimit.AttemptField: {attempt}, ratelimit.TimeLeftField: {left}}
		c := ratelimit.ParseCall(h)
		assert.GreaterOrEqual(t, c.Attempt, 0)
		assert.GreaterOrEqual(t, c.TimeLeft, time.Duration(0))
		again := http.Header{}
		ratelimit.SetCall(again, c)
		assert.Equal(t, c, ratelimit.ParseCall(again))
	})
}
