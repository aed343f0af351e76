package ratelimit_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
)

// FuzzStates compares RateLimit as this package reads it with what httpsfv reads.
func FuzzStates(f *testing.F) {
	for _, value := range []string{
		`"a";r=0;t=17`, `"a";a=0;w=45`, `"a";a=0;w=45;c=5`, `"a";r=3;t=17;a=2;w=45`, `"a";a=1.5`,
		`"a";a=0;c=?0`, `"a";w=1`, `"a";a`, `"a";a=-1;r=2`,
		`"a";a=1, "b";r=0;t=9;w=8`, `"a";a=1;a=2;w=1;w=2;c=1;c=2`, `a;a=1`, `1;a=1`, `"a";c=1;r=5`,
		`"a\"b";a=999999999999999;w=999999999999999`, `"a";pk="x";a=1`, ``, `"a";a=1,`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ContainsAny(value, ":(") || len(value) > 10_000 {
			return // httpsfv requires padding, and no field here has Inner Lists
		}
		if _, err := httpsfv.UnmarshalDictionary([]string{value}); err == nil {
			return // draft-07 allows it
		}
		want, ok := statesOf(value)
		got := ratelimit.Parse(http.Header{"Ratelimit": {value}}, now)
		if !ok {
			want = nil
		}
		counted := map[ratelimit.Limit]int{} // because the order may differ
		for _, l := range got {
			counted[l]++
		}
		if !maps.Equal(counted, want) {
			t.Fatalf("%q: got %+v, want %+v", value, got, want)
		}
	})
}

// statesOf counts the states of a List. ok is false if it is malformed.
func statesOf(value string) (all map[ratelimit.Limit]int, ok bool) {
	list, err := httpsfv.UnmarshalList([]string{value})
	if err != nil {
		return nil, false
	}
	all = map[ratelimit.Limit]int{}
	for i, member := range list {
		item := member.(httpsfv.Item)
		name, ok := item.Value.(string)
		count := func(key string) int64 {
			value, there := item.Params.Get(key)
			n, integer := value.(int64)
			if there && (!integer || n < 0) {
				ok = false
			}
			if !there {
				return -1
			}
			return n
		}
		r, a, seconds, cost := count("r"), count("a"), max(count("t"), count("w")), count("c")
		if _, there := item.Params.Get("pk"); there || !ok || r < 0 && a < 0 {
			return nil, false // pk must be a Byte Sequence
		}
		l := ratelimit.Limit{Name: name, Remaining: max(r, a), Next: -1, Reset: -1, Cost: max(cost, 0), At: now}
		if r >= 0 && a >= 0 {
			l.Remaining = min(r, a)
		}
		if seconds >= 0 {
			l.Next = time.Duration(min(seconds, 1<<31)) * time.Second
		}
		if i < 1024 {
			all[l]++
		}
	}
	return all, true
}

// The next draft's names may come beside today's, with the same restrictions.
func TestNamesOfTheNextDraftAreRead(t *testing.T) {
	policy := "RateLimit-Policy: \"default\";q=10;w=3600"
	for item, want := range map[string]ratelimit.Limit{
		`a=3;w=45`:             {Remaining: 3, Next: 45 * time.Second},
		`a=3;w=45;c=7`:         {Remaining: 3, Next: 45 * time.Second, Cost: 7},
		`r=3;t=45;c=0`:         {Remaining: 3, Next: 45 * time.Second},
		`a=3`:                  {Remaining: 3, Next: -1},
		`r=3;t=17;a=2;w=45`:    {Remaining: 2, Next: 45 * time.Second},
		`a=3;w=17;r=2;t=45`:    {Remaining: 2, Next: 45 * time.Second},
		`a=0;r=2;t=45;w=0`:     {Remaining: 0, Next: 45 * time.Second},
		`a=3;w=17;a=2;w=45`:    {Remaining: 2, Next: 45 * time.Second},
		`a=2;w=99999999999`:    {Remaining: 2, Next: 1 << 31 * time.Second},
		`a=2;w=1;c=9;c=8;x=?0`: {Remaining: 2, Next: time.Second, Cost: 8},
	} {
		want.Name, want.Quota, want.Window, want.Reset, want.At = "default", 10, time.Hour, -1, now
		assert.Equal(t, []ratelimit.Limit{want}, ratelimit.Parse(header(`RateLimit: "default";`+item, policy), now), item)
	}
	for _, item := range []string{
		`w=45`, `c=1`, `a`, `a="3"`, `a=-1`, `a=1.5`, `a=3;w`, `a=3;w=-1`, `a=3;w=1.5`, `a=3;w=a`, `a=3;c`,
		`a=3;c=-1`, `a=3;c=1.5`, `a=3;c="1"`,
		`r=3;a=-1`, `a=3;r=-1`, `a=3;r`, `r=3;t=1;w=-1`, `a=3;w=1;t=-1`,
	} {
		limits := ratelimit.Parse(header(`RateLimit: "default";`+item), now)
		assert.Empty(t, limits, item)
	}
}

// The cost of a request stays with its quota, whichever dialect the rest comes from.
func TestCostSurvivesMergingDialects(t *testing.T) {
	h := header(`RateLimit: "default";a=3;w=45;c=7`, "RateLimit-Policy: \"default\";q=10;w=3600",
		"X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 50")
	limits := ratelimit.Parse(h, now)
	require.Len(t, limits, 1)
	assert.EqualValues(t, 7, limits[0].Cost)
	assert.Equal(t, 50*time.Second, limits[0].Reset)
}
