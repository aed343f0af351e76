package benchmarks_test

import (
	"bytes"
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed"
)

// These benchmarks make and send a request once. Its body is 1 MiB and has a GetBody.

func BenchmarkBody(b *testing.B) {
	each(b, append([]rival{bare, ours}, rivals...), func(b *testing.B, r rival) {
		rt, put := r.over(answer{}), upload(b)
		for b.Loop() {
			put(rt)
		}
	})
}

// upload returns a function that makes a request and sends it.
func upload(tb testing.TB) func(http.RoundTripper) {
	content := make([]byte, 1<<20)
	return func(rt http.RoundTripper) {
		if _, err := rt.RoundTrip(request(tb, "PUT", url, bytes.NewReader(content))); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestABodyIsNeitherCopiedNorKept(t *testing.T) {
	put := upload(t)
	bareBytes, bareAllocs := cost(func() { put(answer{}) })
	heedTransport := &heed.Transport{Base: answer{}}
	put(heedTransport)
	heedBytes, heedAllocs := cost(func() { put(heedTransport) })
	require.NotZero(t, bareBytes)
	assert.Equal(t, bareBytes, heedBytes)
	assert.Equal(t, bareAllocs, heedAllocs)
}

// cost returns what f allocates, bytes and pieces: the median of many calls, since the runtime
// allocates now and then too.
func cost(f func()) (bytes, allocs uint64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var all [2][101]uint64
	for i := range all[0] {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		all[0][i], all[1][i] = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	}
	return median(all[0][:]), median(all[1][:])
}
