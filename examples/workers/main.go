// Command workers shows what many workers do to a server with a limit. Fifty workers send 200
// jobs to a server that admits 20 requests a second, in three ways: in a loop that retries until
// it works, through heed, and through heed with a pace that they share.
//
//	go run ./examples/workers
//	go run ./examples/workers -svg docs/workers.svg
//
// All figures are counted by the server. The program exits with 1 if heed loses a job.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/internal/chart"
	"github.com/heedhttp/heed/pace"
	"github.com/heedhttp/heed/quota"
	"github.com/heedhttp/heed/serverside"
)

const (
	workers = 50
	jobs    = 200
	limit   = 20 // requests a second, and as many at once
)

const moral = `
The server sets the pace: 20 jobs at once, then 20 a second. So 200 jobs take 9 s, and no client finishes sooner
by asking more often. heed takes a little longer, because it never asks before the time that the server gave.

The refused requests are what matters. They cost the server work when it has the least to spare. They cost the
client its access: OpenAI counts them against the limit, GitHub may ban an integration that goes on, and Discord
blocks an address after 10,000 in ten minutes.

`

// A way is how a worker sends a job.
type way struct {
	name   string
	client func(base http.RoundTripper) http.RoundTripper
	do     func(client *http.Client, url string) (status int)
}

var ways = []way{
	{"naive retry loop", func(base http.RoundTripper) http.RoundTripper { return base }, retry},
	{"heed", func(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} }, get},
	{"heed, shared pace", func(base http.RoundTripper) http.RoundTripper {
		// Less than the server's burst: requests do not arrive as evenly as they are sent.
		policy := quota.Policy{Quota: limit, Window: time.Second, Burst: limit * 3 / 4}
		return &heed.Transport{Base: base, Pacer: &pace.Shared{
			Store: &quota.Memory{}, Policies: []quota.Policy{policy}, // in Redis: examples/fleet
		}}
	}, get},
}

// retry is the loop that everybody has written once. Many do not even pause.
func retry(client *http.Client, url string) (status int) {
	for status = get(client, url); status != http.StatusOK; status = get(client, url) {
		time.Sleep(100 * time.Millisecond)
	}
	return status
}

// get returns the status of the response, or 0 if there is none.
func get(client *http.Client, url string) (status int) {
	resp, err := client.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// work sends all jobs to url, and returns how many were not done.
func (w way) work(base http.RoundTripper, url string) (lost int64) {
	client := &http.Client{Transport: w.client(base)}
	var begun, done atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for begun.Add(1) <= jobs {
				if w.do(client, url) == http.StatusOK {
					done.Add(1)
				}
			}
		})
	}
	all.Wait()
	return jobs - done.Load()
}

// counts are what a server counts: requests done and refused, and when they came.
type counts struct {
	mu            sync.Mutex // guards what follows
	seconds       []chart.Bar
	done, refused int
	first, latest time.Time
}

// limited returns a server that admits 20 requests a second, and counts all in t.
func (t *counts) limited() (http.Handler, error) {
	limiter, err := serverside.New(serverside.Config{
		Rules: []serverside.Rule{{Name: "jobs", Policies: []quota.Policy{quota.PerSecond(limit)}}},
		Audit: func(serverside.Event) {}, // t counts
	})
	if err != nil {
		return nil, err
	}
	limited := limiter.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived, seen := time.Now(), &recorder{w, http.StatusOK}
		limited.ServeHTTP(seen, r)
		t.count(arrived, seen.status)
	}), nil
}

func (t *counts) count(arrived time.Time, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first.IsZero() {
		t.first = arrived
	}
	t.latest = time.Now()
	second := max(0, int(arrived.Sub(t.first)/time.Second))
	for len(t.seconds) <= second {
		t.seconds = append(t.seconds, chart.Bar{})
	}
	if status == http.StatusOK {
		t.done++
		t.seconds[second].Good++
	} else {
		t.refused++
		t.seconds[second].Bad++
	}
}

// A recorder remembers the status of a response.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func main() {
	svg := flag.String("svg", "", "write the picture as SVG to `file`")
	flag.Parse()
	fmt.Printf("%d workers, %d jobs, a limit of %d requests a second. This takes ten seconds.\n\n", workers, jobs, limit)
	counted, lost := make([]counts, len(ways)), make([]int64, len(ways))
	var all sync.WaitGroup
	for i, way := range ways {
		handler, err := counted[i].limited()
		if err != nil {
			log.Fatal(err)
		}
		server := httptest.NewServer(handler)
		defer server.Close()
		all.Go(func() { lost[i] = way.work(&http.Transport{MaxIdleConnsPerHost: workers}, server.URL) })
	}
	all.Wait()

	picture := draw(os.Stdout, counted)
	fmt.Print(moral)
	picture.Draw(os.Stdout)
	if *svg != "" {
		if err := os.WriteFile(*svg, picture.SVG(), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	if n := lost[1] + lost[2]; n > 0 {
		log.Fatalf("heed has lost %d jobs", n)
	}
}

// draw writes a table of the counted, and returns a picture of them.
func draw(w io.Writer, counted []counts) chart.Picture {
	p := chart.Picture{Title: fmt.Sprintf("%d workers, %d jobs, a limit of %d requests a second", workers, jobs, limit),
		Note: "requests in each second: admitted, and on top refused with a 429; the dashed line is the limit"}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tjobs done\trequests\trefused\trequests a job\ttime")
	most, seconds := 0.0, 0
	for i := range counted {
		t := &counted[i]
		sent, took := t.done+t.refused, t.latest.Sub(t.first).Seconds()
		perJob := float64(sent) / float64(max(1, t.done))
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%.2f\t%.1f s\n", ways[i].name, t.done, sent, t.refused, perJob, took)
		q := chart.Panel{Name: ways[i].name, Figure: fmt.Sprint(t.refused), Words: "wasted requests", Kind: chart.Ours,
			Note: fmt.Sprintf("%d requests for %d jobs, in %.1f s", sent, t.done, took), X: "seconds", Limit: limit,
			Bars: t.seconds}
		if t.refused > 0 {
			q.Kind = chart.Bad
		}
		for _, s := range t.seconds {
			most = max(most, 100*math.Ceil((s.Good+s.Bad)/100))
		}
		seconds = max(seconds, len(t.seconds))
		p.Panels = append(p.Panels, q)
	}
	table.Flush()
	for i := range p.Panels { // to one scale
		q := &p.Panels[i]
		q.Most = most
		for second := range seconds + 1 {
			q.Xs, q.Ticks = append(q.Xs, float64(second)), append(q.Ticks, float64(second))
			q.Labels = append(q.Labels, fmt.Sprint(second))
		}
	}
	return p
}
