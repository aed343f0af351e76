package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/redistest"
	"github.com/heedhttp/heed/redisstore"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// boardScript is the script of a Board with a clock of the test.
type boardScript struct {
	client *redis.Client
	source string
}

const hash, changes = "heed:board:{cool-downs}", "heed:board:{cool-downs}:changes"

func newBoardScript(t *testing.T) *boardScript {
	const clock = "local time = redis.call('TIME')\n"
	require.Equal(t, 1, strings.Count(redisstore.BoardSource, clock))
	return &boardScript{
		client: newClient(t, redistest.Shared(t)),
		source: strings.Replace(redisstore.BoardSource, clock, "local time = {KEYS[3], KEYS[4]}\n", 1),
	}
}

// run makes one call at the time at, in µs since t0.
func (s *boardScript) run(t *testing.T, at int64, args ...any) []any {
	t.Helper()
	now := t0*1000 + at
	keys := []string{hash, changes, fmt.Sprint(now / 1e6), fmt.Sprint(now % 1e6)}
	reply, err := s.client.Eval(ctx, s.source, keys, args...).Slice()
	require.NoError(t, err, "%v", args)
	return reply
}

// op returns the arguments of one operation: left, every, ago, round and replaced, in µs. Missing
// numbers are 0.
func op(name, key string, numbers ...int64) []any {
	args := []any{name, key, int64(0), int64(0), int64(0), int64(0), int64(0)}
	for i, n := range numbers {
		args[2+i] = n
	}
	return args
}

// ops returns the arguments of a process that knows nothing yet.
func ops(all ...[]any) []any { return append([]any{int64(0), int64(0)}, slices.Concat(all...)...) }

// posted returns the arguments of one post.
func posted(key string, wait, every time.Duration) []any {
	return ops(op("post", key, wait.Microseconds(), every.Microseconds()))
}

// claim claims a slot and returns the answer.
func (s *boardScript) claim(t *testing.T, at int64, key string, round int64) any {
	return s.run(t, at, ops(op("claim", key, 0, 0, 0, round))...)[4]
}

// probe asks for a probe, at most one a minute, and returns the answer.
func (s *boardScript) probe(t *testing.T, at int64, key string) any {
	return s.run(t, at, ops(op("probe", key, 0, 60*second))...)[4]
}

// read returns what a process reads for key at the time at: left, every and slots.
func (s *boardScript) read(t *testing.T, at int64, key string) (read []int64) {
	t.Helper()
	reply := s.run(t, at, ops()...)
	for c := reply[4:]; len(c) > 0; c = c[width:] {
		if c[0] == key {
			read = append(read, c[2].(int64)-c[3].(int64), c[4].(int64), c[6].(int64))
		}
	}
	return read
}

const second = int64(1e6)

// width is the number of elements of a cool-down in a reply.
const width = 8

func TestBoardScriptNeverShortens(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("k", 10*time.Second, 0)...)
	s.run(t, 0, posted("k", 5*time.Second, 0)...)
	assert.Equal(t, []int64{10 * second, 0, 0}, s.read(t, 0, "k"))
	s.run(t, 4*second, posted("k", 6*time.Second, 0)...)
	assert.Equal(t, []int64{5 * second, 0, 0}, s.read(t, 5*second, "k"))
	s.run(t, 5*second, posted("k", 7*time.Second, 0)...)
	assert.Equal(t, []int64{7 * second, 0, 0}, s.read(t, 5*second, "k"))
	assert.Equal(t, []int64{-9 * second, 0, 0}, s.read(t, 21*second, "k"), "for processes that sync late")
	assert.Empty(t, s.read(t, 22*second, "k"))
	s.run(t, 22*second, posted("k", time.Second, 0)...)
	assert.Equal(t, []int64{second, 0, 0}, s.read(t, 22*second, "k"))
}

