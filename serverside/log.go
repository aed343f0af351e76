package serverside

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// LogAudit returns a Config.Audit that logs Events to l, or to the current slog.Default if l is
// nil:
//
//	serverside.Config{Audit: serverside.LogAudit(logger)}
//
// The messages are
//
//	rate_limit.exceeded             WARN   Denied
//	rate_limit.would_exceed         INFO   WouldDeny
//	rate_limit.store_unavailable    WARN   StoreFailed; ERROR if it fails closed
//	rate_limit.store_available      INFO   StoreRecovered
//	rate_limit.limits_unavailable   WARN   LimitsFailed
//	rate_limit.forwarding_ignored   WARN   ForwardingIgnored
//	rate_limit.near_limit           DEBUG  NearLimit
//	rate_limit.hot_key              ERROR  HotKey
//	rate_limit.bypassed             INFO   Bypassed
//	rate_limit.penalized            WARN   Penalized
//	rate_limit.configured           INFO   Configured
//	rate_limit.config_rejected      ERROR  ConfigRejected
//	rate_limit.store_late           WARN   StoreLate
//	rate_limit.forwarding_disputed  WARN   ForwardingDisputed
//	rate_limit.response_unseen      WARN   ResponseUnseen
//	rate_limit.config_warning       WARN   ConfigWarning
//
// The attributes are those fields of the Event that are set: rule, endpoint, policies, limit,
// key, address, wait, status, mode, hash and error. At most 100 records of each message are
// logged per second; the next one has the number of the others as its attribute dropped.
func LogAudit(l *slog.Logger) func(Event) {
	a := &auditLog{logger: l, least: slog.LevelDebug}
	return a.write
}

// logWarnings returns the Audit of a Config without one.
func logWarnings() func(Event) {
	a := &auditLog{least: slog.LevelWarn}
	return a.write
}

// maxRecords is how many records of one kind are logged per second.
const maxRecords = 100

// An auditLog logs Events.
type auditLog struct {
	logger *slog.Logger
	least  slog.Level // records below it are not logged
	kinds  [kinds]allowance
}

// An allowance counts the records of one kind that were logged in the current second.
type allowance struct {
	mu      sync.Mutex
	second  int64 // guarded by mu
	n       int   // guarded by mu
	dropped int64 // guarded by mu
}

// use reports whether another record may be logged, and how many were dropped before it.
func (a *allowance) use(now time.Time) (dropped int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if second := now.Unix(); second != a.second {
		a.second, a.n = second, 0
	}
	if a.n >= maxRecords {
		a.dropped++
		return 0, false
	}
	a.n++
	dropped, a.dropped = a.dropped, 0
	return dropped, true
}

var messages = [...]struct {
	text  string
	level slog.Level
}{
	Denied:            {"rate_limit.exceeded", slog.LevelWarn},
	WouldDeny:         {"rate_limit.would_exceed", slog.LevelInfo},
	StoreFailed:       {"rate_limit.store_unavailable", slog.LevelWarn},
	ForwardingIgnored: {"rate_limit.forwarding_ignored", slog.LevelWarn},
	StoreRecovered:    {"rate_limit.store_available", slog.LevelInfo},
	LimitsFailed:      {"rate_limit.limits_unavailable", slog.LevelWarn},
	NearLimit:         {"rate_limit.near_limit", slog.LevelDebug},
	HotKey:            {"rate_limit.hot_key", slog.LevelError},
	Bypassed:          {"rate_limit.bypassed", slog.LevelInfo},
	Penalized:         {"rate_limit.penalized", slog.LevelWarn},
	Configured:        {"rate_limit.configured", slog.LevelInfo},
	ConfigRejected:    {"rate_limit.config_rejected", slog.LevelError},

	StoreLate:          {"rate_limit.store_late", slog.LevelWarn},
	ForwardingDisputed: {"rate_limit.forwarding_disputed", slog.LevelWarn},
	ResponseUnseen:     {"rate_limit.response_unseen", slog.LevelWarn},
	ConfigWarning:      {"rate_limit.config_warning", slog.LevelWarn},
}

func (a *auditLog) write(e Event) {
	if e.Kind < Denied || int(e.Kind) >= len(messages) {
		return
	}
	l, m := a.logger, messages[e.Kind]
	if l == nil {
		l = slog.Default()
	}
	if e.Kind == StoreFailed && e.Mode == FailClosed {
		m.level = slog.LevelError
	}
	ctx := context.Background()
	if m.level < a.least || !l.Enabled(ctx, m.level) {
		return
	}
	if dropped, ok := a.kinds[e.Kind].use(time.Now()); ok {
		l.LogAttrs(ctx, m.level, m.text, e.attrs(dropped)...)
	}
}

// attrs returns e's fields that are set.
func (e *Event) attrs(dropped int64) []slog.Attr {
	all := []slog.Attr{
		slog.String("rule", e.Rule), slog.String("endpoint", e.Pattern), slog.Int64("limit", e.Limit),
		slog.String("key", e.Key), slog.String("address", e.Address), slog.Duration("wait", e.Wait),
		slog.Int("status", e.Status), slog.String("hash", e.Hash), slog.Int64("dropped", dropped),
	}
	attrs := all[:0]
	for _, a := range all {
		if !isZero(a.Value) {
			attrs = append(attrs, a)
		}
	}
	if len(e.Policies) > 0 {
		attrs = append(attrs, slog.Any("policies", e.Policies))
	}
	if e.Kind == StoreFailed || e.Kind == StoreLate {
		attrs = append(attrs, slog.String("mode", e.Mode.String()))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	return attrs
}

func isZero(v slog.Value) bool {
	switch v.Kind() {
	case slog.KindString:
		return v.String() == ""
	case slog.KindInt64:
		return v.Int64() == 0
	case slog.KindDuration:
		return v.Duration() == 0
	default:
		return false
	}
}
