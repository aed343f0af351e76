package serverside

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Key names the client that a request is charged to. Requests with the same key share a
// quota. Use one of this package's, or write a KeyFunc:
//
//	Key: serverside.ClientIP(proxy)                    // the client's address
//	Key: serverside.Header("X-Api-Key")                // a header field, hashed
//	Key: serverside.Named("user", serverside.KeyFunc(userOf))
//
// A Key is called by many goroutines at once.
//
// New rejects rules that a client could evade by making up keys, and knows this from the Key's
// type: Header, Cookie and FormValue return what the client sends, ClientIP an address, and
// Join, First and Named are as safe as their parts. New cannot see what a KeyFunc reads. It
// accepts one as a key, but not as the limit that makes another rule's made-up keys safe.
type Key interface {
	// Of returns r's key, or "" if it has none. Then Config.Key is used, or the peer's address
	// if this is Config.Key.
	//
	// The Store sees the key, hashed if it is longer than 128 bytes, so it must not be a
	// secret. Header hashes what it reads.
	Of(r *http.Request) string
}

// A KeyFunc is a function used as a Key:
//
//	Key: serverside.KeyFunc(func(r *http.Request) string { return userOf(r.Context()) })
type KeyFunc func(*http.Request) string

// Of returns f(r).
func (f KeyFunc) Of(r *http.Request) string { return f(r) }

// An origin says where a key comes from, and so whether clients can make it up.
type origin int

const (
	unknown  origin = iota // a function of the program
	claimed                // the client, unchecked
	address                // the network
	constant               // the rule itself
)

// A builtIn is a Key of this package.
type builtIn struct {
	origin origin
	text   string // description for people
	of     func(*http.Request) string
	exact  func(*http.Request) string // like of, without folding case; nil if of does not fold

	ip       func(*http.Request) (netip.Addr, bool) // the whole address, if the key is one
	disputed func(*http.Request) bool               // reports whether proxies' fields contradict each other
	body     bool                                   // reads the body
	hashed   string                                 // the name for HashKey, if the key is a hash
}

func (k *builtIn) Of(r *http.Request) string { return k.of(r) }

// known returns what is known about k.
func known(k Key) *builtIn {
	if b, ok := k.(*builtIn); ok {
		return b
	}
	return &builtIn{text: "a function of the program"}
}

// allClients is the Key of an Overload rule without one.
var allClients Key = &builtIn{
	origin: constant, text: "all clients together", of: func(*http.Request) string { return "*" },
}

// Header returns a Key that reads the first value of a request header field and hashes it, so
// that neither the Store nor an Event contains a token. The key is "" if the field is absent.
//
// A client can make up a new value, and so get a fresh quota, with each request. New therefore
// accepts this key only in a rule of AfterAuth, or together with a rule by ClientIP for the
// same requests.
//
// Different spellings of one Authorization credential are one key: the case of the scheme,
// spaces after it, and the variants of base64 in Basic credentials and JWT signatures make no
// difference.
func Header(name string) Key {
	name = http.CanonicalHeaderKey(name)
	return &builtIn{origin: claimed, text: "header " + name, hashed: name, of: func(r *http.Request) string {
		value := r.Header.Get(name)
		if name == "Host" {
			value = r.Host // net/http moves it there
		}
		return HashKey(name, value)
	}}
}

// Cookie returns a Key that reads a cookie and hashes it. The key is "" if the cookie is
// absent. Clients can make up cookies: see Header.
func Cookie(name string) Key {
	of := func(r *http.Request) string {
		c, err := r.Cookie(name)
		if err != nil {
			return ""
		}
		return HashKey("Cookie "+name, c.Value)
	}
	return &builtIn{origin: claimed, text: "cookie " + name, hashed: "Cookie " + name, of: of}
}

// HashKey returns the key that Header(name) makes of value, for an Allow, a LimitTable or a
// search in a log. For Cookie and FormValue, put "Cookie " or "Form " in front of name. If
// value is "", so is the key.
//
// The hash is the first half of SHA-256. It hides random tokens. Values that can be guessed,
// such as IPv4 addresses, can be confirmed by hashing the guess.
func HashKey(name, value string) string {
	if !strings.Contains(name, " ") {
		name = http.CanonicalHeaderKey(name)
	}
	if name == "Authorization" {
		value = normalizeCredential(value)
	}
	if value == "" {
		return ""
	}
	return hash(name + ":" + value)
}

