package rulefile_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/heedhttp/heed/serverside"
	"github.com/heedhttp/heed/serverside/rulefile"
)

var _ rulefile.Source = (*redisstore.Document)(nil)

// fromRedis is the program in docs/rules.md.
func fromRedis(client redis.UniversalClient, fallback []byte, env rulefile.Env) (*rulefile.Watcher, error) {
	rules := &redisstore.Document{Client: client, Key: "heed:rules"}
	return rulefile.Follow("rules.yaml", rules, fallback, env)
}

func TestDocsShowTheTestedProgram(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
	require.Len(t, shown, 1)
	source, err := os.ReadFile("source_test.go")
	require.NoError(t, err)
	assert.Contains(t, string(source), "\n"+string(shown[0][1]))
}

func TestDocumentedProgramFollowsRedis(t *testing.T) {
	s := newRedisStage(t)
	s.do("SET", "heed:rules", rules("5/24h"))
	w, err := fromRedis(s.client, []byte(rules("5/24h")), s.env())
	require.NoError(t, err)
	s.Watcher = w
	assert.Equal(t, 5, s.admits("/0", 9))
	w.Close()
}

// A redisStage is a stage whose rules are in Redis.
type redisStage struct {
	*stage
	server *redistest.Server
	client *redis.Client
}

