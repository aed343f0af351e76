package rulefile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/heedhttp/heed/serverside"
)

// A key is the Key of a rule.
type key struct {
	of   serverside.Key
	text string // the expression in the file, in one spelling

	makes func(made string) bool // reports whether a request can have this key
}

// keyOf reads a key expression. If it has a fault, the key is the client's address.
func (w *walk) keyOf(v value) key {
	text := w.text(v)
	if text == "" {
		return w.ip()
	}
	e, rest, err := parseExpr(text, 1)
	if err == nil && rest != "" {
		err = fmt.Errorf("has %s after the key", quote(rest))
	}
	var k key
	if err == nil {
		k, err = w.keyFrom(v, e)
	}
	if err != nil {
		w.fault(v, "%v", err)
		return w.ip()
	}
	return k
}

// An expr is a word, or a call such as join(ip, user).
type expr struct {
	word   string
	called bool
	args   []expr
}

// parseExpr reads the expression at the start of text, and returns the rest.
func parseExpr(text string, depth int) (e expr, rest string, err error) {
	end := strings.IndexAny(text+",", "(),")
	e.word, rest = strings.TrimSpace(text[:end]), text[end:]
	e.called = strings.HasPrefix(rest, "(")
	switch {
	case e.word == "":
		return e, "", errors.New("lacks a key")
	case !e.called:
		return e, rest, nil
	case depth > maxDepth:
		return e, "", errors.New("is nested too deeply")
	}
	for rest[0] != ')' {
		var arg expr
		if arg, rest, err = parseExpr(rest[1:], depth+1); err != nil {
			return e, "", err
		}
		e.args = append(e.args, arg)
		if rest == "" || rest[0] != ',' && rest[0] != ')' {
			return e, "", errors.New("lacks a closing bracket")
		}
	}
	return e, strings.TrimSpace(rest[1:]), nil
}

// keyFrom returns the key that e, in v, describes.
func (w *walk) keyFrom(v value, e expr) (key, error) {
	switch {
	case !e.called:
		return w.simpleKey(v, e.word)
	case e.word == "named":
		return w.namedKey(v, e.args)
	case e.word != "join" && e.word != "first":
		return key{}, fmt.Errorf("has an unknown function %s: must be join, first or named", quote(e.word))
	}
	var keys []key
	var all []serverside.Key
	var texts []string
	for _, arg := range e.args {
		k, err := w.keyFrom(v, arg)
		if err != nil {
			return key{}, err
		}
		keys, all, texts = append(keys, k), append(all, k.of), append(texts, k.text)
	}
	text := e.word + "(" + strings.Join(texts, ", ") + ")"
	if e.word == "join" {
		return key{serverside.Join(all...), text, anyText}, nil
	}
	return key{serverside.First(all...), text, func(made string) bool {
		index, rest, _ := strings.Cut(made, ":")
		i, err := strconv.Atoi(index)
		return err == nil && 0 <= i && i < len(keys) && keys[i].makes(rest)
	}}, nil
}

func (w *walk) namedKey(v value, args []expr) (key, error) {
	if len(args) != 2 || args[0].called || !isToken(args[0].word) {
		return key{}, errors.New("needs a name and a key in named, as in named(user, header:X-User)")
	}
	name := args[0].word
	k, err := w.keyFrom(v, args[1])
	return key{serverside.Named(name, k.of), "named(" + name + ", " + k.text + ")", func(made string) bool {
		rest, ok := strings.CutPrefix(made, name+":")
		return ok && k.makes(rest)
	}}, err
}

// simpleKey returns the key that a word in v describes.
func (w *walk) simpleKey(v value, word string) (key, error) {
	source, name, ok := strings.Cut(word, ":")
	source, name = strings.TrimSpace(source), strings.TrimSpace(name)
	switch {
	case word == "ip":
		return w.ip(), nil
	case word == "peer":
		return addressKey(word, serverside.Proxies{}), nil
	case !ok:
		ours := map[string]serverside.Key{"ip": nil, "peer": nil} // for hints
		unknown := serverside.KeyFunc(func(*http.Request) string { return "" })
		of, err := find[serverside.Key](w, v, "key", word, ours, w.env.Keys, unknown)
		return key{of, word, anyText}, err
	case !isToken(name):
		return key{}, fmt.Errorf("has %s, which is not the name of a %s", quote(name), source)
	}
	switch source {
	case "header":
		name = http.CanonicalHeaderKey(name)
		return key{serverside.Header(name), source + ":" + name, isHash}, nil
	case "cookie":
		return key{serverside.Cookie(name), source + ":" + name, isHash}, nil
	case "form":
		return key{serverside.FormValue(name), source + ":" + name, isHash}, nil
	}
	return key{}, fmt.Errorf("has an unknown key %s: write header:NAME, cookie:NAME or form:NAME", quote(word))
}

// ip returns the key that is the client's address.
func (w *walk) ip() key { return addressKey("ip", w.Proxies) }

func addressKey(text string, proxies serverside.Proxies) key {
	of := proxies.ClientIP()
	return key{of, text, func(made string) bool {
		addr, err := netip.ParseAddr(made)
		return err == nil && of.Of(&http.Request{RemoteAddr: netip.AddrPortFrom(addr, 1).String()}) == made
	}}
}

// isHash reports whether text can be a key of Header, Cookie or FormValue.
func isHash(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == 16 && strings.ToLower(text) == text
}

func anyText(string) bool { return true }
