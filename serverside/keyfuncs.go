package serverside

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Header is the first value of the request header field called name, as a hash:
// neither the Store nor an Event sees a token. It is "" if the field is absent.
//
// A value that nobody has checked is the client's to choose, and each one it
// makes up is a fresh quota. So New accepts such a key only for a rule that is
// asked AfterAuth, or beside one that limits the same requests by address. Of
// Authorization, the case of the scheme and the spaces after it do not count, as
// they do not for who reads it.
func Header(name string) KeyFunc {
	name = http.CanonicalHeaderKey(name)
	return claim{func(r *http.Request) string {
		value := r.Header.Get(name)
		if name == "Host" {
			value = r.Host // where net/http puts it
		}
		return HashKey(name, value)
	}}.key
}

// Cookie is the value of the cookie called name, as a hash, or "" if there is
// none. What Header says of values that nobody has checked holds for it too.
func Cookie(name string) KeyFunc {
	return claim{func(r *http.Request) string {
		c, err := r.Cookie(name)
		if err != nil {
			return ""
		}
		return HashKey("Cookie "+name, c.Value)
	}}.key
}

// FormValue is the value called name of a form that was posted or is in the query,
// without case and surrounding spaces, as a hash; or "" if there is none. It is
// for the account that a login is for. It reads the request's body, which
// Request.FormValue returns to the handler; bound it with http.MaxBytesHandler in
// front of Wrap. What Header says of values that nobody has checked holds for it
// too.
func FormValue(name string) KeyFunc {
	return claim{func(r *http.Request) string {
		return HashKey("Form "+name, strings.ToLower(strings.TrimSpace(r.FormValue(name))))
	}}.key
}

// HashKey is the key that Header(name) makes of value: for Allow, LimitTable and
// whoever looks for a key in a log. It is "" if value is.
func HashKey(name, value string) string {
	if name == "Authorization" {
		value = credentials(value)
	}
	if value == "" {
		return ""
	}
	return hash(name + ":" + value)
}

// credentials is value, of the field Authorization, in one spelling.
func credentials(value string) string {
	end := strings.IndexAny(value, " \t")
	if end < 0 {
		return value // there is no scheme
	}
	return strings.ToLower(value[:end]) + " " + strings.TrimLeft(value[end:], " \t")
}

// Join is all of keys together. No two different lists of keys have the same
// join, whatever characters they are made of. Where one of them is "" or nil,
// the peer's address takes its place.
func Join(keys ...KeyFunc) KeyFunc {
	keys = slices.Clone(keys)
	return claimedIfAny(keys, func(r *http.Request) string {
		var b []byte
		for _, key := range keys {
			b = appendPart(b, r, key)
		}
		return string(b)
	})
}

// First is the first of keys that is not "": the tenant of a token, say, or else
// the token. Keys of different KeyFuncs are different, also where they read the
// same. It is "" if all are.
func First(keys ...KeyFunc) KeyFunc {
	keys = slices.Clone(keys)
	return claimedIfAny(keys, func(r *http.Request) string {
		for i, key := range keys {
			if k := key(r); k != "" {
				return strconv.Itoa(i) + ":" + k
			}
		}
		return ""
	})
}

// Named is key in a name space of its own, "user:ann" for a key "ann" named "user": so
// a user who is called like an address does not share its quota, and who reads the
// Store's keys sees what they are of. name has no colon. It is "" if key is.
func Named(name string, key KeyFunc) KeyFunc {
	space := name + ":"
	return claimedIfAny([]KeyFunc{key}, func(r *http.Request) string {
		k := key(r)
		if k == "" {
			return ""
		}
		return space + k
	})
}

// appendPart appends key's value as a netstring, or the peer's with a "-" that
// no netstring begins with.
func appendPart(b []byte, r *http.Request, key KeyFunc) []byte {
	part := ""
	if key != nil {
		part = key(r)
	}
	if part == "" {
		return appendNetstring(append(b, '-'), peerOf(r))
	}
	return appendNetstring(b, part)
}

func appendNetstring(b []byte, s string) []byte {
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}

// A claim is a KeyFunc of what a client says about itself.
type claim struct{ read KeyFunc }

func (c claim) key(r *http.Request) string { return c.read(r) }

// claimedIfAny is read, as a claim if any of keys is one.
func claimedIfAny(keys []KeyFunc, read KeyFunc) KeyFunc {
	if slices.ContainsFunc(keys, isClaim) {
		return claim{read}.key
	}
	return read
}

// isClaim reports whether key is the method of a claim. All values of one method
// have one code pointer.
func isClaim(key KeyFunc) bool {
	return key != nil && reflect.ValueOf(key).Pointer() == reflect.ValueOf(claim{}.key).Pointer()
}

// ceilings checks that no rule is all there is to stop clients that make up a key
// for each request.
func (c *compiler) ceilings(p *plan) {
	for _, r := range p.rules {
		if !p.isClaimed(r) || r.stage != BeforeAuth || r.matcher == nil && r.pattern != "" {
			continue
		}
		if !slices.ContainsFunc(p.rules, func(by *rule) bool { return p.caps(by, r) }) {
			c.fault(r.field+".Key", "is what clients say of themselves, and they can say something else each time: "+
				"add a rule by ClientIP for the same requests, or check the key first and set Stage to AfterAuth")
		}
	}
}

// isClaimed reports whether r's keys are claims.
func (p *plan) isClaimed(r *rule) bool { return isClaim(r.key) || r.key == nil && isClaim(p.Key) }

// caps reports whether rule by limits all that r does, by something better.
func (p *plan) caps(by, r *rule) bool {
	return by.stage == BeforeAuth && !by.dryRun && !p.isClaimed(by) && by.matcher.covers(r.matcher)
}