func TestBoardScriptKeepsTheLongestInterval(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("k", 10*time.Second, 0)...)
	s.run(t, 0, posted("k", 5*time.Second, 20*time.Millisecond)...)
	assert.Equal(t, []int64{10 * second, 20_000, 0}, s.read(t, 0, "k"), "an interval replaces an unknown one")
	s.run(t, 0, posted("k", 5*time.Second, 25*time.Millisecond)...)
	assert.Equal(t, []int64{10 * second, 25_000, 0}, s.read(t, 0, "k"), "whichever ends first")
	s.run(t, 0, posted("k", 5*time.Second, 20*time.Millisecond)...)
	assert.Equal(t, []int64{10 * second, 25_000, 0}, s.read(t, 0, "k"))
	s.run(t, 0, posted("k", 11*time.Second, 0)...)
	assert.Equal(t, []int64{11 * second, 25_000, 0}, s.read(t, 0, "k"), "no reason to forget it")
	s.run(t, 0, posted("k", 11500*time.Millisecond, 20*time.Millisecond)...)
	assert.Equal(t, []int64{11500 * second / 1000, 25_000, 0}, s.read(t, 0, "k"), "nor is a shorter one")
	s.run(t, 0, posted("k", 12*time.Second, 30*time.Millisecond)...)
	assert.Equal(t, []int64{12 * second, 30_000, 0}, s.read(t, 0, "k"))
	s.run(t, 12*second, posted("k", time.Second, 0)...)
	assert.Equal(t, []int64{second, 0, 0}, s.read(t, 12*second, "k"), "another round")
}

func TestBoardScriptGivesSlotsUntilTheLastOneReleases(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("k", time.Second, 10*time.Millisecond)...)
	round := t0*1000 + 1
	claim := func(at, round int64) any { return s.claim(t, at, "k", round) }
	assert.EqualValues(t, 0, claim(0, round))
	assert.EqualValues(t, 1, claim(second-1, round))
	assert.EqualValues(t, -1, claim(second-1, round+1), "of another round")
	assert.EqualValues(t, 2, claim(second+10_000, round), "its first request is 10 ms later")
	assert.EqualValues(t, -1, claim(second+30_000, round))
	assert.Equal(t, []int64{-30_000, 10_000, 3}, s.read(t, second+30_000, "k"))
	s.run(t, second+30_000, posted("k", time.Second, 10*time.Millisecond)...)
	assert.EqualValues(t, -1, claim(second+30_000, round))
	assert.Equal(t, []int64{second, 10_000, 0}, s.read(t, second+30_000, "k"))
	assert.EqualValues(t, -1, s.claim(t, 0, "other", round))
}

func TestBoardScriptReturnsWhatHasChanged(t *testing.T) {
	s := newBoardScript(t)
	zero, first := int64(0), t0*1000
	run := func(args ...any) []any { return s.run(t, 0, args...) }
	assert.Equal(t, []any{zero, zero, zero, ""}, run(ops()...), "nothing")
	want := []any{first, first + 1, first + 1, "", zero, "a", first + second, second, zero, zero, first + 1, zero, zero}
	assert.Equal(t, want,
		run(posted("a", time.Second, 0)...))
	want = []any{first, first + 2, first + 2, "", zero, "b", first + second, second, zero, zero, first + 2, zero, zero}
	assert.Equal(t, want,
		run(append([]any{first, first + 1}, op("post", "b", second)...)...))
	assert.Equal(t, []any{first, first + 2, first + 2, ""}, run(first, first+2))
	assert.Len(t, run(first-1, first+2), 4+2*width, "Redis has started anew since")
	lost := run(first, first+9) // the caller knows later changes
	assert.Equal(t, []any{first + 1, first + 2}, lost[:2], "so Redis starts anew")
	assert.Len(t, lost, 4+2*width)
	assert.Len(t, run(first, first+2), 4+2*width)
	assert.Len(t, run(first+1, first+2), 4)
}

func TestBoardScriptReturnsManyChangesInParts(t *testing.T) {
	s := newBoardScript(t)
	for part := range 3 {
		args := ops()
		for i := range 200 {
			args = append(args, op("post", fmt.Sprint("k", part, i), second)...)
		}
		s.run(t, 0, args...)
	}
	begun, upto := int64(0), int64(0)
	var parts []int
	keys := map[any]bool{}
	for {
		reply := s.run(t, 0, begun, upto)
		begun, upto = reply[0].(int64), reply[2].(int64)
		parts = append(parts, len(reply[4:])/width)
		for c := reply[4:]; len(c) > 0; c = c[width:] {
			keys[c[0]] = true
		}
		if upto == reply[1] {
			break
		}
	}
	assert.Equal(t, []int{256, 256, 88}, parts)
	assert.Len(t, keys, 600)
}