// normalizeCredential returns one spelling of an Authorization credential (RFC 7617, RFC 7515).
// In base64 decoders ignore some bits, and some also ignore padding.
func normalizeCredential(credential string) string {
	end := strings.IndexAny(credential, " \t")
	if end < 0 {
		return credential // there is no scheme
	}
	scheme, value := strings.ToLower(credential[:end]), strings.Trim(credential[end:], " \t")
	switch {
	case scheme == "basic":
		value = reencode(base64.StdEncoding, value)
	case strings.Count(value, ".") == 2: // a JWT: its signature covers the spelling of the other parts
		signature := strings.LastIndexByte(value, '.') + 1
		value = value[:signature] + reencode(base64.URLEncoding, value[signature:])
	}
	return scheme + " " + value
}

// reencode decodes text and encodes it again without padding. It returns text if that fails.
func reencode(encoding *base64.Encoding, text string) string {
	encoding = encoding.WithPadding(base64.NoPadding)
	decoded, err := encoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return text
	}
	return encoding.EncodeToString(decoded)
}

// Join returns a Key that combines keys: requests share a quota if all of the keys are equal.
//
//	Key: serverside.Join(user, serverside.ClientIP()) // a quota for each user on each address
//
// Different lists of keys have different joins, whatever they contain. The peer's address
// replaces a key that is "" or nil.
func Join(keys ...Key) Key {
	keys = slices.Clone(keys)
	return combined(" and ", keys, func(r *http.Request, read reading) string {
		var b []byte
		for _, key := range keys {
			part := ""
			if key != nil {
				part = read(key, r)
			}
			if part == "" { // "-" begins no netstring
				b = appendNetstring(append(b, '-'), peerOf(r))
			} else {
				b = appendNetstring(b, part)
			}
		}
		return string(b)
	})
}

func appendNetstring(b []byte, s string) []byte {
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}

// First returns a Key that uses the first of keys that is not "", such as a token's tenant, or
// else the token. Keys of different Keys differ even if they read the same. The key is "" if
// all are.
func First(keys ...Key) Key {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k == nil })
	return combined(", or else ", keys, func(r *http.Request, read reading) string {
		for i, key := range keys {
			if k := read(key, r); k != "" {
				return strconv.Itoa(i) + ":" + k
			}
		}
		return ""
	})
}

// Named returns key with a prefix, such as "user:ann" for key "ann" and name "user", which
// tells readers of the Store what the key is. name must not contain a colon. If key is "", so
// is the result.
func Named(name string, key Key) Key {
	named := combined("", []Key{key}, func(r *http.Request, read reading) string {
		k := read(key, r)
		if k == "" {
			return ""
		}
		return name + ":" + k
	})
	named.ip, named.disputed = known(key).ip, known(key).disputed
	return named
}

// A reading reads a key: folded, by Key.Of, or exactly.
type reading func(Key, *http.Request) string

// exactly returns r's key by k without folding case.
func exactly(k Key, r *http.Request) string {
	if exact := known(k).exact; exact != nil {
		return exact(r)
	}
	return k.Of(r)
}

// combined returns a Key made of keys. Its origin is the least safe of theirs.
func combined(and string, keys []Key, of func(*http.Request, reading) string) *builtIn {
	k := &builtIn{
		origin: constant,
		of:     func(r *http.Request) string { return of(r, Key.Of) },
		exact:  func(r *http.Request) string { return of(r, exactly) },
	}
	if len(keys) == 0 {
		k.origin = unknown
	}
	var texts []string
	for _, key := range keys {
		if key == nil {
			texts, k.origin = append(texts, addressText), worse(k.origin, address)
			continue
		}
		part := known(key)
		k.origin, k.body = worse(k.origin, part.origin), k.body || part.body
		texts = append(texts, part.text)
	}
	k.text = strings.Join(texts, and)
	return k
}

// worse returns the origin of a key with parts of origin a and b.
func worse(a, b origin) origin {
	if a == claimed || b == claimed {
		return claimed
	}
	return min(a, b)
}

// KeyIs returns a function for Allow.Match. It reports whether key is one of keys. Header,
// Cookie and FormValue hash what they read: list the results of HashKey.
func KeyIs(key Key, keys ...string) func(*http.Request) bool {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == "" })
	return func(r *http.Request) bool { return slices.Contains(keys, key.Of(r)) }
}

// each describes the groups that k counts apart, for Rule.Describe.
func (k *builtIn) each() string {
	switch k.origin {
	case constant:
		return k.text
	case address:
		return "each client's address"
	case claimed:
		return "each " + k.text + " that clients send"
	default:
		return "each value of " + k.text
	}
}
