package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/quota"
)

// twoOps returns an op with one charge, and one with two.
func twoOps(t *testing.T) []*op {
	limit, err := quota.Policy{Quota: 10, Window: time.Minute}.Compile()
	require.NoError(t, err)
	c := quota.Charge{Key: "key", N: 1, Limit: limit}
	return []*op{{verb: take, charges: []quota.Charge{c}}, {verb: peek, charges: []quota.Charge{c, c}}}
}

// goodReply returns a valid reply to twoOps, except for the log of the last charge.
func goodReply() []any {
	return []any{
		int64(1_000_000), int64(2),
		int64(1), int64(1), int64(1_000_000), int64(5), int64(0), "",
		int64(0), int64(2), int64(999_999), int64(6), int64(7), "log", int64(0), int64(1), int64(exact), int64(exact),
	}
}

func TestAReplyAnswersItsOps(t *testing.T) {
	ops := twoOps(t)
	unit := ops[0].charges[0].Limit.Unit()
	corrupt, err := decodeReply(ops, append(goodReply(), ""))
	require.NoError(t, err)
	assert.EqualValues(t, 2, corrupt)
	assert.EqualValues(t, 1_000_000, ops[0].now)
	assert.True(t, ops[0].allowed)
	one := quota.Bucket{Time: 1_000_000, Level: 5, Unit: unit}
	assert.Equal(t, []found{{fits: true, bucket: one, before: one}}, ops[0].found)
	assert.EqualValues(t, 1_000_000, ops[1].now)
	assert.False(t, ops[1].allowed)
	two := quota.Bucket{Time: 999_999, Level: 6, Unit: unit, Prev: 7, Log: "log"}
	three := quota.Bucket{Time: 1, Level: exact, Unit: unit, Prev: exact}
	want := []found{{fits: true, repeated: true, bucket: two, before: two}, {bucket: three, before: two}}
	assert.Equal(t, want, ops[1].found)
}

func TestAReplyWithAnotherClockAnswersNothing(t *testing.T) {
	_, err := decodeReply(twoOps(t), []any{int64(1_000_000)})
	assert.Equal(t, otherTime(1_000_000), err)
	assert.False(t, isAnswer(err))
}

func TestAnInvalidReplyIsAnError(t *testing.T) {
	with := func(i int, v any) []any {
		reply := append(goodReply(), "")
		reply[i] = v
		return reply
	}
	for name, reply := range map[string]any{
		"nil":                    nil,
		"text":                   "OK",
		"a number":               int64(1),
		"empty":                  []any{},
		"a text for now":         []any{"1000000"},
		"a nil for now":          []any{nil},
		"too short":              goodReply(),
		"far too short":          goodReply()[:2],
		"of one op":              goodReply()[:8],
		"too long":               append(goodReply(), "", int64(0)),
		"a list in it":           with(3, []any{int64(1)}),
		"a float":                with(4, 1.5),
		"a bool":                 with(2, true),
		"a nil":                  with(4, nil),
		"a text as time":         with(4, "1"),
		"a number as log":        with(7, int64(0)),
		"negative time":          with(4, int64(-1)),
		"negative level":         with(5, int64(-1)),
		"negative prev":          with(6, int64(-1)),
		"time too long":          with(4, int64(exact+1)),
		"level too long":         with(11, int64(exact+1)),
		"prev too long":          with(12, int64(1<<62)),
		"a server's error in it": with(5, errors.New("ERR")), // as from a broken proxy
	} {
		t.Run(name, func(t *testing.T) {
			corrupt, err := decodeReply(twoOps(t), reply)
			assert.ErrorIs(t, err, errReply)
			assert.ErrorContains(t, err, "redisstore: unexpected reply ")
			assert.Less(t, len(err.Error()), 200)
			assert.Zero(t, corrupt, "an invalid reply reports nothing")
			assert.False(t, isAnswer(err), "it may have been executed")
		})
	}
}