func TestBoardScriptLimitsTheNumberOfCoolDowns(t *testing.T) {
	s := newBoardScript(t)
	for part := range 30 {
		args := ops()
		for i := range 200 {
			args = append(args, op("post", fmt.Sprint(200*part+i), 3600*second)...)
		}
		s.run(t, 0, args...)
	}
	assert.EqualValues(t, 4096, s.client.ZCard(ctx, changes).Val())
	assert.EqualValues(t, 4096+2, s.client.HLen(ctx, hash).Val())
	assert.False(t, s.client.HExists(ctx, hash, "k0").Val(), "those that changed longest ago go")
	assert.True(t, s.client.HExists(ctx, hash, "k5999").Val())
}

func TestBoardScriptForgetsCoolDownsThatAreOver(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("long", time.Hour, 0)...)
	for i := range int64(stated(1000, 300)) {
		s.run(t, i*second, posted(fmt.Sprint(i), time.Second, 0)...)
	}
	assert.Less(t, s.client.HLen(ctx, hash).Val(), int64(20))
	assert.EqualValues(t, s.client.HLen(ctx, hash).Val()-2, s.client.ZCard(ctx, changes).Val())
	assert.True(t, s.client.HExists(ctx, hash, "klong").Val())
}

func TestBoardScriptKeysOutliveTheirCoolDowns(t *testing.T) {
	s := newBoardScript(t)
	began := time.Now()
	expires := func(ttl time.Duration) {
		t.Helper()
		for _, key := range []string{hash, changes} {
			expiresIn(t, s.client, key, ttl, began)
		}
	}
	s.run(t, 0, posted("a", time.Minute, 0)...)
	expires(70 * time.Second)
	s.run(t, 0, posted("b", time.Second, 0)...)
	expires(70 * time.Second) // is not shortened
	s.run(t, 0, posted("c", 24*time.Hour, 24*time.Hour)...)
	expires(24*time.Hour + 10*time.Second)
	round := s.run(t, 0, posted("c", 0, 0)...)
	for range 4 { // slots; the last one starts in four days
		s.claim(t, 0, "c", round[1].(int64))
	}
	expires(48 * time.Hour)
	require.NoError(t, s.client.Persist(ctx, hash).Err())
	s.run(t, 0, posted("d", time.Minute, 0)...)
	for _, key := range []string{hash, changes} {
		assert.Positive(t, s.client.PTTL(ctx, key).Val(), key)
	}
}

// expiresIn asserts that key got this TTL at some time since began.
func expiresIn(t *testing.T, client redis.UniversalClient, key string, ttl time.Duration, began time.Time) {
	t.Helper()
	left := client.PTTL(ctx, key).Val()
	assert.LessOrEqual(t, left, ttl, key)
	assert.GreaterOrEqual(t, left, (ttl-time.Since(began)).Truncate(time.Millisecond)-time.Millisecond, key)
}

func TestBoardScriptNeverExtendsAWaitAfterAClockStep(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("k", time.Second, 0)...)
	assert.Equal(t, []int64{second, 0, 0}, s.read(t, -3600*second, "k"))
	s.run(t, -3600*second, posted("k", 2*time.Second, 0)...)
	assert.Equal(t, []int64{second, 0, 0}, s.read(t, -3600*second, "k"), "the wait is not longer than posted")
	s.run(t, -3600*second, posted("other", 2*time.Second, 0)...)
	reply := s.run(t, -3600*second, t0*1000, t0*1000+1)
	assert.Equal(t, "other", reply[4], "and later changes have higher numbers")
}

