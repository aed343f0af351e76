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

const (
	hash, changes = "heed:board:{cool-downs}", "heed:board:{cool-downs}:changes"

	day    = 24 * time.Hour
	ms     = time.Millisecond
	second = int64(1e6)
	t0     = int64(1_700_000_000_000) // in ms, the start of a tenth of 10 s
	width  = 8                        // the number of elements of a cool-down in a reply
)

// A boardScript runs the script of a Board, at times in µs since t0.
type boardScript struct {
	*luaServer
	t *testing.T
}

func newBoardScript(t *testing.T) boardScript { return boardScript{newLuaServer(t), t} }

func (s boardScript) run(at int64, args ...any) []any {
	s.t.Helper()
	reply, err := s.luaServer.run(s.board, t0*1000+at, []string{hash, changes}, args...)
	require.NoError(s.t, err, "%v", args)
	return reply.([]any)
}

// op returns the arguments of one operation: left, every, ago, round and replaced, in µs. Missing numbers
// are 0.
func op(name, key string, numbers ...int64) []any {
	args := []any{name, key, int64(0), int64(0), int64(0), int64(0), int64(0)}
	for i, n := range numbers {
		args[2+i] = n
	}
	return args
}

// ops returns the arguments of a process that knows nothing yet.
func ops(all ...[]any) []any { return append([]any{int64(0), int64(0)}, slices.Concat(all...)...) }

// posts returns n posts for a minute, with keys that begin with prefix.
func posts(prefix string, n int) (all []any) {
	for i := range n {
		all = append(all, op("post", fmt.Sprint(prefix, i), 60*second)...)
	}
	return ops(all)
}

// do makes one operation and returns its answer.
func (s boardScript) do(at int64, name, key string, numbers ...int64) int64 {
	s.t.Helper()
	return s.run(at, ops(op(name, key, numbers...))...)[4].(int64)
}

// read returns what a process reads for key: left, every and slots.
func (s boardScript) read(at int64, key string) (read []int64) {
	s.t.Helper()
	for c := s.run(at, ops()...)[4:]; len(c) > 0; c = c[width:] {
		if c[0] == key {
			read = append(read, c[2].(int64)-c[3].(int64), c[4].(int64), c[6].(int64))
		}
	}
	return read
}

// It compares random timelines of three processes with a model that keeps everything. Now and then Redis
// loses its latest changes, or all.
func TestBoardScriptAgreesWithAModel(t *testing.T) {
	s := newBoardScript(t)
	for seed := range uint64(stated(40, 12)) {
		r := rand.New(rand.NewPCG(seed, 0))
		s.client.FlushAll(ctx)
		var m, before boardModel
		data, at := map[string]string{}, int64(0)
		processes := make([]struct{ start, upto int64 }, 3)
		for range 120 {
			at += r.Int64N(1 + r.Int64N(4*second))
			p := &processes[r.IntN(3)]
			args := []any{p.start, p.upto}
			for range r.IntN(4) {
				args = append(args, m.operation(r)...)
			}
			switch r.IntN(30) {
			case 0:
				before, data = m.copied(), map[string]string{hash: "", changes: ""}
				for key := range data {
					data[key] = s.client.Dump(ctx, key).Val()
				}
			case 1:
				m = before.copied()
				s.client.FlushAll(ctx)
				for key, value := range data {
					s.client.Restore(ctx, key, 0, value)
				}
			}
			want := m.run(t0*1000+at, args)
			got := s.run(at, args...)
			require.Equal(t, want, got, "seed %d: %v", seed, args)
			p.start, p.upto = got[0].(int64), got[2].(int64)
		}
	}
}

