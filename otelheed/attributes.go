package otelheed

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/heedhttp/heed"
)

// Attributes that the semantic conventions do not have. Times are in seconds.
const (
	attemptsKey = attribute.Key("heed.attempts")      // how many requests of the call were sent
	attemptKey  = attribute.Key("heed.attempt")       // 1 for the first of the call
	verdictKey  = attribute.Key("heed.verdict")       // a heed.Verdict
	causeKey    = attribute.Key("heed.wait.cause")    // a heed.Cause
	waitKey     = attribute.Key("heed.wait.duration") // how long the request is held back
	sourcesKey  = attribute.Key("heed.wait.sources")  // the response's fields that ask for it
	requiredKey = attribute.Key("heed.wait.required") // how long it would have had to wait
	limitKey    = attribute.Key("heed.limit")         // the setting that the wait does not fit into
)

// spanName is the method, or "HTTP" if that is not known, as the semantic conventions have it.
func spanName(req *http.Request) string {
	if name := method(req); name != "" {
		return name
	}
	return "HTTP"
}

// requestAttributes are those of a request's span. A sampler sees them.
func requestAttributes(req *http.Request) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 4), semconv.HTTPRequestMethodOther)
	if name := method(req); name != "" {
		attrs[0] = semconv.HTTPRequestMethodKey.String(name)
	}
	if req.URL == nil {
		return attrs
	}
	return append(attrs, serverAttributes(req.URL)...)
}

func serverAttributes(u *url.URL) []attribute.KeyValue {
	// A clone, because a URL's host is a part of its text.
	host := strings.Clone(strings.ToLower(strings.ToValidUTF8(u.Hostname(), "\uFFFD")))
	attrs := []attribute.KeyValue{semconv.ServerAddress(host)}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case err == nil:
	case u.Port() != "":
		return attrs
	case strings.EqualFold(u.Scheme, "http"):
		port = 80
	case strings.EqualFold(u.Scheme, "https"):
		port = 443
	default:
		return attrs
	}
	return append(attrs, semconv.ServerPort(int(port)))
}

// outcome is the status of an attempt, or its error's type.
func outcome(a heed.Attempt) attribute.KeyValue {
	switch {
	case a.Response == nil:
		return errorType(a.Err)
	case a.Response.StatusCode < 100 || a.Response.StatusCode > 599:
		return semconv.ErrorTypeOther // no server makes as many series as it likes
	}
	return semconv.HTTPResponseStatusCode(a.Response.StatusCode)
}

func statusError(status int) attribute.KeyValue {
	return semconv.ErrorTypeKey.String(strconv.Itoa(status))
}

var timeout = semconv.ErrorTypeKey.String("timeout")

// errorType is what kind of error err is: of several, the first, which err stands for.
func errorType(err error) attribute.KeyValue {
	for {
		several, ok := err.(interface{ Unwrap() []error })
		if !ok || len(several.Unwrap()) == 0 {
			break
		}
		err = several.Unwrap()[0]
	}
	var timedOut interface{ Timeout() bool }
	switch {
	case errors.As(err, new(*heed.OverdueError)):
		return semconv.ErrorTypeKey.String("heed.OverdueError")
	case errors.As(err, &timedOut) && timedOut.Timeout():
		return timeout
	case errors.Is(err, heed.ErrNotSent):
		return semconv.ErrorTypeKey.String("heed.ErrNotSent")
	}
	return semconv.ErrorType(err)
}
