package ratelimit

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"
)

// A structured reads a List or a Dictionary of RFC 9651, section 4.2. A field that is
// malformed anywhere is ignored as a whole: once failed is set, all results are
// meaningless.
//
// github.com/dunglas/httpsfv would build a tree on the heap for every response. The tests
// compare the two.
type structured struct {
	in     string
	at     int // in[:at] has been read
	begun  bool
	failed bool
}

// combine joins the lines of a field. Of a value longer than longestField it returns only
// whole members.
func combine(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	value := lines[0]
	if len(lines) > 1 {
		n, size := 0, 0
		for ; n < len(lines) && size <= longestField; n++ {
			size += len(lines[n])
		}
		value = strings.Join(lines[:n], ", ")
	}
	if len(value) > longestField {
		value = value[:max(0, strings.LastIndexByte(value[:longestField], ','))]
	}
	return value
}

// longestField is how much of a structured field is read. No server sends as much, but a
// header may have ten mebibytes.
const longestField = 64 << 10

// next moves to the next member. It returns false at the end and once s has failed.
func (s *structured) next() bool {
	if !s.begun {
		s.begun = true
		s.spaces()
		return !s.end()
	}
	s.blanks()
	if s.failed || s.end() {
		return false
	}
	s.expect(',')
	s.blanks()
	if s.end() {
		s.failed = true
	}
	return !s.failed
}

// parameter moves to the next parameter of an Item and reads its key.
func (s *structured) parameter() (key string, more bool) {
	if s.failed || !s.is(';') {
		return "", false
	}
	s.at++
	s.spaces()
	key = s.key()
	return key, !s.failed
}

// value reads the value that may follow a key. Without one it is true.
func (s *structured) value() bareItem {
	if !s.is('=') {
		return bareItem{kind: another}
	}
	s.at++
	return s.bareItem()
}

// member reads the value of a member of a Dictionary, and its parameters.
func (s *structured) member() (value bareItem) {
	if strings.HasPrefix(s.in[s.at:], "=(") {
		s.expect('=')
		s.skipInnerList()
		value = bareItem{kind: another}
	} else {
		value = s.value()
	}
	s.skipParameters()
	return value
}

func (s *structured) skipParameters() {
	for {
		if _, more := s.parameter(); !more {
			return
		}
		s.value()
	}
}

// skipInnerList reads an Inner List, section 4.2.1.2.
func (s *structured) skipInnerList() {
	s.expect('(')
	for s.spaces(); !s.failed && !s.is(')'); s.spaces() {
		s.bareItem()
		s.skipParameters()
		if !s.is(' ') && !s.is(')') {
			s.failed = true
		}
	}
	s.expect(')')
}

// key reads a key, section 4.2.3.3.
func (s *structured) key() string {
	if c := s.peek(); !('a' <= c && c <= 'z' || c == '*') {
		s.failed = true
		return ""
	}
	n := s.at + 1
	for n < len(s.in) && isKeyByte(s.in[n]) {
		n++
	}
	return s.cut(n)
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' || c == '*'
}

// A bareItem is a Bare Item, section 3.3.
type bareItem struct {
	kind    itemKind
	integer int64
	text    string // of a String, a Byte Sequence or a Token, not decoded
}

type itemKind int

const (
	absent itemKind = iota
	anInteger
	aString
	aByteSequence
	aToken
	another // a Decimal, a Boolean, a Date or a Display String, which this package never expects
)

// Values of a count that is not a number.
const (
	missing   = -1
	malformed = -2
)

// count returns a non-negative Integer, or malformed.
func (b bareItem) count() int64 {
	if b.kind != anInteger || b.integer < 0 {
		return malformed
	}
	return b.integer
}

// seconds returns n seconds, or d if n is missing.
func seconds(n int64, d time.Duration) time.Duration {
	if n < 0 {
		return d
	}
	return time.Duration(min(n, int64(maxWait/time.Second))) * time.Second
}

