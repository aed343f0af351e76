package retryable

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heedhttp/heed"
)

// LogTrace returns a Trace for a heed.Transport that logs to a logger for go-retryablehttp, such
// as an hclog.Logger. The logger is a retryablehttp.LeveledLogger or a retryablehttp.Logger; a
// *slog.Logger is the former, but heed.LogTrace gives it the context too. If it is nil, so is
// the result, and nothing is logged. LogTrace panics if it is anything else.
//
// A retry is logged as by go-retryablehttp: "retrying request" at level Debug, and before it
// "request failed" at level Error if there was no response. All else is logged as by
// heed.LogTrace: what is not retried, and why, and a request that is not sent, at level Warn;
// a wait for a cool-down at Debug. No path, query string, user info or header value is ever logged.
//
// Install does this for the Logger of a client.
func LogTrace(logger any) *heed.Trace {
	switch logger.(type) {
	case nil:
		return nil
	case retryablehttp.LeveledLogger, retryablehttp.Logger:
		return handler{func() any { return logger }}.trace()
	}
	panic(fmt.Sprintf("retryable: LogTrace: a %T is neither a Logger nor a LeveledLogger", logger))
}

// A handler writes the records of heed.LogTrace as go-retryablehttp would. It calls logger for
// each: that of a client may be set late.
type handler struct{ logger func() any }

func (h handler) trace() *heed.Trace { return heed.LogTrace(slog.New(h)) }

func (h handler) Enabled(context.Context, slog.Level) bool { return h.logger() != nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h handler) WithGroup(string) slog.Handler            { return h }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	var all, failure []any // all attributes, and those of "request failed"
	retried, failed := false, false
	r.Attrs(func(a slog.Attr) bool {
		pair := []any{a.Key, a.Value.Any()}
		switch a.Key {
		case "verdict":
			if retried = a.Value.String() == heed.Again.String(); retried {
				return true // the message says it
			}
		case "error", "method", "host":
			failed = failed || a.Key == "error"
			failure = append(failure, pair...)
		}
		all = append(all, pair...)
		return true
	})
	if !retried {
		h.log(r.Level, r.Message, all)
		return nil
	}
	if failed {
		h.log(slog.LevelError, "request failed", failure)
	}
	h.log(slog.LevelDebug, "retrying request", all)
	return nil
}

func (h handler) log(level slog.Level, msg string, pairs []any) {
	switch l := h.logger().(type) {
	case retryablehttp.LeveledLogger:
		switch level {
		case slog.LevelError:
			l.Error(msg, pairs...)
		case slog.LevelWarn:
			l.Warn(msg, pairs...)
		case slog.LevelInfo:
			l.Info(msg, pairs...)
		default:
			l.Debug(msg, pairs...)
		}
	case retryablehttp.Logger:
		l.Printf("[%s] %s%s", levelName(level), msg, inline(pairs))
	}
}

// levelName is how go-retryablehttp spells a level.
func levelName(level slog.Level) string {
	if level == slog.LevelError {
		return "ERR"
	}
	return level.String()
}

// inline writes pairs in one line. Quotes keep a text of several lines in it.
func inline(pairs []any) string {
	var s strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		value := fmt.Sprint(pairs[i+1])
		if quoted := strconv.Quote(value); strings.Contains(value, " ") || len(quoted) > len(value)+2 {
			value = quoted
		}
		fmt.Fprintf(&s, " %v=%s", pairs[i], value)
	}
	return s.String()
}
