package rulefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

// rules returns a file with one rule for each limit.
func rules(limits ...string) string {
	text := "rules:\n"
	for i, limit := range limits {
		text += fmt.Sprintf("- {name: rule%d, pattern: /%d, policies: %s}\n", i, i, limit)
	}
	return text
}

// A stage is a watched file and its Events.
type stage struct {
	*testing.T
	name   string
	events chan serverside.Event
	*rulefile.Watcher
}

func watch(t *testing.T, name string) *stage {
	t.Helper()
	s := &stage{T: t, name: name, events: make(chan serverside.Event, 100)}
	w, err := rulefile.Watch(name, s.env())
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	s.Watcher = w
	s.next(serverside.Configured)
	return s
}

// env returns an Env that sends Events to s.
func (s *stage) env() rulefile.Env {
	return rulefile.Env{Config: serverside.Config{Audit: func(e serverside.Event) {
		if e.Kind == serverside.Configured || e.Kind == serverside.ConfigRejected || e.Kind == serverside.ConfigWarning {
			s.events <- e
		}
	}}}
}

// next waits for the next Event, which must be of a kind.
func (s *stage) next(kind serverside.EventKind) serverside.Event {
	s.Helper()
	select {
	case e := <-s.events:
		require.Equal(s, kind, e.Kind, "%v", e.Err)
		return e
	case <-time.After(time.Minute):
		require.Fail(s, "nothing is told", "not even what is wrong: %v", s.Err())
		return serverside.Event{}
	}
}

// admits returns how many of n requests are admitted.
func (s *stage) admits(path string, n int) (admitted int) {
	h := s.Limiter.Wrap(fine)
	for range n {
		if status(h, "GET", path) == 200 {
			admitted++
		}
	}
	return admitted
}

// write replaces a file atomically: readers see the old or the new text, however slow the machine.
func write(t *testing.T, name, text string) {
	t.Helper()
	old, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		require.NoError(t, os.WriteFile(name+"~new", []byte(text), 0o644))
		require.NoError(t, os.Rename(name+"~new", name))
		return
	}
	require.NoError(t, err)
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text + strings.Repeat("\n", max(0, int(old.Size())-len(text))))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func fileWith(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, name, text)
	return name
}

func TestChangedLimitAppliesToTheNextRequest(t *testing.T) {
	s := watch(t, fileWith(t, rules("600/24h", "5/24h")))
	assert.Equal(t, 100, s.admits("/0", 100))
	assert.Equal(t, 5, s.admits("/1", 9))
	hash := s.Limiter.Hash()

	write(t, s.name, rules("60/24h", "5/24h"))
	assert.NotEqual(t, hash, s.next(serverside.Configured).Hash)
	assert.Equal(t, 0, s.admits("/0", 1), "100 of 60 are spent")
	assert.Equal(t, 0, s.admits("/1", 9), "what is not changed is not forgotten")

	write(t, s.name, rules("130/24h", "5/24h"))
	s.next(serverside.Configured)
	assert.Equal(t, 30, s.admits("/0", 40), "100 of 130 are spent")
}

func TestInvalidFileIsRejected(t *testing.T) {
	s := watch(t, fileWith(t, rules("5/1h")))
	assert.Equal(t, 3, s.admits("/0", 3))
	hash := s.Limiter.Hash()

	write(t, s.name, "rules:\n- {polices: 9/1h, name: rule0, pattern: /0}\n")
	rejected := s.next(serverside.ConfigRejected)
	require.Len(t, rulefile.Faults(rejected.Err), 1)
	assert.ErrorContains(t, rejected.Err, s.name+":2:4: rules[0]: unknown key \"polices\": did you mean \"policies\"?")
	assert.Equal(t, rejected.Err, s.Err())
	assert.Equal(t, hash, s.Limiter.Hash())
	assert.Equal(t, 2, s.admits("/0", 9))

	require.NoError(t, os.Remove(s.name))
	assert.ErrorIs(t, s.next(serverside.ConfigRejected).Err, os.ErrNotExist)
	assert.ErrorIs(t, s.Reload(), os.ErrNotExist)
	assert.Equal(t, 0, s.admits("/0", 9))

	write(t, s.name, rules("7/1h"))
	s.next(serverside.Configured)
	assert.NoError(t, s.Reload())
	assert.NoError(t, s.Err())
	assert.Equal(t, 2, s.admits("/0", 9))
	assert.Empty(t, s.events)
}

func TestFileMayBeReplacedByRename(t *testing.T) {
	s := watch(t, fileWith(t, rules("5/1h")))
	for limit := 6; limit < 9; limit++ {
		other := s.name + "~"
		write(t, other, rules(fmt.Sprintf("%d/1h", limit)))
		require.NoError(t, os.Rename(other, s.name))
		s.next(serverside.Configured)
	}
	assert.Equal(t, 8, s.admits("/0", 9))
}