// operation returns a random operation.
func (m *boardModel) operation(r *rand.Rand) []any {
	key, left, every := fmt.Sprint("k", r.IntN(5)), 1+r.Int64N(3*second), max(0, r.Int64N(second)-second/2)
	c := m.all[key]
	number := []int64{0, c.replaced, max(0, c.round-1), c.round, c.change + 1}[r.IntN(5)]
	switch r.IntN(10) {
	case 0:
		return op("replace", key, r.Int64N(2)*left, every, 0, 0, number-r.Int64N(2))
	case 1, 2:
		return op("restore", key, r.Int64N(2)*left, every, r.Int64N(3*second), r.Int64N(2)*number, number)
	case 3, 4:
		return op("claim", key, 0, 0, 0, c.round-r.Int64N(2))
	case 5, 6:
		return op("probe", key, 0, 1+r.Int64N(2*second))
	}
	return op("post", key, left, every)
}

func TestBoardScriptReturnsManyChangesInParts(t *testing.T) {
	s := newBoardScript(t)
	for part := range 3 {
		s.run(0, posts(fmt.Sprint(part), 200)...)
	}
	var parts []int
	keys := map[any]bool{}
	for start, upto, last := int64(0), int64(0), int64(-1); upto != last; {
		reply := s.run(0, start, upto)
		start, last, upto = reply[0].(int64), reply[1].(int64), reply[2].(int64)
		parts = append(parts, len(reply[4:])/width)
		for c := reply[4:]; len(c) > 0; c = c[width:] {
			keys[c[0]] = true
		}
	}
	assert.Equal(t, []int{256, 256, 88}, parts)
	assert.Len(t, keys, 600)
}

func TestBoardScriptKeepsWhatChangedLast(t *testing.T) {
	s := newBoardScript(t)
	for part := range 25 {
		s.run(0, posts(fmt.Sprint(part, "."), 200)...)
	}
	assert.EqualValues(t, 4096, s.client.ZCard(ctx, changes).Val())
	assert.EqualValues(t, 4096+2, s.client.HLen(ctx, hash).Val())
	assert.Empty(t, s.read(0, "0.0"))
	assert.True(t, s.client.HExists(ctx, hash, "k24.199").Val())
	for i := range int64(500) { // each call forgets some that are over
		s.do(80*second+i, "post", "k", 60*second+i)
	}
	assert.Less(t, s.client.HLen(ctx, hash).Val(), int64(20))
	assert.Less(t, s.client.ZCard(ctx, changes).Val(), int64(20))

	round := s.run(200*second, ops(op("post", "slots", 60*second, second))...)[1].(int64)
	for range 4095 / 255 {
		s.run(200*second, ops(slices.Repeat(op("claim", "slots", 0, 0, 0, round), 255))...)
	}
	assert.EqualValues(t, 4080, s.do(200*second, "claim", "slots", 0, 0, 0, round))
	for range 15 {
		s.do(200*second, "claim", "slots", 0, 0, 0, round)
	}
	assert.EqualValues(t, -1, s.do(200*second, "claim", "slots", 0, 0, 0, round))
}

func TestBoardScriptObeysAClockThatStepsBack(t *testing.T) {
	s := newBoardScript(t)
	const back = -7200 * second
	s.do(0, "post", "k", 3600*second)
	assert.Equal(t, []int64{3600 * second, 0, 0}, s.read(back, "k"), "not longer than posted")
	s.do(back, "post", "k", 4000*second)
	assert.Equal(t, []int64{3600 * second, 0, 0}, s.read(back, "k"))
	assert.Zero(t, s.do(back, "probe", "k", 0, 60*second), "the wait starts anew")
	assert.Zero(t, s.do(back+59*second, "probe", "k", 0, 60*second))
	assert.EqualValues(t, 1, s.do(back+60*second, "probe", "k", 0, 60*second))
	assert.Equal(t, []int64{3540 * second, 0, 0}, s.read(back+60*second, "k"))
	start := s.run(back, ops()...)
	assert.Equal(t, "other", s.run(back, append(start[:2:2], op("post", "other", second)...)...)[5], "numbers increase")
	again := s.run(back, start[0], start[1].(int64)+second)
	assert.Equal(t, start[0].(int64)+1, again[0], "Redis has lost changes")
}

