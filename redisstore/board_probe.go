package redisstore

import (
	"cmp"
	"context"
	"time"
)

// betweenProbes is from a post to the first probe, and from one probe to the next.
const betweenProbes = time.Minute

// probing is what a process has asked Redis about a probe of one key.
type probing struct {
	probe probe
	asked time.Duration // when it did last
}

type probe int

const (
	probeIdle   probe = iota
	probeWanted       // by a caller that waits
	probeSent
	probeGranted
	probeRefused
)

// Probe reports whether the caller is to send one request to key although it cools down,
// to find out whether the server answers again; then see Replace. It does so for one
// caller a minute, of all processes together, if key has to wait for more than a minute
// yet; and for the first one a minute after the cool-down was posted. Replace and a Post
// that prolongs it begin another minute.
//
// Redis decides, by its own clock, and is asked only when a minute has passed, by one
// caller of each process at a time and once a second. All others are told false at once.
// While Redis is lost, or does not answer within Timeout, each process probes by itself,
// once a minute. If ctx is over, it is false. A probe that was granted and not sent is
// not granted to another.
func (b *Board) Probe(ctx context.Context, key string) bool {
	l := b.open()
	if ctx.Err() != nil || !l.known.wantProbe(key, monotonic()) {
		return false
	}
	err := l.deliver(ctx)
	return l.known.takeProbe(key, err != nil && ctx.Err() == nil, monotonic())
}

// wantProbe reports whether Redis is to be asked for a probe of key. If so, takeProbe has
// to follow.
func (t *cooldowns) wantProbe(key string, now time.Duration) bool {
	if t.count.Load() == 0 || !t.mayProbe(key, now) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[key]
	if !t.mayProbeLocked(c, now) {
		return false
	}
	c.probe, c.asked = probeWanted, now
	t.pending.Store(true)
	return true
}

func (t *cooldowns) mayProbe(key string, now time.Duration) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mayProbeLocked(t.all[key], now)
}

func (t *cooldowns) mayProbeLocked(c *cooldown, now time.Duration) bool {
	if c == nil || c.probe != probeIdle {
		return false
	}
	apart := t.betweenProbesLocked()
	return c.until-now > apart && now-c.posted >= apart && (c.asked == 0 || now-c.asked >= apart/60)
}

func (t *cooldowns) betweenProbesLocked() time.Duration {
	return cmp.Or(t.probeEvery, betweenProbes)
}

// takeProbe returns the answer. If there is none since Redis is lost, it is yes.
func (t *cooldowns) takeProbe(key string, lost bool, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[key]
	if c == nil {
		return false
	}
	answer := c.probe
	c.probe = probeIdle
	if answer == probeGranted || lost && (answer == probeWanted || answer == probeSent) {
		c.posted = now
		return true
	}
	return false
}

// answer takes note of what Redis said.
func (c *cooldown) answer(granted bool, now time.Duration) {
	c.probe = probeRefused
	if granted {
		c.probe, c.posted = probeGranted, now
	}
}
