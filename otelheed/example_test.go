package otelheed_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/otelheed"
)

// A server refuses the first request, and says when to come back.
func Example() {
	recorder := tracetest.NewSpanRecorder() // in place of an exporter
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	server := busyOnce()
	defer server.Close()

	transport := otelheed.NewTransport(&heed.Transport{}, otelheed.Options{TracerProvider: provider})
	client := &http.Client{Transport: transport}
	get(client, server.URL)

	show(recorder)
	// Output:
	// heed GET, internal: heed.attempts=2 heed.verdict=final http.response.status_code=200
	//     event heed.verdict: heed.attempt=1 heed.verdict=again http.response.status_code=429
	//     event heed.wait: heed.wait.cause=hint heed.wait.duration=1 heed.wait.sources=["Retry-After"]
	//     GET, client: http.response.status_code=429 error.type=429
	//     GET, client: http.request.resend_count=1 http.response.status_code=200
}

// otelhttp makes the spans of the attempts, and its own metrics of them.
func Example_otelhttp() {
	recorder := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	server := busyOnce()
	defer server.Close()

	client := &http.Client{Transport: otelheed.NewTransport(&heed.Transport{}, otelheed.Options{
		Attempts: func(base http.RoundTripper) http.RoundTripper { return otelhttp.NewTransport(base) },
	})}
	get(client, server.URL)

	show(recorder)
	// Output:
	// heed GET, internal: heed.attempts=2 heed.verdict=final http.response.status_code=200
	//     event heed.verdict: heed.attempt=1 heed.verdict=again http.response.status_code=429
	//     event heed.wait: heed.wait.cause=hint heed.wait.duration=1 heed.wait.sources=["Retry-After"]
	//     HTTP GET, client: http.response.status_code=429 error.type=429
	//     HTTP GET, client: http.request.resend_count=1 http.response.status_code=200
}

// otelhttp around otelheed has one more span, for the call as a whole.
func Example_around() {
	recorder := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	server := busyOnce()
	defer server.Close()

	client := &http.Client{Transport: otelhttp.NewTransport(otelheed.NewTransport(&heed.Transport{}, otelheed.Options{}))}
	get(client, server.URL)

	show(recorder)
	// Output:
	// HTTP GET, client: http.response.status_code=200
	//     heed GET, internal: heed.attempts=2 heed.verdict=final http.response.status_code=200
	//         event heed.verdict: heed.attempt=1 heed.verdict=again http.response.status_code=429
	//         event heed.wait: heed.wait.cause=hint heed.wait.duration=1 heed.wait.sources=["Retry-After"]
	//         GET, client: http.response.status_code=429 error.type=429
	//         GET, client: http.request.resend_count=1 http.response.status_code=200
}

// busyOnce is a server that refuses its first request.
func busyOnce() *httptest.Server {
	first := make(chan bool, 1)
	first <- true
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-first:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
		}
	}))
}

func get(client *http.Client, url string) {
	resp, err := client.Get(url)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
}

// show prints each span below its parent, without what differs from machine to machine.
func show(recorder *tracetest.SpanRecorder) {
	indent := map[trace.SpanID]string{}
	for _, span := range recorder.Started() {
		in := indent[span.Parent().SpanID()]
		fmt.Printf("%s%s, %v: %s\n", in, span.Name(), span.SpanKind(), list(span.Attributes()))
		in += "    "
		for _, e := range span.Events() {
			fmt.Printf("%sevent %s: %s\n", in, e.Name, list(e.Attributes))
		}
		indent[span.SpanContext().SpanID()] = in
	}
}

func list(attrs []attribute.KeyValue) string {
	shown := []string{"http.request.resend_count", "http.response.status_code", "error.type"}
	var all []string
	for _, a := range attrs {
		if name := string(a.Key); strings.HasPrefix(name, "heed.") || slices.Contains(shown, name) {
			all = append(all, name+"="+a.Value.String())
		}
	}
	return strings.Join(all, " ")
}