func TestBoardScriptIgnoresInvalidFields(t *testing.T) {
	s := newBoardScript(t)
	now := t0 * 1000
	good := fmt.Sprintf("%d 1000000 0 1 0 0", now+second)
	values := []string{"", " ", good + " ", good + " 0", good + "\n", strings.Repeat("x", 1<<20),
		fmt.Sprintf("%d 1000000 0 1 0 0", now+172_800*second+1), // ends in more than two days
		fmt.Sprintf("%d 86400000001 0 1 0 0", now+second),
		fmt.Sprintf("%d 1000000 86400000001 1 0 0", now+second),
		fmt.Sprintf("%d 1000000 0 1 4097 0", now+second),
		fmt.Sprintf("%d 1000000 0 1 0 %d", now+second, now+86_400*second+1)} // replaced in more than a day
	for i := range strings.Fields(good) {
		for _, n := range []string{"", "-1", "1e300", "inf", "nan", "0x10", "0.5", "9007199254740993",
			strings.Repeat("9", 400)} {
			fields := strings.Fields(good)
			fields[i] = n
			values = append(values, strings.Join(fields, " "))
		}
	}
	for _, value := range values {
		s.client.FlushAll(ctx)
		s.do(0, "post", "k", second)
		s.client.HSet(ctx, hash, "kk", value)
		require.Empty(t, s.read(0, "k"), "%.50q", value)
		require.EqualValues(t, -1, s.do(0, "claim", "k", 0, 0, 0, 1), "%.50q", value)
		s.do(0, "post", "k", 2*second)
		require.Equal(t, []int64{2 * second, 0, 0}, s.read(0, "k"), "%.50q", value)
	}
	s.client.HSet(ctx, hash, "kk", good)
	assert.Equal(t, []int64{second, 0, 0}, s.read(0, "k"), "a valid field is read")

	future := now + 86_400*second + 1
	reply := s.run(0, ops(op("restore", "k", second, 0, 0, future, future))...)
	assert.Equal(t, []int64{second, 0, 0}, s.read(0, "k"))
	assert.Less(t, reply[1], now+100)

	for _, score := range []string{"inf", "-inf", "1e300", "0.5", "-1"} {
		require.NoError(t, s.client.Do(ctx, "ZADD", changes, score, "hostile"+score).Err())
	}
	reply = s.run(0, posts("b", 1)...)
	assert.Equal(t, reply[1], reply[2])
	assert.Len(t, reply[5:], 2*width)
}

func TestBoardScriptStartsAnewAfterInvalidNumbers(t *testing.T) {
	s := newBoardScript(t)
	for _, field := range []string{"first", "last"} {
		for _, value := range []string{"", "x", "-1", "1e300", "inf", "nan", "9007199254740991", strings.Repeat("9", 400),
			strconv.FormatInt(t0*1000+86_400*second+9, 10)} {
			s.client.FlushAll(ctx)
			s.do(0, "post", "a", second)
			s.client.HSet(ctx, hash, field, value)
			reply := s.run(5, posts("b", 1)...)
			require.Equal(t, []any{t0*1000 + 5, t0*1000 + 6}, reply[:2], "%s=%.50q", field, value)
			require.Len(t, reply[5:], width, "%s=%.50q: only the change with valid numbers", field, value)
			require.EqualValues(t, 3, s.client.HLen(ctx, hash).Val())
		}
	}
}

// evalBoard runs the script as it is.
func evalBoard(client *redis.Client, args ...any) *redis.Cmd {
	return client.Eval(ctx, redisstore.BoardSource, []string{hash, changes}, args...)
}

