package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/quota"
)

// logOf returns a log with one entry.
func logOf(time int64, units byte) string {
	var entry [entrySize]byte
	for i := range 7 {
		entry[i] = byte(time >> (8 * (6 - i)))
	}
	entry[8] = units
	return string(entry[:])
}

func TestDecodeReadsTheValueOfAField(t *testing.T) {
	for value, want := range map[string]quota.Bucket{
		"1 2 3":     {Time: 1, Level: 2, Unit: 3},
		"1 2 3 4":   {Time: 1, Level: 2, Unit: 3, Prev: 4},
		"0 0 1":     {Unit: 1},
		"1 2 3 0 ":  {Time: 1, Level: 2, Unit: 3},
		"007 2 3 0": {Time: 7, Level: 2, Unit: 3},
		"9007199254740991 9007199254740991 9007199254740991": {Time: exact, Level: exact, Unit: exact},
		"1 2 3 0 " + logOf(1, 2):                             {Time: 1, Level: 2, Unit: 3, Log: logOf(1, 2)},
		"32 2 3 0 " + logOf(32, ' '):                         {Time: 32, Level: 2, Unit: 3, Log: logOf(32, ' ')},
		"2 3 3 0 " + logOf(1, 2) + logOf(2, 1):               {Time: 2, Level: 3, Unit: 3, Log: logOf(1, 2) + logOf(2, 1)},
	} {
		b, ok := decode(value)
		assert.True(t, ok, "%q", value)
		assert.Equal(t, want, b, "%q", value)
	}
	for _, value := range []string{
		"", " ", "1", "1 2", "1 2 0", "1 2 3 ", "1 2  3", " 1 2 3", "-1 2 3", "+1 2 3", "1 -2 3", "1.5 2 3",
		"1e3 2 3", "0x1 2 3",
		"1_0 2 3", "a b c", "1 2 3\n", "1 2 3 4 5", "9007199254740992 2 3", "1 9007199254740992 3", "1 2 9007199254740992",
		"1 2 3 9007199254740992", "1 2 99999999999999999999", "1 2 3 0 short", "1 2 3 0 " + logOf(2, 2),
		"1 65536 3 0 " + logOf(1, 2), "1 2 3 " + logOf(1, 2), strings.Repeat("1 ", 1000),
	} {
		b, ok := decode(value)
		assert.False(t, ok, "%q", value)
		assert.Zero(t, b, "%q", value)
	}
}

// decode accepts only integers that Lua holds exactly. A decoded value that is encoded again stays the same.
func FuzzValue(f *testing.F) {
	for _, value := range []string{"1 2 3", "1 2 3 4", "1 2 3 0 ", "01 2 3", "1 2 3 0 " + logOf(1, 2), "x", "1 2 3 4 5"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		b, ok := decode(value)
		if !ok {
			assert.Zero(t, b)
			return
		}
		for _, n := range []int64{b.Time, b.Level, b.Unit - 1, b.Prev} {
			assert.True(t, n >= 0 && n <= exact, "%d in %q", n, value)
		}
		assert.Zero(t, len(b.Log)%entrySize)
		assert.True(t, strings.HasSuffix(value, b.Log))
		again, ok := decode(encode(b))
		assert.True(t, ok)
		assert.Equal(t, b, again)
		assert.LessOrEqual(t, len(encode(b)), len(value)+len(" 0"), "%q", value)
	})
}

// encode returns the value of a field that holds b, as state.lua writes it.
func encode(b quota.Bucket) string {
	text := fmt.Sprintf("%d %d %d", b.Time, b.Level, b.Unit)
	if b.Prev > 0 || b.Log != "" {
		text = fmt.Sprintf("%s %d", text, b.Prev)
	}
	if b.Log != "" {
		text += " " + b.Log
	}
	return text
}