func newRedisStage(t *testing.T) *redisStage {
	s := &redisStage{&stage{T: t, name: "rules.yaml", events: make(chan serverside.Event, 100)}, redistest.Start(t), nil}
	s.client = redis.NewClient(&redis.Options{
		Addr: s.server.Addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	t.Cleanup(func() { s.client.Close() })
	return s
}

// patient is fromRedis with a timeout for a slow machine.
func (s *redisStage) patient(fallback []byte) (*rulefile.Watcher, error) {
	rules := &redisstore.Document{Client: s.client, Key: "heed:rules", Timeout: time.Minute}
	return rulefile.Follow("rules.yaml", rules, fallback, s.env())
}

// follow starts to follow Redis.
func (s *redisStage) follow() {
	s.Helper()
	w, err := s.patient(nil)
	require.NoError(s, err)
	s.Cleanup(func() { w.Close() })
	s.Watcher = w
	s.next(serverside.Configured)
}

func (s *redisStage) do(command ...string) string {
	s.Helper()
	reply, err := s.server.Do(command...)
	require.NoError(s, err)
	return reply
}

// put writes rules, and publishes the change once somebody subscribes.
func (s *redisStage) put(text string) {
	s.Helper()
	s.do("SET", "heed:rules", text)
	require.Eventually(s, func() bool { return s.do("PUBLISH", "heed:rules", "changed") == "1" }, time.Minute,
		time.Millisecond)
}

func TestLimitChangedInRedisAppliesToTheNextRequest(t *testing.T) {
	s := newRedisStage(t)
	s.do("SET", "heed:rules", rules("600/24h", "5/24h"))
	s.follow()
	assert.Equal(t, 50, s.admits("/0", 50))
	s.put(rules("60/24h", "5/24h"))
	s.next(serverside.Configured)
	assert.Equal(t, 10, s.admits("/0", 11), "the 61st is denied")
	assert.Equal(t, 5, s.admits("/1", 9))
}

func TestInvalidTextInRedisIsRejected(t *testing.T) {
	s := newRedisStage(t)
	s.do("SET", "heed:rules", rules("5/1h"))
	s.follow()
	hash := s.Limiter.Hash()
	s.put("rules:\n- {polices: 9/1h, name: rule0, pattern: /0}\n")
	assert.ErrorContains(t, s.next(serverside.ConfigRejected).Err, "rules.yaml:2:4: rules[0]: unknown key \"polices\"")
	assert.Equal(t, hash, s.Limiter.Hash())
	assert.Equal(t, 5, s.admits("/0", 9))

	s.do("DEL", "heed:rules")
	assert.ErrorIs(t, s.Reload(), fs.ErrNotExist)
	s.next(serverside.ConfigRejected)
	s.put(rules("7/1h"))
	s.next(serverside.Configured)
	assert.Equal(t, 2, s.admits("/0", 9))
}

func TestLostMessageIsMadeUpFor(t *testing.T) {
	s := newRedisStage(t)
	s.do("SET", "heed:rules", rules("600/1h"))
	from := &redisstore.Document{Client: s.client, Interval: 50 * time.Millisecond, Timeout: time.Minute}
	w, err := rulefile.Follow("rules.yaml", from, nil, s.env())
	require.NoError(t, err)
	defer w.Close()
	s.next(serverside.Configured)
	s.do("SET", "heed:rules", rules("60/1h")) // without a message
	s.next(serverside.Configured)
}

func TestRulesOutliveAnOutageOfRedis(t *testing.T) {
	s := newRedisStage(t)
	s.do("SET", "heed:rules", rules("5/1h"))
	s.follow()
	hash := s.Limiter.Hash()
	s.server.Restart() // without its data
	s.next(serverside.ConfigRejected)
	assert.Equal(t, hash, s.Limiter.Hash())
	s.put(rules("9/1h"))
	s.next(serverside.Configured)
	assert.NoError(t, s.Reload())
	assert.NotEqual(t, hash, s.Limiter.Hash())
}

func TestFallbackAppliesUntilRedisIsUp(t *testing.T) {
	s := newRedisStage(t)
	s.server.Kill()
	_, err := s.patient(nil)
	require.ErrorContains(t, err, "connection refused")
	_, err = s.patient([]byte("rules: 1"))
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "rulefile: the fallback: rules.yaml:1:8: rules: is a value: must be a list")
	require.Len(t, rulefile.Faults(err), 1)
	require.Empty(t, s.events)

	w, err := s.patient([]byte(rules("5/1h")))
	require.NoError(t, err)
	defer w.Close()
	s.next(serverside.Configured)
	assert.ErrorContains(t, s.next(serverside.ConfigRejected).Err, "redisstore: ")
	assert.Error(t, w.Err())
	s.server.Restart()
	s.put(rules("9/1h"))
	s.next(serverside.Configured)
	assert.NoError(t, w.Reload())
}

func TestInvalidFirstTextIsAnErrorWithoutAFallback(t *testing.T) {
	s := newRedisStage(t)
	s.do("SET", "heed:rules", "rules: 1")
	_, err := s.patient(nil)
	require.Len(t, rulefile.Faults(err), 1)
	w, err := s.patient([]byte(rules("5/1h")))
	require.NoError(t, err)
	defer w.Close()
	s.next(serverside.Configured)
	assert.Len(t, rulefile.Faults(s.next(serverside.ConfigRejected).Err), 1)
	assert.Error(t, w.Reload())
	assert.Empty(t, s.events, "which is known")
}

func TestProcessesThatFollowOneTextHaveTheSameLimits(t *testing.T) {
	s := newRedisStage(t)
	s.do("SET", "heed:rules", rules("5/1h"))
	var hashes, limits []string
	for range 2 {
		s.follow()
		w := httptest.NewRecorder()
		s.Limiter.Wrap(fine).ServeHTTP(w, httptest.NewRequest("GET", "/0", nil))
		hashes, limits = append(hashes, s.Limiter.Hash()), append(limits, w.Header().Get("X-RateLimit-Limit"))
	}
	assert.Equal(t, hashes[0], hashes[1])
	assert.Equal(t, []string{"5", "5"}, limits)
}

// A feature is a program's own Source.
type feature struct {
	text    []byte
	err     error
	changed chan func()
}

func (f *feature) Read(context.Context) ([]byte, error) { return f.text, f.err }

func (f *feature) Follow(ctx context.Context, changed func()) {
	f.changed <- changed
	<-ctx.Done()
}

func TestFailingSourceIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, events: make(chan serverside.Event, 100)}
		from := &feature{text: []byte(rules("5/1h")), changed: make(chan func(), 1)}
		w, err := rulefile.Follow("rules.yaml", from, nil, s.env())
		require.NoError(t, err)
		s.next(serverside.Configured)
		changed := <-from.changed
		for _, reason := range []string{"no answer", "not asked", "no answer"} {
			from.err = errors.New(reason)
			changed()
			assert.EqualError(t, w.Err(), reason)
		}
		s.next(serverside.ConfigRejected)
		assert.Empty(t, s.events)
		from.err = nil
		changed()
		s.next(serverside.Configured)
		assert.NoError(t, w.Err())

		from.text = nil
		changed()
		changed()
		s.next(serverside.ConfigRejected)
		assert.Empty(t, s.events)

		require.NoError(t, w.Close())
		from.text = []byte(rules("6/1h"))
		changed()
		assert.Empty(t, s.events, "after Close")
	})
}