func TestBoardScriptWritesAllOrNothing(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	for _, key := range []string{hash, changes} {
		require.NoError(t, client.Set(ctx, key, "text", 0).Err())
		assert.ErrorContains(t, evalBoard(client, posts("k", 1)...).Err(), "WRONGTYPE")
		assert.Equal(t, []string{key}, client.Keys(ctx, "*").Val())
		client.FlushAll(ctx)
	}
	as := func(name string, rules ...any) *redis.Client {
		args := append([]any{"ACL", "SETUSER", name, "on", "nopass", "~*", "&*", "+@all"}, rules...)
		require.NoError(t, client.Do(ctx, args...).Err())
		user := redis.NewClient(&redis.Options{Addr: client.Options().Addr, Username: name, Password: "x"})
		t.Cleanup(func() { user.Close() })
		return user
	}
	const words = "can't run|ACL failure in script" // of Redis 7.0, and later
	for _, denied := range []string{"hset", "hdel", "zadd", "zrem", "pexpire", "del"} {
		assert.Regexp(t, words, fmt.Sprint(evalBoard(as(denied, "-"+denied), posts("k", 1)...).Err()), denied)
		assert.Empty(t, client.Keys(ctx, "*").Val(), denied)
	}
	require.NoError(t, evalBoard(client, posts("k", 1)...).Err())
	before := client.HGetAll(ctx, hash).Val()
	for _, denied := range []string{"hset", "hdel", "zadd", "zrem", "pexpire"} {
		for _, args := range [][]any{
			op("replace", "k0", 0, 0, 0, 0, -1), op("restore", "new", second), op("probe", "k0", 0, 0),
		} {
			assert.Regexp(t, words, fmt.Sprint(evalBoard(as(denied, "-"+denied), ops(args)...).Err()), "%s: %v", denied, args)
			assert.Equal(t, before, client.HGetAll(ctx, hash).Val(), "%s: %v", denied, args)
		}
	}
	reply, err := evalBoard(as("quiet", "resetchannels"), posts("new", 1)...).Slice()
	require.NoError(t, err, "without permission to publish")
	assert.Contains(t, reply[3], "channel")
	assert.True(t, client.HExists(ctx, hash, "knew0").Val())
}

func TestBoardScriptPublishesOnceForAllChanges(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	sub := client.Subscribe(ctx, hash)
	defer sub.Close()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	for _, args := range [][]any{posts("a", 2), ops(), ops(op("post", "a1", second)), posts("b", 1)} {
		require.NoError(t, evalBoard(client, args...).Err())
	}
	require.NoError(t, client.Publish(ctx, hash, "the end").Err())
	for _, want := range []string{"", "", "the end"} {
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		assert.Equal(t, want, m.Payload)
	}
}

func TestBoardScriptKeysOutliveTheirCoolDowns(t *testing.T) {
	client := newClient(t, redistest.Shared(t))
	began := time.Now()
	const daily = int64(day / time.Microsecond)
	round := int64(0)
	for _, test := range []struct {
		name, key   string
		wait, every int64
		want        time.Duration
	}{
		{"post", "a", 60 * second, 0, 70 * time.Second},
		{"post", "b", second, 0, 70 * time.Second}, // is not shortened
		{"replace", "b", 0, 0, day},
		{"post", "a", daily, daily, day + 10*time.Second},
		{"claim", "a", 0, 0, 2 * day}, // the second slot starts later, but two days are enough
		{"claim", "a", 0, 0, 2 * day},
	} {
		reply, err := evalBoard(client, ops(op(test.name, test.key, test.wait, test.every, 0, round, -1))...).Slice()
		require.NoError(t, err)
		round = reply[len(reply)-3].(int64)
		expiresIn(t, client, changes, test.want, began)
		expiresIn(t, client, hash, test.want, began)
	}
	client.Persist(ctx, hash)
	evalBoard(client, posts("k", 1)...)
	assert.Positive(t, client.PTTL(ctx, hash).Val())
}

// expiresIn asserts that key got this TTL at some time since began.
func expiresIn(t *testing.T, client redis.UniversalClient, key string, ttl time.Duration, began time.Time) {
	t.Helper()
	left := client.PTTL(ctx, key).Val()
	assert.LessOrEqual(t, left, ttl+ms, key)
	assert.GreaterOrEqual(t, left, (ttl-time.Since(began)).Truncate(time.Millisecond)-time.Millisecond, key)
}
