package otelheed

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
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

// knownMethods are those of the semantic conventions.
var knownMethods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}

// method returns req's method, or "" if the semantic conventions do not know it.
func method(req *http.Request) string {
	switch {
	case req.Method == "":
		return http.MethodGet
	case slices.Contains(knownMethods, req.Method):
		return req.Method
	}
	return ""
}

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
	name := u.Hostname()
	name = name[strings.LastIndexByte(name, '@')+1:] // user info is there if a program puts it there
	// A clone, because a URL's host is a part of its text.
	host := strings.Clone(strings.ToLower(strings.ToValidUTF8(name, "\uFFFD")))
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

// outcome returns the status of an attempt, or the type of its error.
func outcome(a heed.Attempt) attribute.KeyValue {
	switch {
	case a.Response == nil:
		return errorType(a.Err)
	case a.Response.StatusCode < 100 || a.Response.StatusCode > 599:
		return semconv.ErrorTypeOther // or a server could make any number of series
	}
	return semconv.HTTPResponseStatusCode(a.Response.StatusCode)
}

func statusError(status int) attribute.KeyValue {
	return semconv.ErrorTypeKey.String(strconv.Itoa(status))
}

var timeout = semconv.ErrorTypeKey.String("timeout")

// errorType is what kind of error err is. It is never a text of err's own, which may hold a
// secret and may differ each time: semconv.ErrorType would ask err for one.
func errorType(err error) attribute.KeyValue {
	err = firstCause(err)
	var timedOut interface{ Timeout() bool }
	switch {
	case err == nil:
		return semconv.ErrorTypeOther
	case errors.As(err, new(*heed.OverdueError)):
		return semconv.ErrorTypeKey.String("heed.OverdueError")
	case errors.As(err, &timedOut) && timedOut.Timeout():
		return timeout
	case errors.Is(err, heed.ErrNotSent):
		return semconv.ErrorTypeKey.String("heed.ErrNotSent")
	}
	t := reflect.TypeOf(err)
	if t.Name() != "" && t.PkgPath() != "" {
		return semconv.ErrorTypeKey.String(t.PkgPath() + "." + t.Name())
	}
	return semconv.ErrorTypeKey.String(t.String())
}

var wrapped = reflect.TypeOf(fmt.Errorf("%w", io.EOF))

// firstCause unwraps what says nothing of its own: fmt.Errorf's errors, and those of several
// causes, which stand for the first one.
func firstCause(err error) error {
	for {
		cause := error(nil)
		if several, ok := err.(interface{ Unwrap() []error }); ok && len(several.Unwrap()) > 0 {
			cause = several.Unwrap()[0]
		} else if reflect.TypeOf(err) == wrapped {
			cause = errors.Unwrap(err)
		}
		if cause == nil {
			return err
		}
		err = cause
	}
}
