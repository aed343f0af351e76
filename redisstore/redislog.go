package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	sameLineEvery = 10 * time.Second
	maxLines      = 64 // that are remembered
)

// A redisLog is the logger of go-redis that LogTo sets.
type redisLog struct {
	logger *slog.Logger

	mu    sync.Mutex // guards what follows
	lines map[string]time.Time
}

// Printf logs a line of go-redis.
func (l *redisLog) Printf(ctx context.Context, format string, args ...any) {
	if l.isNew(format, time.Now()) {
		l.logger.WarnContext(ctx, "rate_limit.redis", "message", fmt.Sprintf(format, args...))
	}
}

// isNew reports whether no line of the same format was logged lately: the rest of it may differ each time, such as
// a port.
func (l *redisLog) isNew(format string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, known := l.lines[format]; known && now.Sub(last) < sameLineEvery {
		return false
	}
	if l.lines == nil || len(l.lines) >= maxLines {
		l.lines = make(map[string]time.Time)
	}
	l.lines[format] = now
	return true
}
