package serverside

import (
	"context"
	"log/slog"
	"maps"
	"strings"
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
//	rate_limit.debt_cut             WARN   DebtCut
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
// key, address, wait, status, mode, hash and error.
//
// At most 100 records of each message are logged per second. An outage is not logged for each
// request: of store_unavailable, store_late and limits_unavailable, the first record of each reason
// is logged at once, and then one every ten seconds. A reason is the mode and the error, for a Store
// without digits, such as those of ports. Of more than 16 reasons within ten seconds, 16 are logged.
//
// The attribute dropped is how many records of the message were not logged since the last one.
// That of store_available, which follows if a store_unavailable was logged, counts those of
// store_unavailable.
func LogAudit(l *slog.Logger) func(Event) {
	a := &auditLog{logger: l, least: slog.LevelDebug}
	return a.write
}

// logWarnings returns the Audit of a Config without one.
func logWarnings() func(Event) {
	a := &auditLog{least: slog.LevelWarn}
	return a.write
}

const (
	maxRecords  = 100              // of one kind that are logged per second
	maxReasons  = 16               // of one kind that are remembered
	maxReason   = 256              // bytes of one reason
	repeatAfter = 10 * time.Second // after which a record with the same reason is logged again
	calm        = time.Second      // after a recovery, before a failure is another outage's
)

// An auditLog logs Events.
type auditLog struct {
	logger *slog.Logger
	least  slog.Level // records below it are not logged
	kinds  [kinds]allowance
}

// An allowance says which records of one kind are logged.
type allowance struct {
	mu      sync.Mutex // guards what follows
	second  int64
	n       int                  // logged in this second
	dropped int64                // since the last one that was logged
	reasons map[string]time.Time // when each was last logged

	open      bool      // a failure was logged, and no recovery since
	recovered time.Time // when the failures ended; zero if there was another since
}

// use reports whether another record may be logged, and how many were dropped before it. If reason is
// not empty, one record is logged for each reason, and again from time to time.
func (a *allowance) use(reason string, now time.Time) (dropped int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if second := now.Unix(); second != a.second {
		a.second, a.n = second, 0
	}
	if r := a.recovered; !r.IsZero() && now.Sub(r) >= calm {
		clear(a.reasons)
	}
	a.recovered = time.Time{}
	if a.n >= maxRecords || reason != "" && !a.isDueLocked(reason, now) {
		a.dropped++
		return 0, false
	}
	a.n++
	a.open = true
	dropped, a.dropped = a.dropped, 0
	return dropped, true
}

// isDueLocked reports whether reason has not been logged lately, and remembers that it is now.
func (a *allowance) isDueLocked(reason string, now time.Time) bool {
	maps.DeleteFunc(a.reasons, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatAfter })
	if _, lately := a.reasons[reason]; lately || len(a.reasons) >= maxReasons {
		return false
	}
	if a.reasons == nil {
		a.reasons = make(map[string]time.Time)
	}
	a.reasons[reason] = now
	return true
}

// end records that the failures have ended. If that may be logged, it reports whether a failure was,
// and how many were dropped since.
func (a *allowance) end(now time.Time, may bool) (dropped int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.recovered = now
	if !may || !a.open {
		return 0, false
	}
	a.open = false
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
	DebtCut:            {"rate_limit.debt_cut", slog.LevelWarn},
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
	ctx, now := context.Background(), time.Now()
	may, dropped := m.level >= a.least && l.Enabled(ctx, m.level), int64(0)
	switch {
	case e.Kind == StoreRecovered:
		dropped, may = a.kinds[StoreFailed].end(now, may)
	case may:
		dropped, may = a.kinds[e.Kind].use(e.reason(), now)
	}
	if may {
		l.LogAttrs(ctx, m.level, m.text, e.attrs(dropped)...)
	}
}

// reason returns what records have in common of which one is enough, or "" if each counts.
func (e *Event) reason() string {
	if e.Kind != StoreFailed && e.Kind != StoreLate && e.Kind != LimitsFailed || e.Err == nil {
		return ""
	}
	reason := e.Mode.String() + " " + e.Err.Error()
	reason = strings.Clone(reason[:min(len(reason), maxReason)])
	if e.Kind == LimitsFailed { // digits may tell one key from another
		return reason
	}
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, reason)
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