func TestBoardScriptIgnoresInvalidFields(t *testing.T) {
	s := newBoardScript(t)
	now := t0 * 1000
	good := fmt.Sprintf("%d 1000000 0 1 0 0", now+second)
	numbers := []string{"", "x", "-1", "1e3", "inf", "nan", "0.5", "0x10", "9007199254740992", strings.Repeat("9", 400)}
	var values []string
	for i := range 6 {
		for _, n := range numbers {
			fields := strings.Fields(good)
			fields[i] = n
			values = append(values, strings.Join(fields, " "))
		}
	}
	values = append(values, "", " ", good+" ", good+" 0", good+"\n", strings.Repeat("x", 1<<20),
		fmt.Sprintf("%d 1000000 0 1 0 0", now+172_800*second+1), // ends in more than two days
		fmt.Sprintf("%d 86400000001 0 1 0 0", now+second),
		fmt.Sprintf("%d 1000000 86400000001 1 0 0", now+second),
		fmt.Sprintf("%d 1000000 0 1 4097 0", now+second),
		fmt.Sprintf("%d 1000000 0 1 0 %d", now+second, now+86_400*second+1)) // replaced in more than a day
	for _, value := range values {
		require.NoError(t, s.client.FlushAll(ctx).Err())
		s.run(t, 0, posted("k", time.Second, 0)...)
		require.NoError(t, s.client.HSet(ctx, hash, "kk", value).Err())
		require.Empty(t, s.read(t, 0, "k"), "%.50q", value)
		require.EqualValues(t, -1, s.claim(t, 0, "k", 1), "%.50q", value)
		s.run(t, 0, posted("k", 2*time.Second, 0)...)
		require.Equal(t, []int64{2 * second, 0, 0}, s.read(t, 0, "k"), "%.50q", value)
	}
	s.client.HSet(ctx, hash, "kk", good)
	assert.Equal(t, []int64{second, 0, 0}, s.read(t, 0, "k"), "a valid field is read")
}

func TestBoardScriptStartsAnewAfterInvalidNumbers(t *testing.T) {
	s := newBoardScript(t)
	for _, field := range []string{"first", "last"} {
		for _, value := range []string{"", "x", "-1", "1e300", "inf", "nan", "9007199254740991", strings.Repeat("9", 400),
			strconv.FormatInt(t0*1000+86_400*second+9, 10)} {
			require.NoError(t, s.client.FlushAll(ctx).Err())
			s.run(t, 0, posted("a", time.Second, 0)...)
			require.NoError(t, s.client.HSet(ctx, hash, field, value).Err())
			reply := s.run(t, 5, posted("b", time.Second, 0)...)
			require.Equal(t, []any{t0*1000 + 5, t0*1000 + 6}, reply[:2], "%s=%.50q", field, value)
			require.Len(t, reply[5:], width, "%s=%.50q: only the change with valid numbers", field, value)
		}
	}
}

func TestBoardScriptSurvivesHostileScores(t *testing.T) {
	s := newBoardScript(t)
	s.run(t, 0, posted("a", time.Second, 0)...)
	for _, score := range []string{"inf", "-inf", "1e300", "0.5", "-1"} {
		require.NoError(t, s.client.Do(ctx, "ZADD", changes, score, "hostile"+score).Err())
	}
	reply := s.run(t, 0, posted("b", time.Second, 0)...)
	assert.Equal(t, reply[1], reply[2])
	assert.Len(t, reply[5:], 2*width)
}

func TestBoardScriptWritesNothingIfAKeyHasAnotherType(t *testing.T) {
	for _, key := range []string{hash, changes} {
		s := newBoardScript(t)
		require.NoError(t, s.client.Set(ctx, key, "text", 0).Err())
		keys := []string{hash, changes, "1", "1"}
		err := s.client.Eval(ctx, s.source, keys, posted("k", time.Second, 0)...).Err()
		assert.ErrorContains(t, err, "WRONGTYPE")
		assert.Equal(t, []string{key}, s.client.Keys(ctx, "*").Val())
	}
}

