package serverside

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Key says whose quota a request is charged to: all requests with one key share one
// quota. It is called from many goroutines at once.
//
// What New knows of a Key is its type. Header, Cookie and FormValue are what a client says
// of itself, and what it can say otherwise each time; ClientIP is an address, and Join,
// First and Named are as good as what they are made of. Of a KeyFunc, whatever it reads or
// calls, nothing is known: New trusts it to be checked, but does not take it for a limit
// that stops clients which make up keys for another rule. Rule.Describe says so.
type Key interface {
	// Of returns r's key. "" stands for Config.Key, or if it is Config.Key, for the
	// peer's address: never for one bucket for everybody, nor for no limit.
	//
	// What it returns reaches the Store as it is, or if longer than 128 bytes, as its
	// hash: it must not be a secret. Header hashes what it reads.
	Of(r *http.Request) string
}

// A KeyFunc is a Key that the program makes of a request by itself:
//
//	Key: serverside.KeyFunc(func(r *http.Request) string { return userOf(r.Context()) })
type KeyFunc func(*http.Request) string

// Of returns f(r).
func (f KeyFunc) Of(r *http.Request) string { return f(r) }

// An origin is where a key comes from.
type origin int

const (
	unknown  origin = iota // a function of the program's
	claimed                // the client, which nobody has checked
	address                // the network
	constant               // the rule itself
)

// A builtIn is a Key of this package.
type builtIn struct {
	origin origin
	text   string // what it is, for people
	of     func(*http.Request) string
	exact  func(*http.Request) string // the same, but as it is written; nil if of is that

	ip       func(*http.Request) (netip.Addr, bool) // the whole address, of an address
	disputed func(*http.Request) bool               // what is known of the address contradicts itself
	body     bool                                   // it reads the body
	hashed   string                                 // what HashKey calls it, if it is a hash
}

func (k *builtIn) Of(r *http.Request) string { return k.of(r) }

// known returns what is known of k.
func known(k Key) *builtIn {
	if b, ok := k.(*builtIn); ok {
		return b
	}
	return &builtIn{text: "a function of the program"}
}

// everybody is the Key of an Overload rule without one.
var everybody Key = &builtIn{
	origin: constant, text: "all clients together", of: func(*http.Request) string { return "*" },
}

// Header is the first value of the request header field called name, as a hash:
// neither the Store nor an Event sees a token. It is "" if the field is absent.
//
// A value that nobody has checked is the client's to choose, and each one it
// makes up is a fresh quota. So New accepts such a key only for a rule that is
// asked AfterAuth, or beside one that limits the same requests by ClientIP.
//
// Of Authorization, what does not change the credential does not change the key: the
// case of the scheme, the spaces after it, and the ways in which the base64 of a Basic
// credential and of a JWT's signature can be written.
func Header(name string) Key {
	name = http.CanonicalHeaderKey(name)
	return &builtIn{origin: claimed, text: "header " + name, hashed: name, of: func(r *http.Request) string {
		value := r.Header.Get(name)
		if name == "Host" {
			value = r.Host // where net/http puts it
		}
		return HashKey(name, value)
	}}
}

// Cookie is the value of the cookie called name, as a hash, or "" if there is
// none. What Header says of values that nobody has checked holds for it too.
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

// HashKey is the key that Header(name) makes of value: for Allow, LimitTable and
// whoever looks for a key in a log. It is "" if value is. For Cookie and FormValue, name is
// "Cookie " or "Form " and their name.
//
// It is the first half of SHA-256. Nobody can find a random token by it; but whoever can
// guess a value, such as one of the 2³² IPv4 addresses, can find out that it is the one.
func HashKey(name, value string) string {
	if !strings.Contains(name, " ") {
		name = http.CanonicalHeaderKey(name)
	}
	if name == "Authorization" {
		value = oneSpelling(value)
	}
	if value == "" {
		return ""
	}
	return hash(name + ":" + value)
}

// oneSpelling is a credential, of the field Authorization, in one of its spellings
// (RFC 7617, RFC 7515). Base64 has bits that decoders ignore, and padding that some do.
func oneSpelling(credential string) string {
	end := strings.IndexAny(credential, " \t")
	if end < 0 {
		return credential // there is no scheme
	}
	scheme, value := strings.ToLower(credential[:end]), strings.Trim(credential[end:], " \t")
	switch {
	case scheme == "basic":
		value = respelt(base64.StdEncoding, value)
	case strings.Count(value, ".") == 2: // a JWT: its signature is about the spelling of the rest
		signature := strings.LastIndexByte(value, '.') + 1
		value = value[:signature] + respelt(base64.URLEncoding, value[signature:])
	}
	return scheme + " " + value
}

// respelt is text decoded and encoded again, without padding; or text, if it is not base64.
func respelt(encoding *base64.Encoding, text string) string {
	encoding = encoding.WithPadding(base64.NoPadding)
	decoded, err := encoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return text
	}
	return encoding.EncodeToString(decoded)
}

// Join is all of keys together. No two different lists of keys have the same
// join, whatever characters they are made of. Where one of them is "" or nil,
// the peer's address takes its place.
func Join(keys ...Key) Key {
	keys = slices.Clone(keys)
	return combined(" and ", keys, func(r *http.Request, read reading) string {
		var b []byte
		for _, key := range keys {
			part := ""
			if key != nil {
				part = read(key, r)
			}
			if part == "" { // a "-", which no netstring begins with
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

// First is the first of keys that is not "": the tenant of a token, say, or else
// the token. Keys of different Keys are different, also where they read the
// same. It is "" if all are.
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

// Named is key in a name space of its own, "user:ann" for a key "ann" named "user": who
// reads the Store's keys sees what they are of. name has no colon. It is "" if key is.
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

// A reading is how the keys that others are made of are read: by Of, or as they are
// written.
type reading func(Key, *http.Request) string

// exactly is what k reads as it is written, where Of folds it.
func exactly(k Key, r *http.Request) string {
	if exact := known(k).exact; exact != nil {
		return exact(r)
	}
	return k.Of(r)
}

// combined is a Key made of keys, as good as the worst of them.
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

// worse is what a key is that has parts of origin a and b. If one is made up, all is.
func worse(a, b origin) origin {
	if a == claimed || b == claimed {
		return claimed
	}
	return min(a, b)
}

// KeyIs reports whether a request has one of keys. Where key is Header or Cookie,
// which hash what they read, compare with what HashKey makes of the value.
func KeyIs(key Key, keys ...string) func(*http.Request) bool {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == "" })
	return func(r *http.Request) bool { return slices.Contains(keys, key.Of(r)) }
}

// each is whose quotas there are by k, for people.
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
