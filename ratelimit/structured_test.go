package ratelimit

import (
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
)

// readList reads value as far as it can, and reports whether it is a List of Items.
func readList(value string) (items []bareItem, ok bool) {
	s := structured{in: value}
	for s.next() {
		items = append(items, s.bareItem())
		s.skipParameters()
	}
	return items, !s.failed
}

func readDictionary(value string) (members map[string]bareItem, ok bool) {
	s, members := structured{in: value}, map[string]bareItem{}
	for s.next() {
		key := s.key()
		members[key] = s.member()
	}
	return members, !s.failed
}

// FuzzStructured compares with httpsfv.
func FuzzStructured(f *testing.F) {
	for _, value := range []string{
		"", " ", "\t", "a", "\"a\"", `"a";r=1;t=2`, `"a"; r=1;  t=2, "b";r=0`, `"a" ;r=1`, `"a";r=1,`, `,"a"`,
		`"a"  ,	"b"`, `"a";r=1;r=2`,
		`"a";R=1`, `"a";r`, `"a";r=`, `"a";=1`, `"a";r=?1`, `"a";r=?2`, `"a";r=@1`, `"a";r=@1.5`, `"a";r=1.5`,
		`"a";r=1.`, `"a";r=.5`, `"a";r=1.1234`,
		`"a";r=-1`, `"a";r=--1`, `"a";r=-`, `"a";r=999999999999999`, `"a";r=1000000000000000`,
		`"a";r=123456789012.1`, `"a";r=1234567890123.1`,
		`"a";pk=:QXBwLTk5OQ==:`, `"a";pk=:QXBwLTk5OQ:`, `"a";pk=:!:`, `"a";pk=:`, `"a\"b\\c"`, `"a\b"`, `"a`,
		"\"a\x7f\"", "\"\u00e9\"",
		`%"a%c3%a9"`, `%"a%C3%A9"`, `%"a%ff"`, `%"a`, `%a`, `("a" "b");r=1`, `("a"`, `("a""b")`,
		"limit=10, remaining=0, reset=7", "limit=10;x=1, a=(1 2);b, c",
		"limit, reset", "limit=(1 2", "limit=10,", "a=1,a=2", "*a=1", "a*=1", "A=1", "100;w=60", "1, 2;w=3",
		"token/x:y*", "**", "-a",
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.Contains(value, ":") || strings.Contains(value, "(") {
			return // httpsfv requires padding, and no field here has Inner Lists
		}
		list, err := httpsfv.UnmarshalList([]string{value})
		items, ok := readList(value)
		if assert.Equal(t, err == nil, ok, "list %q: %v", value, err) && ok {
			compareItems(t, list, items)
		}
		dictionary, err := httpsfv.UnmarshalDictionary([]string{value})
		members, ok := readDictionary(value)
		if assert.Equal(t, err == nil, ok, "dictionary %q: %v", value, err) && ok {
			assert.Len(t, members, len(dictionary.Names()))
			for key, member := range members {
				theirs, found := dictionary.Get(key)
				if assert.True(t, found, key) {
					compareItem(t, theirs.(httpsfv.Item), member)
				}
			}
		}
	})
}

func compareItems(t *testing.T, list httpsfv.List, items []bareItem) {
	if assert.Len(t, items, len(list)) {
		for i, member := range list {
			compareItem(t, member.(httpsfv.Item), items[i])
		}
	}
}

func compareItem(t *testing.T, theirs httpsfv.Item, ours bareItem) {
	var s structured
	switch value := theirs.Value.(type) {
	case int64:
		assert.Equal(t, bareItem{kind: anInteger, integer: value}, ours)
	case string:
		assert.Equal(t, aString, ours.kind)
		assert.Equal(t, value, s.text(ours))
	case httpsfv.Token:
		assert.Equal(t, bareItem{kind: aToken, text: string(value)}, ours)
	default:
		assert.Equal(t, another, ours.kind)
	}
	assert.False(t, s.failed)
}

func TestByteSequencesMayLackPadding(t *testing.T) {
	for value, want := range map[string]string{
		":QXBwLTk5OQ==:": "App-999", ":QXBwLTk5OQ:": "App-999", "::": "", ":sdfjLJUOUH==:": "\xb1\xd7\xe3\x2c\x95\x0e\x50",
	} {
		s := structured{in: value}
		assert.Equal(t, want, s.bytes(s.bareItem()), value)
		assert.False(t, s.failed, value)
	}
	for _, value := range []string{":QX!:", ":A:", ":QX", ":QXBw LTk5:", "QXBw", ""} {
		s := structured{in: value}
		s.bytes(s.bareItem())
		assert.True(t, s.failed, value)
	}
}

func TestDictionaryMembersMayHaveAnyType(t *testing.T) {
	for _, value := range []string{
		`limit=10, a=(1 "b";x=1  :YQ==:);y, remaining=0, reset=7`, `limit=10,remaining=0,b=:YQ==:,reset=7`,
		`limit=10, remaining=0, reset=7, a=()`,
		`limit=1;x=(, limit=10`, `limit=10, a=(1 2, remaining=0`, `a=(1,2)`, `a=("x""y")`,
		`limit=10, remaining=0, reset=7, limit=(1)`,
	} {
		dictionary, err := httpsfv.UnmarshalDictionary([]string{value})
		members, ok := readDictionary(value)
		assert.Equal(t, err == nil, ok, value)
		if ok {
			assert.Len(t, members, len(dictionary.Names()), value)
		}
	}
}