// text returns a String, or "" if it is absent.
func (s *structured) text(b bareItem) string {
	if b.kind != aString {
		s.failed = s.failed || b.kind != absent
		return ""
	}
	if strings.IndexByte(b.text, '\\') < 0 {
		return b.text
	}
	return unescape.Replace(b.text)
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// bytes returns a Byte Sequence, or "" if it is absent. Section 4.2.7: padding may be
// missing, and padding bits need not be zero.
func (s *structured) bytes(b bareItem) string {
	if b.kind != aByteSequence {
		s.failed = s.failed || b.kind != absent
		return ""
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(b.text, "="))
	s.failed = s.failed || err != nil
	return string(decoded)
}

// bareItem reads a Bare Item, section 4.2.3.1.
func (s *structured) bareItem() bareItem {
	switch c := s.peek(); {
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == '"':
		return s.string()
	case c == ':':
		return s.byteSequence()
	case c == '*' || isLetter(c):
		return s.token()
	case c == '?': // a Boolean, section 4.2.8
		if s.at++; !s.is('0') && !s.is('1') {
			return s.fail()
		}
		s.at++
	case c == '@': // a Date, section 4.2.9
		if s.at++; s.number().kind != anInteger {
			return s.fail()
		}
	case c == '%':
		return s.displayString()
	default:
		return s.fail()
	}
	return bareItem{kind: another}
}

func (s *structured) fail() bareItem {
	s.failed = true
	return bareItem{kind: another}
}

// number reads an Integer or a Decimal, section 4.2.4.
func (s *structured) number() bareItem {
	negative := s.is('-')
	if negative {
		s.at++
	}
	n, value := s.digits()
	if s.is('.') {
		s.at++
		places, _ := s.digits()
		s.failed = s.failed || n == 0 || n > 12 || places == 0 || places > 3
		return bareItem{kind: another}
	}
	s.failed = s.failed || n == 0 || n > 15
	if negative {
		value = -value
	}
	return bareItem{kind: anInteger, integer: value}
}

// string reads a String, section 4.2.5.
func (s *structured) string() bareItem {
	s.at++
	for n := s.at; n < len(s.in); n++ {
		switch c := s.in[n]; {
		case c == '"':
			text := s.cut(n)
			s.at++
			return bareItem{kind: aString, text: text}
		case c == '\\':
			if n++; n == len(s.in) || s.in[n] != '"' && s.in[n] != '\\' {
				return s.fail()
			}
		case c < ' ' || c > '~':
			return s.fail()
		}
	}
	return s.fail()
}

// byteSequence reads a Byte Sequence, section 4.2.7.
func (s *structured) byteSequence() bareItem {
	s.at++
	n := strings.IndexByte(s.in[s.at:], ':')
	if n < 0 {
		return s.fail()
	}
	text := s.cut(s.at + n)
	s.at++
	return bareItem{kind: aByteSequence, text: text}
}

// token reads a Token, section 4.2.6.
func (s *structured) token() bareItem {
	n := s.at + 1
	for n < len(s.in) && isTokenByte(s.in[n]) {
		n++
	}
	return bareItem{kind: aToken, text: s.cut(n)}
}

func isTokenByte(c byte) bool {
	return isLetter(c) || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

// displayString reads a Display String, section 4.2.10.
func (s *structured) displayString() bareItem {
	s.expect('%')
	s.expect('"')
	n := strings.IndexByte(s.in[s.at:], '"')
	if s.failed || n < 0 {
		return s.fail()
	}
	text := s.cut(s.at + n)
	s.at++
	var decoded []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) {
			high, low := hexDigit(text[i+1]), hexDigit(text[i+2])
			s.failed = s.failed || high < 0 || low < 0
			c, i = byte(high<<4|low), i+2
		} else if c < ' ' || c > '~' || c == '%' {
			return s.fail()
		}
		decoded = append(decoded, c)
	}
	s.failed = s.failed || !utf8.Valid(decoded)
	return bareItem{kind: another}
}

// hexDigit returns the value of a lower-case hexadecimal digit, or -1.
func hexDigit(c byte) int { return strings.IndexByte("0123456789abcdef", c) }

// end reports whether everything was read.
func (s *structured) end() bool { return s.at >= len(s.in) }

// peek returns the next byte, or 0 at the end.
func (s *structured) peek() byte {
	if s.end() {
		return 0
	}
	return s.in[s.at]
}

// is reports whether c comes next. c is not 0.
func (s *structured) is(c byte) bool { return s.peek() == c }

// expect reads c, which must come next.
func (s *structured) expect(c byte) {
	if s.is(c) {
		s.at++
	} else {
		s.failed = true
	}
}

// cut reads up to end.
func (s *structured) cut(end int) string {
	text := s.in[s.at:end]
	s.at = end
	return text
}

// digits reads n ASCII digits. If n is more than 18, value is meaningless.
func (s *structured) digits() (n int, value int64) {
	rest := s.in[s.at:]
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		value = value*10 + int64(rest[n]-'0')
		n++
	}
	s.at += n
	return n, value
}

// spaces reads SP.
func (s *structured) spaces() {
	for s.is(' ') {
		s.at++
	}
}

// blanks reads OWS.
func (s *structured) blanks() {
	for isBlank(s.peek()) {
		s.at++
	}
}