func TestBoardScriptWritesNothingWithoutAllPermissions(t *testing.T) {
	s := newBoardScript(t)
	for _, denied := range []string{"hset", "hdel", "zadd", "zrem", "pexpire", "del"} {
		args := []any{"ACL", "SETUSER", denied, "on", "nopass", "~*", "&*", "+@all", "-" + denied}
		require.NoError(t, s.client.Do(ctx, args...).Err())
		user := redis.NewClient(&redis.Options{Addr: s.client.Options().Addr, Username: denied, Password: "x"})
		err := user.Eval(ctx, s.source, []string{hash, changes, "1", "1"}, posted("k", time.Second, 0)...).Err()
		user.Close()
		assert.Error(t, err, denied)
		assert.Empty(t, s.client.Keys(ctx, "*").Val(), denied)
	}
}

func TestBoardScriptPostsWithoutPermissionToPublish(t *testing.T) {
	s := newBoardScript(t)
	rules := []any{"ACL", "SETUSER", "quiet", "on", "nopass", "~*", "resetchannels", "+@all"}
	require.NoError(t, s.client.Do(ctx, rules...).Err())
	user := redis.NewClient(&redis.Options{Addr: s.client.Options().Addr, Username: "quiet", Password: "x"})
	defer user.Close()
	keys := []string{hash, changes, fmt.Sprint(t0 / 1000), "0"}
	reply, err := user.Eval(ctx, s.source, keys, posted("k", time.Second, 0)...).Slice()
	require.NoError(t, err)
	assert.Contains(t, reply[3], "channel", "the reply has the error")
	assert.NotEmpty(t, s.read(t, 0, "k"))
}

func TestBoardScriptPublishesOnceForAllChanges(t *testing.T) {
	s := newBoardScript(t)
	sub := s.client.Subscribe(ctx, hash)
	defer sub.Close()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	s.run(t, 0, ops(op("post", "a", second), op("post", "b", second))...)
	s.run(t, 0, ops()...)
	s.run(t, 0, posted("b", time.Second/2, 0)...)
	s.run(t, 0, posted("c", time.Second, 0)...)
	require.NoError(t, s.client.Publish(ctx, hash, "the end").Err())
	var got []string
	for len(got) == 0 || got[len(got)-1] != "the end" {
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		got = append(got, m.Payload)
	}
	assert.Equal(t, []string{"", "", "the end"}, got)
}

// It compares random timelines of some processes with a model that keeps everything.
func TestBoardScriptAgreesWithAModel(t *testing.T) {
	s := newBoardScript(t)
	for seed := range uint64(stated(20, 8)) {
		require.NoError(t, s.client.FlushAll(ctx).Err())
		r := rand.New(rand.NewPCG(seed, 0))
		var m boardModel
		at := int64(0)
		type process struct{ begun, upto int64 }
		processes := make([]process, 3)
		for range 100 {
			at += r.Int64N(1 + r.Int64N(4*second))
			p := &processes[r.IntN(3)]
			args := []any{p.begun, p.upto}
			for range r.IntN(3) {
				args = append(args, m.operation(r)...)
			}
			for range r.IntN(3) {
				key := fmt.Sprint("k", r.IntN(5))
				if c := m.all[key]; c != nil {
					args = append(args, op("claim", key, 0, 0, 0, c.round-r.Int64N(2))...)
				}
				args = append(args, op("probe", key, 0, 1+r.Int64N(2*second))...)
			}
			want, _ := m.run(t0*1000+at, args)
			got := s.run(t, at, args...)
			require.Equal(t, want, got, "seed %d: %v", seed, args)
			*p = process{got[0].(int64), got[2].(int64)}
		}
	}
}

// operation returns a random operation that changes m.
func (m *boardModel) operation(r *rand.Rand) []any {
	key, left, every := fmt.Sprint("k", r.IntN(5)), 1+r.Int64N(3*second), max(0, r.Int64N(second)-second/2)
	replaced := int64(0)
	if c := m.all[key]; c != nil {
		replaced = []int64{0, c.replaced, c.round - 1, c.round, c.change + 1}[r.IntN(5)]
	}
	switch r.IntN(6) {
	case 0:
		return op("replace", key, r.Int64N(2)*left, every, 0, 0, replaced-r.Int64N(2))
	case 1:
		return op("restore", key, r.Int64N(2)*left, every, r.Int64N(3*second), r.Int64N(2)*replaced, replaced)
	}
	return op("post", key, left, every)
}
