package ratelimit

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

const (
	mostMember  = 1 << 20  // of a request's body, to find the member that names a limit
	mostRepeat  = 32 << 20 // to find one that forbids a repetition
	longestName = 64       // of a member; longer ones are not looked for
	longestText = 256      // of a value; longer ones are not needed
)

// members calls each with the top-level members of a JSON object, until it returns false. text is a value
// as it is written, cut after longestText, and empty for an object or array. members reads at most most
// bytes, and decodes nothing: SDKs write long messages before what is looked for. It reports whether each
// stopped it, or got all members of a complete object.
func members(r io.Reader, most int64, each func(name, text []byte) (more bool)) bool {
	s := memberScanners.Get().(*memberScanner)
	defer memberScanners.Put(s)
	s.r, s.at, s.end, s.left = r, 0, 0, most
	defer func() { s.r = nil }()
	if s.space() != '{' {
		return false
	}
	for c := s.space(); c != '}'; c = s.space() {
		if c == ',' {
			c = s.space()
		}
		if c != '"' {
			return false
		}
		s.name = s.name[:0]
		if !s.str(&s.name, longestName) || s.space() != ':' {
			return false
		}
		s.text = s.text[:0]
		if !s.value(s.space()) {
			return false
		}
		if !each(s.name, s.text) {
			return true
		}
	}
	return true
}

var memberScanners = sync.Pool{New: func() any { return new(memberScanner) }}

// A memberScanner skips JSON.
type memberScanner struct {
	r          io.Reader
	buf        [32 << 10]byte
	at, end    int   // of what is left in buf
	left       int64 // to read from r
	name, text []byte
}

// fill reads more. It returns false at the end.
func (s *memberScanner) fill() bool {
	for range 100 { // as bufio does; a Reader should not return nothing and no error
		n, err := s.r.Read(s.buf[:min(int64(len(s.buf)), s.left)])
		s.at, s.end, s.left = 0, n, s.left-int64(n)
		if n > 0 || err != nil || s.left == 0 {
			return n > 0
		}
	}
	return false
}

// next returns the next byte, or 0 at the end.
func (s *memberScanner) next() byte {
	if s.at == s.end && !s.fill() {
		return 0
	}
	s.at++
	return s.buf[s.at-1]
}

// space skips white space and returns the byte after it.
func (s *memberScanner) space() byte {
	for {
		switch c := s.next(); c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
}

// str reads to the end of a string, whose opening quote was read, and appends at most most bytes of it
// to dst, if dst is not nil.
func (s *memberScanner) str(dst *[]byte, most int) bool {
	for s.at < s.end || s.fill() {
		rest := s.buf[s.at:s.end]
		n := special(rest)
		if dst != nil {
			*dst = append(*dst, rest[:min(n, most-len(*dst))]...)
		}
		s.at += n
		switch {
		case n == len(rest):
		case rest[n] == '"':
			s.at++
			return true
		default: // the byte after a backslash is no quote
			s.at++
			c := s.next()
			if dst != nil && len(*dst)+2 <= most {
				*dst = append(*dst, '\\', c)
			}
		}
	}
	return false
}

// special returns the index of the first quote or backslash in b, or its length. It looks at eight bytes at a
// time: x ^ n*ones has a zero byte where x has n, and only there (y-ones) &^ y has its highest bit first.
func special(b []byte) int {
	const ones, highest = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, escape := x^'"'*ones, x^'\\'*ones
		if found := ((quote-ones)&^quote | (escape-ones)&^escape) & highest; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b) && b[i] != '"' && b[i] != '\\'; i++ {
	}
	return i
}

// value reads a value that begins with c. It keeps the text of one that is neither an object nor an array.
func (s *memberScanner) value(c byte) bool {
	switch c {
	case '"':
		s.text = append(s.text, '"')
		if !s.str(&s.text, longestText) {
			return false
		}
		s.text = append(s.text, '"')
		return true
	case '{', '[':
		return s.nested()
	}
	for ; c != 0; c = s.next() {
		switch c {
		case ',', '}', ' ', '\t', '\r', '\n':
			s.at--
			return true
		}
		if len(s.text) < longestText {
			s.text = append(s.text, c)
		}
	}
	return false
}

// nested skips the rest of an object or array.
func (s *memberScanner) nested() bool {
	for depth := 1; depth > 0; {
		switch s.next() {
		case 0:
			return false
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			if !s.str(nil, 0) {
				return false
			}
		}
	}
	return true
}

// memberOf returns a top-level member of the request's JSON body, if it is a string of up to
// 256 bytes, or "". It reads a copy from GetBody, and nothing if there is none.
func memberOf(req *http.Request, name string) (value string) {
	body := bodyOf(req)
	if body == nil {
		return ""
	}
	defer body.Close()
	members(body, mostMember, func(got, text []byte) bool {
		if string(got) != name {
			return true
		}
		var v any
		if len(text) > 0 && len(text) <= longestText && json.Unmarshal(text, &v) == nil {
			value, _ = v.(string)
		}
		return false
	})
	return value
}

// bytesOfToken is how many bytes of a body have at least one token: fewer than in usual
// text, so that MostTokens is not too low.
const bytesOfToken = 3

// MostTokens returns how many tokens a request costs at most: what a member of its body
// named in MaxTokens says, and one for every three bytes of the body. It is 0 if there is no
// such member, or if another says that the cost does not depend on the body alone. pace.Advertised uses it.
func (p *Profile) MostTokens(req *http.Request) (most int64) {
	if len(p.MaxTokens) == 0 || req.ContentLength <= 0 {
		return 0
	}
	body := bodyOf(req)
	if body == nil {
		return 0
	}
	defer body.Close()
	complete := members(body, mostMember, func(name, text []byte) bool {
		n, err := strconv.ParseInt(string(text), 10, 32)
		switch {
		case slices.Contains(costElsewhere, string(name)) && !saysNothing(text):
			most = 0
			return false
		case most == 0 && err == nil && n > 0 && slices.Contains(p.MaxTokens, string(name)):
			most = n + req.ContentLength/bytesOfToken
		}
		return true
	})
	if !complete {
		return 0
	}
	return most
}

// costElsewhere are members that say that a request costs more than its own body shows: several answers, or text that
// the server has.
var costElsewhere = []string{"n", "best_of", "previous_response_id", "conversation"}

// saysNothing reports whether a value of such a member means nothing.
func saysNothing(text []byte) bool { return string(text) == "null" || string(text) == "1" }

// bodyOf returns a copy of the request's body, or nil.
func bodyOf(req *http.Request) io.ReadCloser {
	if req.GetBody == nil || req.Body == nil || req.Body == http.NoBody || req.Header.Get("Content-Encoding") != "" {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	return body
}
