//go:build unix

package load_test

import (
	"net"
	"net/http"
	"os/exec"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/load"
	"github.com/heedhttp/heed/internal/testenv"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

// raced is true under the race detector.
var raced bool

// A form is the size of a test.
type form struct {
	connections   int
	bare, limited time.Duration // without and with a limiter, as fast as answers come
	paced         time.Duration // at a fixed rate, five times each
}

func loadForm() form {
	if testenv.Long() {
		return form{10_000, 10 * time.Second, 30 * time.Second, 5 * time.Second}
	}
	return form{connections: 500, limited: 300 * time.Millisecond}
}

func TestAnOverloadedServerAdmitsExactlyItsLimit(t *testing.T) {
	f := loadForm()
	if testenv.Long() && raced { // it supports too few goroutines
		withoutRaceDetector(t)
		return
	}
	require.NoError(t, allowFiles(f.connections+1000))
	if !testenv.Long() { // each connection sends at least one request, and nothing refills meanwhile
		limit := int64(f.connections / 10)
		book := newLimitRecorder(t, quota.PerDay(limit))
		r := send(t, load.Load{Addr: listen(t, book), Connections: f.connections, Duration: f.limited})
		requireAnswers(t, r)
		assert.GreaterOrEqual(t, r.Answered(), f.connections)
		assert.Equal(t, map[int]int{200: int(limit), 429: r.Answered() - int(limit)}, r.Statuses)
		assert.EqualValues(t, limit, book.admitted)
		return
	}

	bare, before := listen(t, http.HandlerFunc(fine)), watch()
	r := send(t, load.Load{Addr: bare, Connections: f.connections, Duration: f.bare})
	requireAnswers(t, r)
	without := before.peak()
	throughput := float64(r.Answered()) / f.bare.Seconds()

	rate := int64(throughput / 10)
	book := newLimitRecorder(t, quota.PerSecond(rate))
	addr, before := listen(t, book), watch()
	r = send(t, load.Load{Addr: addr, Connections: f.connections, Duration: f.limited})
	with := before.peak()
	requireAnswers(t, r)
	book.check(t, r)
	assert.Less(t, with, without+without/2+16<<20, "bytes in use, without a limiter %d", without)
	t.Logf(
		"%d connections: the bare handler answers %.0f a second; "+
			"of %d requests %d were admitted by a limit of %d a second; %d KiB in use, %d KiB without a limiter",
		f.connections, throughput, r.Answered(), r.Statuses[200], rate, with>>10, without>>10)

	if raced {
		return // the race detector takes most of the time
	}
	var plain, behind []time.Duration
	for range 5 {
		offered := load.Load{Connections: f.connections, Duration: f.paced, PerSecond: throughput / 4}
		offered.Addr = bare
		plain = append(plain, p99(t, offered))
		offered.Addr = addr
		behind = append(behind, p99(t, offered))
	}
	t.Logf("at %.0f requests a second, p99 of the bare handler %v, of what the limit admits %v: medians of %v and %v",
		throughput/4, median(plain), median(behind), plain, behind)
}

// withoutRaceDetector runs the test in a program without the race detector, which supports at most
// 8128 goroutines.
func withoutRaceDetector(t *testing.T) {
	out, err := exec.Command("go", "test", "-count", "1", "-v", "-run", "^"+t.Name()+"$", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("%s", out)
}

func fine(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("fine\n")) }

// listen serves h and returns its address.
func listen(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: h}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// A limitRecorder is a handler behind a limit. It records what was decided, and when.
type limitRecorder struct {
	rate    int64 // the limit a second, and the burst
	limited http.Handler

	mu             sync.Mutex // guards the fields below
	admitted       int
	begun          time.Time // before the first decision
	neverFullSince time.Time // since then, at the latest, the bucket was never full
	last           time.Time // after the last decision
	denied         time.Time // before the last denial
}

func newLimitRecorder(t *testing.T, p quota.Policy) *limitRecorder {
	t.Helper()
	l, err := serverside.New(serverside.Config{
		Audit: func(serverside.Event) {},
		Rules: []serverside.Rule{{Name: "all", Policies: []quota.Policy{p}}},
	})
	require.NoError(t, err)
	b := &limitRecorder{rate: p.Quota}
	b.limited = l.Wrap(http.HandlerFunc(fine))
	return b
}

func (b *limitRecorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	before := b.begin()
	b.limited.ServeHTTP(w, r)
	after, denied := time.Now(), w.Header().Get("Retry-After") != ""
	b.mu.Lock()
	defer b.mu.Unlock()
	if float64(b.admitted) <= b.refilled(b.begun, after) && after.After(b.neverFullSince) {
		b.neverFullSince = after
	}
	if after.After(b.last) {
		b.last = after
	}
	if denied && before.After(b.denied) {
		b.denied = before
	}
	if !denied {
		b.admitted++
	}
}

// begin returns the time of a request's arrival.
func (b *limitRecorder) begin() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.begun.IsZero() {
		b.begun = now
	}
	return now
}

// refilled is how many units come back between two times, if the bucket is never full in between.
func (b *limitRecorder) refilled(from, to time.Time) float64 {
	return float64(b.rate) * to.Sub(from).Seconds()
}

// check requires that exactly the limit was admitted: never more than the limit allows between the
// first and the last decision, and not one less between the time when the bucket was last full and
// the last refusal.
func (b *limitRecorder) check(t *testing.T, r load.Report) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(t, b.admitted, r.Statuses[200], "the server's count and the clients'")
	assert.Equal(t, r.Answered(), r.Statuses[200]+r.Statuses[429])
	require.False(t, b.denied.IsZero(), "nothing was denied")
	assert.LessOrEqual(t, float64(b.admitted), float64(b.rate)+b.refilled(b.begun, b.last))
	assert.Greater(t, float64(b.admitted), float64(b.rate)+b.refilled(b.neverFullSince, b.denied)-1)
	assert.Less(t, b.neverFullSince.Sub(b.begun), time.Second, "the time in which the bucket may have been full")
}

func requireAnswers(t *testing.T, r load.Report) {
	t.Helper()
	require.Zero(t, r.Failed, "connections: %s", r.Failure)
	require.NotZero(t, r.Sent)
	require.Equal(t, r.Sent, r.Answered())
}

func p99(t *testing.T, l load.Load) time.Duration {
	t.Helper()
	r := send(t, l)
	requireAnswers(t, r)
	require.NotZero(t, r.Statuses[200])
	return r.P99.Round(10 * time.Microsecond)
}

func median(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }

// A memoryWatch measures the peak memory use of this process.
type memoryWatch struct {
	stop chan bool
	most chan uint64
}

func watch() *memoryWatch {
	w := &memoryWatch{make(chan bool), make(chan uint64)}
	go func() {
		var most uint64
		for again := time.NewTicker(20 * time.Millisecond); ; {
			most = max(most, inUse())
			select {
			case <-again.C:
			case <-w.stop:
				again.Stop()
				w.most <- most
				return
			}
		}
	}()
	return w
}

func (w *memoryWatch) peak() uint64 {
	w.stop <- true
	return <-w.most
}

// inUse is the size of the heap's objects and the stacks, in bytes.
func inUse() (total uint64) {
	all := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(all)
	for _, s := range all {
		total += s.Value.Uint64()
	}
	return total
}