// In Kubernetes, a name links to ..data/name, and ..data to a directory that is replaced.
func TestKubernetesMaySwapLinks(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		t.Helper()
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		write(t, filepath.Join(dir, version, "rules.yaml"), text)
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..1", rules("5/1h"))
	require.NoError(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")))
	s := watch(t, filepath.Join(dir, "rules.yaml"))
	for version := 2; version < 5; version++ {
		publish(fmt.Sprintf("..%d", version), rules(fmt.Sprintf("%d/1h", version+4)))
		s.next(serverside.Configured)
		require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", version-1))))
	}
	assert.Equal(t, 8, s.admits("/0", 9))
}

func TestFileMayBeASymbolicLink(t *testing.T) {
	first, second := fileWith(t, rules("5/1h")), fileWith(t, rules("6/1h"))
	link := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.Symlink(first, link))
	s := watch(t, link)
	write(t, first, rules("7/1h"))
	s.next(serverside.Configured)
	require.NoError(t, os.Symlink(second, link+"~"))
	require.NoError(t, os.Rename(link+"~", link))
	s.next(serverside.Configured)
	write(t, second, rules("8/1h"))
	s.next(serverside.Configured)
	assert.Equal(t, 8, s.admits("/0", 9))
}

func TestWatchReturnsFaultsAtTheStart(t *testing.T) {
	_, err := rulefile.Watch(fileWith(t, "rules: 1"), rulefile.Env{})
	assert.ErrorContains(t, err, "rules.yaml:1:8: rules: is a value: must be a list")
	_, err = rulefile.Watch(filepath.Join(t.TempDir(), "rules.yaml"), rulefile.Env{})
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = rulefile.Watch(t.TempDir(), rulefile.Env{})
	assert.ErrorContains(t, err, "is not a regular file")
	noGoroutineIsLeft(t)
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	for range 10 {
		s := watch(t, fileWith(t, rules("5/1h")))
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		write(t, s.name, rules("9/1h"))
		assert.Equal(t, 5, s.admits("/0", 9), "which goes on as it was")
	}
	noGoroutineIsLeft(t)
}

func noGoroutineIsLeft(t *testing.T) {
	t.Helper()
	var stacks string
	if !assert.Eventually(t, func() bool {
		all := make([]byte, 1<<20)
		stacks = string(all[:runtime.Stack(all, true)])
		return !strings.Contains(stacks, "rulefile.(*file)") && !strings.Contains(stacks, "fsnotify")
	}, time.Minute, time.Millisecond) {
		t.Log(stacks)
	}
}

func TestHashIsLoggedAtTheStart(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&locked{mu: &mu, b: &log}, nil)))
	name := fileWith(t, rules("5/1h"))
	w, err := rulefile.Watch(name, rulefile.Env{})
	require.NoError(t, err)
	write(t, name, "x: 1")
	assert.Error(t, w.Reload())
	require.NoError(t, w.Close())
	mu.Lock()
	defer mu.Unlock()
	assert.Contains(t, log.String(), "level=INFO msg=rate_limit.configured hash="+w.Limiter.Hash())
	assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR msg=rate_limit.config_rejected"), log.String())
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestChangedNumbersKeepCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, parsed(t, "r.yaml", rules("60/1m")))
		h := l.Wrap(fine)
		for range 60 {
			require.Equal(t, 200, status(h, "GET", "/0"))
		}
		time.Sleep(10 * time.Second) // 10 of 60 are refilled
		require.NoError(t, l.Reconfigure(parsed(t, "r.yaml", rules("120/1m"))))
		for range 70 {
			require.Equal(t, 200, status(h, "GET", "/0"), "50 of 120 are spent")
		}
		require.Equal(t, 429, status(h, "GET", "/0"))
		time.Sleep(500*time.Millisecond - time.Microsecond)
		require.Equal(t, 429, status(h, "GET", "/0"))
		time.Sleep(time.Microsecond)
		require.Equal(t, 200, status(h, "GET", "/0"), "one comes back in half a second")
	})
}

func TestRequestsMayComeWhileRulesChange(t *testing.T) {
	s := watch(t, fileWith(t, rules("1000/720h")))
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 4 {
		wg.Go(func() {
			n := s.admits("/0", 500)
			mu.Lock()
			defer mu.Unlock()
			total += n
		})
	}
	for i := range 20 {
		write(t, s.name, rules("1000/720h", fmt.Sprintf("%d/1h", i+1)))
		require.NoError(t, s.Reload())
	}
	wg.Wait()
	assert.Equal(t, 1000, total, "no change of other rules gives anything away")
}

// A warning has a position, and the file still applies.
func TestWarningIsReported(t *testing.T) {
	name := fileWith(t, "allow: [{name: a, key: 'header:X-Key', keys: secret, policies: 1/s}]\n"+rules("5/1h"))
	s := watch(t, name)
	assert.ErrorContains(t, s.next(serverside.ConfigWarning).Err,
		name+":1:46: allow[0].keys[0]: matches no request by header:X-Key")
	assert.Equal(t, 5, s.admits("/0", 9))
	assert.NoError(t, s.Reload())
	assert.Empty(t, s.events)
}
